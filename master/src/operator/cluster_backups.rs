//! The backups of the cluster in `ctl status` and `ctl health`: their age and number on the
//! master's host, and whether they are encrypted. `ctl backup create` renames a file to its final
//! name, which contains its start time, once the file is complete and on the disk; so the names are
//! enough.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use halite_core::app::App;
use halite_core::ca::{Cas, HALITE};
use halite_core::clock::rfc3339;
use halite_core::declared::in_background;
use halite_core::refusal::Refusal;
use halite_pillar::backup::Backup;
use halite_pillar::declaration::Declaration;
use halite_store::Millis;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use tokio::sync::Semaphore;

use super::backup_hosts::{Newest, is_overdue};

/// The suffix of a backup's name, and the format of the time before it.
const SUFFIX: &str = ".halite-backup";
const TIME: &str = "%Y%m%dT%H%M%SZ";
/// The time for a directory, which may be a network share, to answer.
const LIMIT: Duration = Duration::from_secs(3);
/// The permit of a listing. The thread of one that hangs stays until the directory answers, so the
/// next one waits for it rather than blocks a further thread.
static LISTING: Semaphore = Semaphore::const_new(1);

/// The findings about the backups on the master's host.
pub(super) struct Findings {
    /// The newest one.
    pub newest: Newest,
    /// The time at which the cluster was made.
    pub made: Millis,
    /// The second one after the newest is overdue, or the directory cannot be read.
    pub overdue: Vec<String>,
    /// Surplus backups, which no run has removed; empty until the second run that did not remove an
    /// older one.
    pub unremoved: Vec<String>,
}

/// The backups in a directory that carry the cluster's name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Listing {
    newest: Option<Millis>,
    count: u64,
}

/// Collects the findings about the backups.
pub(super) async fn inspect(app: &App, declaration: &Declaration) -> Findings {
    let backup = &declaration.cluster.backup;
    let cluster = declaration.cluster.metadata.name.clone();
    let directory = PathBuf::from(&backup.directory);
    let listed = limited(&LISTING, LIMIT, move || list(&directory, &cluster)).await;
    let unremoved = listed.as_ref().ok().and_then(|all| surplus(backup, *all));
    let (newest, overdue) = judge(backup, listed.map(|all| all.newest), app.clock.now());
    Findings {
        newest,
        made: made(&app.cas),
        overdue: overdue.into_iter().collect(),
        unremoved: unremoved.into_iter().collect(),
    }
}

/// The name and the time of the newest backup on the master's host that was begun before a moment.
///
/// # Errors
/// The directory cannot be read in time.
pub(super) async fn newest_before(
    declaration: &Declaration,
    moment: Millis,
) -> io::Result<Option<(String, Millis)>> {
    let cluster = declaration.cluster.metadata.name.clone();
    let directory = PathBuf::from(&declaration.cluster.backup.directory);
    let listed = limited(&LISTING, LIMIT, move || {
        before(&directory, &cluster, moment)
    })
    .await;
    match listed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        listed => listed,
    }
}

fn before(directory: &Path, cluster: &str, moment: Millis) -> io::Result<Option<(String, Millis)>> {
    let mut newest: Option<(String, Millis)> = None;
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else {
            continue;
        };
        let time = time(name, cluster).filter(|time| *time < moment);
        if let Some(time) = time
            && newest.as_ref().is_none_or(|(_, found)| time > *found)
        {
            newest = Some((name.to_owned(), time));
        }
    }
    Ok(newest)
}

/// A remark that the backups are not encrypted; empty if they are.
pub(super) fn remarks(declaration: &Declaration) -> Vec<String> {
    let backup = &declaration.cluster.backup;
    let open = format!(
        "the backups in {} are not encrypted, and have all keys and secrets of the cluster",
        backup.directory
    );
    backup
        .recipients
        .is_empty()
        .then_some(open)
        .into_iter()
        .collect()
}

/// The time at which the cluster was made: the start of the validity of its first own CA.
fn made(cas: &Cas) -> Millis {
    let present = cas.certificates(HALITE).unwrap_or_default();
    let all = present.into_iter().chain(cas.dropped(HALITE));
    let found = all.filter_map(|pem| halite_proto::pki::Inspected::from_pem(pem).ok());
    found
        .map(|found| found.not_before * 1000)
        .min()
        .unwrap_or(0)
}

/// Runs a listing on a thread of its own, one at a time for each permit, and waits at most until
/// the limit.
async fn limited<T: Send + 'static>(
    permits: &'static Semaphore,
    limit: Duration,
    list: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let listing = async {
        let permit = permits.acquire().await.map_err(io::Error::other)?;
        let work = move || {
            let listed = list();
            drop(permit);
            Ok::<_, Refusal>(listed)
        };
        in_background(work).await.map_err(io::Error::other)?
    };
    match tokio::time::timeout(limit, listing).await {
        Ok(listed) => listed,
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
    }
}

/// Lists the backups of a cluster in a directory by their names.
fn list(directory: &Path, cluster: &str) -> io::Result<Listing> {
    let mut listing = Listing::default();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let time = name.to_str().and_then(|name| time(name, cluster));
        listing.newest = listing.newest.max(time);
        listing.count += u64::from(time.is_some());
    }
    Ok(listing)
}

/// Backups that no run removes. One more than declared exists while a run has not ended, or until
/// the next run removes one that the previous run could not.
fn surplus(backup: &Backup, found: Listing) -> Option<String> {
    let Backup {
        directory, keep, ..
    } = backup;
    (found.count > u64::from(*keep) + 1).then(|| {
        format!(
            "{} backups of the cluster are in {directory}, and `backup.keep` is {keep}: `journalctl -u halite-backup` on the \
             first host says why older ones stay, and `ctl backup list` which ones are damaged or of another cluster, and \
             never removed",
            found.count
        )
    })
}

/// The time in a name: `CLUSTER-TIME.halite-backup`, or with a number for a second one.
fn time(name: &str, cluster: &str) -> Option<Millis> {
    let rest = name.strip_prefix(cluster)?.strip_prefix('-')?;
    let rest = rest.strip_suffix(SUFFIX)?;
    let time = rest.split_once('-').map_or(rest, |(time, _)| time);
    let time = DateTime::strptime(TIME, time).ok()?;
    let time = time.to_zoned(TimeZone::UTC).ok()?;
    Some(Timestamp::from(&time).as_millisecond())
}

/// The newest backup, and the problem with it. A directory without a backup is judged together with
/// the other hosts.
fn judge(
    backup: &Backup,
    newest: io::Result<Option<Millis>>,
    now: Millis,
) -> (Newest, Option<String>) {
    let directory = &backup.directory;
    match newest {
        Ok(Some(time)) if is_overdue(backup, time, now) => {
            let overdue = format!(
                "the newest backup of the cluster in {directory} was made at {}: `journalctl -u halite-backup` on the first host \
                 shows why, and `ctl backup create` makes one",
                rfc3339(time)
            );
            (Newest::Of(time), Some(overdue))
        }
        Ok(Some(time)) => (Newest::Of(time), None),
        Ok(None) => (Newest::Missing, None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (Newest::Missing, None),
        Err(error) => {
            let unreadable = format!(
                "cannot read the backups of the cluster in {directory}: {error}; check its disk or share"
            );
            (Newest::Unknown, Some(unreadable))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_800_000_000_000;
    const HOUR: Millis = 60 * 60 * 1000;

    #[test]
    fn the_time_is_in_the_name_of_a_whole_backup() {
        let own = |name: &str| time(name, "prod");
        let time = own("prod-20261123T140000Z.halite-backup");
        assert_eq!(time.map(rfc3339).unwrap(), "2026-11-23T14:00:00.000Z");
        assert_eq!(own("prod-20261123T140000Z-2.halite-backup"), time);
        for other in [
            ".prod-20261123T140000Z.halite-backup.new",
            "prod-2-20261123T140000Z.halite-backup",
            "production-20261123T140000Z.halite-backup",
            "prod-yesterday.halite-backup",
            "notes",
        ] {
            assert_eq!(own(other), None, "{other}");
        }
        let dir = tempfile::tempdir().unwrap();
        for time in ["20261122T000000Z", "20261123T140000Z", "20261121T000000Z"] {
            fs::write(dir.path().join(format!("prod-{time}.halite-backup")), "").unwrap();
        }
        let three = Listing {
            newest: time,
            count: 3,
        };
        assert_eq!(list(dir.path(), "prod").unwrap(), three);
        assert_eq!(list(dir.path(), "other").unwrap(), Listing::default());
        let own = |moment| {
            before(dir.path(), "prod", moment)
                .unwrap()
                .map(|(name, _)| name)
        };
        let moment = time.unwrap();
        assert_eq!(
            own(moment + 1).as_deref(),
            Some("prod-20261123T140000Z.halite-backup")
        );
        assert_eq!(
            own(moment).as_deref(),
            Some("prod-20261122T000000Z.halite-backup")
        );
        assert_eq!(own(0), None);
    }

    #[test]
    fn backups_that_no_run_removes_are_a_warning() {
        let backup = Backup::default();
        let found = |count| {
            let listing = Listing {
                newest: Some(NOW),
                count,
            };
            surplus(&backup, listing)
        };
        assert_eq!(found(28), None);
        assert_eq!(
            found(29),
            None,
            "a run has not ended, or the next one removes it"
        );
        let text = found(30).unwrap();
        let begin =
            "30 backups of the cluster are in /var/lib/halite/backup, and `backup.keep` is 28: ";
        assert!(text.starts_with(begin), "{text}");
    }

    #[test]
    fn the_second_overdue_backup_is_a_problem() {
        let backup = Backup::default();
        assert_eq!(backup.longest_gap(), 6);
        let judged = |newest| judge(&backup, newest, NOW);
        let time = NOW - 13 * HOUR;
        assert_eq!(judged(Ok(Some(time))), (Newest::Of(time), None));
        let (newest, old) = judged(Ok(Some(time - 1)));
        let old = old.unwrap();
        assert!(
            old.contains("was made at 2027-01-14T18:59:59.999Z"),
            "{old}"
        );
        assert_eq!(newest, Newest::Of(time - 1));
    }

    #[tokio::test]
    async fn a_directory_that_hangs_blocks_one_thread_until_it_answers() {
        static PERMIT: Semaphore = Semaphore::const_new(1);
        let short = Duration::from_millis(50);
        let (answer, hangs) = std::sync::mpsc::channel::<()>();
        let hung = move || {
            // It returns once the other end is dropped.
            let _ = hangs.recv();
            Ok(Listing::default())
        };
        let first = limited(&PERMIT, short, hung).await.unwrap_err();
        assert_eq!(first.kind(), io::ErrorKind::TimedOut);
        let started = || Err::<Listing, _>(io::Error::other("it has started"));
        let second = limited(&PERMIT, short, started).await.unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::TimedOut, "{second}");
        drop(answer);
        let third = limited(&PERMIT, 20 * LIMIT, || Ok(Listing::default())).await;
        assert_eq!(third.unwrap(), Listing::default());
    }

    #[test]
    fn a_directory_that_cannot_be_read_is_not_taken_for_an_empty_one() {
        let backup = Backup::default();
        let missing = Err(io::Error::from(io::ErrorKind::NotFound));
        for none in [Ok(None), missing] {
            assert_eq!(judge(&backup, none, NOW), (Newest::Missing, None));
        }
        let hung = Err(io::Error::from(io::ErrorKind::TimedOut));
        let (newest, hung) = judge(&backup, hung, NOW);
        let hung = hung.unwrap();
        assert!(hung.starts_with("cannot read the backups"), "{hung}");
        assert_eq!(newest, Newest::Unknown);
    }
}
