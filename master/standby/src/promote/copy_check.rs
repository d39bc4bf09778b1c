//! The checks of the copy before a promotion: a damaged copy, and one that may be older than
//! another standby's, is promoted only with `--force`; one of a newer program, never.

use std::fs;
use std::path::{Path, PathBuf};

use halite_core::clock::millis;
use halite_errors::chain;
use halite_manifest::{Bundles, InstalledBundle};
use halite_store::{Millis, StoreError, check_migrations};

use super::super::compare::StandsBy;
use super::super::copy::Copy;
use super::super::declared::{declaration, other_standbys};
use super::super::directory;
use super::super::report::{age, gap, report};
use super::error::{CheckError, PromoteError};
use super::{Promotion, PromotionRequest};

/// The least difference that makes another copy newer: standbys notice the end of a master at
/// different times.
const NEWER: Millis = 60_000;

/// The program of a master in a bundle.
const PROGRAM: &str = "bin/halite-master";

impl Promotion<'_> {
    /// Refuses a copy that differs from what this standby has acknowledged, and one that this
    /// program could not open. Changes nothing; the daemon must not run.
    pub(super) async fn check_copy(&self, wanted: &PromotionRequest) -> Result<(), PromoteError> {
        let copy = Copy::open(&directory(self.config))?.ok_or(PromoteError::NoCopy)?;
        let damage: Vec<String> = copy.damage().iter().map(|damage| chain(damage)).collect();
        if !damage.is_empty() && !wanted.force {
            return Err(CheckError::Damaged {
                damage: damage.join("; "),
                cluster: self.config.cluster.clone(),
            }
            .into());
        }
        let store = copy.store();
        // An interrupted promotion has checked it, and moved it to the master's place.
        if !store.exists() {
            return Ok(());
        }
        self.refuse_newer(&store, wanted).await
    }

    /// Refuses the store of a copy that this program could not open, even with `--force`. Changes
    /// nothing; no other process may use the store.
    pub(super) async fn refuse_newer(
        &self,
        store: &Path,
        wanted: &PromotionRequest,
    ) -> Result<(), PromoteError> {
        match check_migrations(store).await {
            Err(StoreError::Newer { last, known, .. }) => Err(PromoteError::Newer {
                last,
                known,
                remedy: remedy(&self.config.bundles, wanted),
            }),
            checked => checked.map_err(PromoteError::from),
        }
    }

    /// Refuses a copy if another standby has answered and has a newer one, or if the master may
    /// have continued without this standby and a declared standby does not answer.
    pub(super) fn check_age(
        &self,
        wanted: &PromotionRequest,
        standbys: &[StandsBy],
    ) -> Result<(), PromoteError> {
        let (Some(report), false) = (report(self.config)?, wanted.force) else {
            return Ok(());
        };
        let now = self.clock.now();
        let (missed, until) = (gap(&report, now), report.until());
        let least = if missed.is_some() { 0 } else { NEWER };
        let newest = standbys.iter().max_by_key(|standby| millis(&standby.until));
        let newer = newest.filter(|newest| {
            let newest = millis(&newest.until);
            newest.is_some_and(|newest| newest.saturating_sub(until.as_millis()) > least)
        });
        if let Some(newer) = newer {
            return Err(CheckError::Older {
                until,
                other: newer.host.clone(),
                newer: newer.until.clone(),
                cluster: self.config.cluster.clone(),
            }
            .into());
        }
        let Some(missed) = missed else { return Ok(()) };
        let copy = Copy::peek(&directory(self.config))?;
        let files = copy.as_ref().map(Copy::root_of_files);
        // Unreadable documents name no other standby; the copies of others would contain the same
        // documents.
        let declared = files.and_then(|files| declaration(&files, &self.config.state_dir).ok());
        let others = declared.map(|declared| other_standbys(self.config, &declared));
        let mut others = others.unwrap_or_default();
        // Standbys that have answered have no newer copy, unless they do not know its age.
        let known = |standby: &&StandsBy| millis(&standby.until).is_some();
        others.retain(|name| {
            let mut answered = standbys.iter().filter(known);
            !answered.any(|standby| standby.host == *name)
        });
        if others.is_empty() {
            return Ok(());
        }
        Err(CheckError::Behind {
            until,
            age: age(now - until.as_millis()),
            missed,
            others: others.join(", "),
            cluster: self.config.cluster.clone(),
        }
        .into())
    }
}

/// The commands that install the program of the newest bundle on this host, and promote with it as
/// the operator wanted; of the mounted ISO, if no bundle on this host has a newer program.
fn remedy(bundles: &Path, wanted: &PromotionRequest) -> String {
    let (first, bundle) = match bundle_of_newer_program(bundles) {
        Some(bundle) => ("", bundle),
        None => (
            "mount the ISO of the newer bundle with `mount -o loop,ro ISO /mnt`, ",
            PathBuf::from("/mnt"),
        ),
    };
    let bundle = bundle.display();
    let mut options = String::new();
    if wanted.force {
        options.push_str(" --force");
    }
    if let Some(cluster) = &wanted.cluster {
        options.push_str(&format!(" --cluster {cluster}"));
    }
    // The rest of a promotion installs the program of the bundle that the documents record for this
    // host: it may be the earlier one until the upgrade has ended.
    format!(
        "{first}install the newer program with `install -m 0755 {bundle}/{PROGRAM} /usr/local/bin/halite-master`, promote with \
         `{bundle}/bin/ctl master promote --no-wait{options}`, then repeat the `ctl upgrade` or `ctl highstate` that was interrupted"
    )
}

/// The newest bundle with another program that was built after the bundles with this one; `None`
/// if no bundle has this program. Names of versions do not tell which bundle is newer.
fn bundle_of_newer_program(bundles: &Path) -> Option<PathBuf> {
    let own = fs::read("/proc/self/exe").ok()?;
    let listed = Bundles::new(bundles).list().ok()?;
    let built =
        |bundle: InstalledBundle| Some((millis(&bundle.manifest.ok()?.built)?, bundle.path));
    let mut dated: Vec<(Millis, PathBuf)> = listed.into_iter().filter_map(built).collect();
    dated.sort_unstable();
    let mut newest = None;
    for (_, path) in dated.into_iter().rev() {
        match fs::read(path.join(PROGRAM)) {
            Ok(program) if program == own => return newest,
            Ok(_) => newest = newest.or(Some(path)),
            Err(_) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io;

    use halite_api::{StreamGap, StreamReport, Time};
    use halite_core::clock::{ManualClock, rfc3339};

    use super::super::super::tests::MasterHost;
    use super::super::Unit;
    use super::*;

    const NOW: Millis = 1_800_000_000_000;

    struct Unused;

    impl Unit for Unused {
        fn stop(&self) -> io::Result<()> {
            unreachable!("nothing is changed")
        }

        fn start(&self) -> io::Result<()> {
            unreachable!("nothing is changed")
        }
    }

    /// Checks a copy that is an hour old, while another standby has one that is newer by `newer`.
    fn check(is_behind: bool, newer: Option<Millis>, force: bool) -> Result<(), PromoteError> {
        let host = MasterHost::new();
        let until = NOW - 3_600_000;
        let report = StreamReport {
            master: "10.0.0.11:4550".to_owned(),
            since: Time::from_millis(until),
            following: false,
            alive: Some(Time::from_millis(NOW)),
            missed: is_behind.then(|| StreamGap::Answered {
                at: Time::from_millis(NOW),
            }),
        };
        let root = directory(&host.config);
        std::fs::create_dir(&root).unwrap();
        let text = serde_json::to_vec(&report).unwrap();
        std::fs::write(root.join(StreamReport::FILE), text).unwrap();
        let other = StandsBy {
            address: "10.0.0.13:4550".to_owned(),
            host: "cp-3".to_owned(),
            epoch: halite_proto::v1::Epoch::unproven(1),
            followed: None,
            until: newer.map_or_else(String::new, |newer| rfc3339(until + newer)),
        };
        let clock = ManualClock::at(NOW);
        let promotion = Promotion::new(&host.config, host.directory.path(), &clock, &Unused);
        let wanted = PromotionRequest {
            force,
            cluster: None,
        };
        promotion.check_age(&wanted, &[other])
    }

    #[test]
    fn the_older_of_two_copies_is_promoted_by_force_only() {
        for (is_behind, newer, is_refused) in [
            // Both followed to the end, and noticed it at different times.
            (false, Some(NEWER), false),
            (false, Some(NEWER + 1), true),
            (false, Some(-3_600_000), false),
            (true, Some(1), true),
            (true, Some(0), false),
            (true, None, false),
        ] {
            let checked = check(is_behind, newer, false);
            assert_eq!(checked.is_err(), is_refused, "{is_behind} {newer:?}");
            let Err(error) = checked else { continue };
            let text = error.to_string();
            for part in ["promote cp-3", "--force --cluster prod"] {
                assert!(text.contains(part), "{part}: {text}");
            }
            check(is_behind, newer, true).unwrap();
        }
    }
}
