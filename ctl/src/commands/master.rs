//! `ctl master`: the master's host and its standbys.

use std::path::Path;

use halite_api::{ClusterStatus, FailedHandOver, MasterList, StandbyHost, StreamReport, to_value};
use halite_pillar::masters::STANDBY_OF;
use serde::de::DeserializeOwned;

use crate::again::CommandLine;
use crate::cli::{Global, Master};
use crate::client;
use crate::commands::{promotion, retire};
use crate::output::{Paint, Screen, list as listed, or_dash, table};
use crate::paths::STATE_DIR;

/// Runs `ctl master`.
///
/// # Errors
/// The master does not answer, this host cannot be promoted, or the master's cannot be retired.
pub async fn run(global: &Global, command: Master, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Master::List => list(global, screen).await,
        Master::Promote(args) => promotion::promote(global, &args, screen).await,
        Master::Retire(args) => retire::retire(global, &args, screen).await,
    }
}

/// Shows the masters as the master reports them or, on a standby without one, from this host's
/// files.
async fn list(global: &Global, screen: &mut Screen) -> anyhow::Result<u8> {
    let masters = match client::status(global).await {
        Ok(status) => masters(&status),
        Err(error) => match local(Path::new(STATE_DIR)) {
            Some(local) => local,
            None => return Err(error),
        },
    };
    screen.answer(&to_value(&masters), |paint| overview(&masters, paint))?;
    Ok(u8::from(!masters.problems.is_empty()))
}

/// The masters in the state of the cluster.
pub fn masters(status: &ClusterStatus) -> MasterList {
    let masters = &status.masters;
    let mut problems = Vec::new();
    if let Some(reason) = &masters.isolated {
        problems.push(format!("the master starts no new work: {reason}"));
    } else if let Some(since) = masters.alone_since {
        problems.push(format!(
            "the master has had no standby since {since}: its later changes are on no other host"
        ));
    }
    let failed = masters.hand_over.as_ref();
    problems.extend(failed.map(|note| failure(note, &status.cluster)));
    MasterList {
        master: status.master.clone(),
        epoch: Some(masters.epoch),
        standbys: masters.standbys.clone(),
        problems,
    }
}

/// The text about a failed hand-over, with the remedy.
fn failure(note: &FailedHandOver, cluster: &str) -> String {
    let FailedHandOver {
        from,
        to,
        leaves,
        since,
        reason,
    } = note;
    let again = CommandLine::new(format!("ctl master retire {from}"))
        .option("to", Some(to))
        .flag(!leaves, "keep")
        .flag(*leaves, "force")
        .option("cluster", leaves.then_some(cluster))
        .text();
    format!(
        "the master was not handed over to {to} at {since}: {reason}; it continues here. `{again}` retries; this line \
        disappears then, or after a day"
    )
}

/// The knowledge of a standby, or of a host that hands the master over, while no master answers;
/// `None` on other hosts.
pub fn local(state_dir: &Path) -> Option<MasterList> {
    if let Some(to) = retire::moving_to(state_dir) {
        let problem = format!(
            "this host hands the master over to {to}, which takes it once its copy is complete; if {to} is dead, `ctl \
             master promote --force --cluster NAME` on this host takes the master back"
        );
        return Some(MasterList {
            problems: vec![problem],
            ..MasterList::default()
        });
    }
    let of = std::fs::read_to_string(state_dir.join(STANDBY_OF)).ok()?;
    let problem = match read::<StreamReport>(state_dir, StreamReport::FILE) {
        Some(report) if report.following => format!(
            "no master answers, but this host follows {}: name it with --master",
            report.master
        ),
        Some(report) => {
            let missed = report.missed.map_or_else(String::new, |gap| {
                format!(", and may lack later changes, because {gap}")
            });
            format!(
                "no master answers; this host is a standby and had a complete copy of {} until {}{missed}: if that master is dead, \
                 `ctl master promote` makes this host the master's",
                report.master, report.since
            )
        }
        None => {
            "no master answers; this host is declared a standby and has no copy of the master yet"
                .to_owned()
        }
    };
    Some(MasterList {
        master: of.lines().map(str::to_owned).collect(),
        epoch: read(state_dir, "epoch"),
        standbys: Vec::new(),
        problems: vec![problem],
    })
}

/// Reads a file of the standby.
fn read<T: DeserializeOwned>(state_dir: &Path, name: &str) -> Option<T> {
    let text = std::fs::read_to_string(state_dir.join("standby").join(name));
    serde_json::from_str(&text.ok()?).ok()
}

/// Formats the masters and their problems.
pub fn overview(masters: &MasterList, paint: &Paint) -> String {
    let mut text = format!(
        "master  {}\nepoch   {}\n",
        table::line(&listed(&masters.master)),
        or_dash(masters.epoch)
    );
    let row = |standby: &StandbyHost| {
        vec![
            standby.host.clone(),
            standby.state.to_string(),
            or_dash(standby.since),
            or_dash(standby.lag),
            or_dash(standby.reason.as_ref()),
        ]
    };
    if !masters.standbys.is_empty() {
        let heading = ["standby", "state", "since", "lag", "reason"];
        let rows = table::rows(&heading, masters.standbys.iter().map(row));
        text.push_str(&format!("\n{rows}"));
    }
    for problem in &masters.problems {
        text.push_str(&format!("\n{} {}\n", paint.bad("✗"), table::line(problem)));
    }
    text
}

#[cfg(test)]
mod tests {
    use halite_api::{HandOver, StandbyState, StreamGap, Time};

    use super::*;
    use crate::reply_contract_tests::hand_over;

    #[test]
    fn the_master_its_standbys_and_what_is_wrong_are_shown() {
        let since = Time::from_millis(0);
        let standby = |name: &str, state: StandbyState| StandbyHost {
            host: name.to_owned(),
            state,
            since: None,
            lag: None,
            reason: None,
        };
        let masters = MasterList {
            master: vec!["10.0.0.1:4550".to_owned()],
            epoch: Some(3),
            standbys: vec![
                StandbyHost {
                    since: Some(since),
                    lag: Some(0),
                    reason: Some("cut off".to_owned()),
                    ..standby("cp-2", StandbyState::Gone)
                },
                standby("cp-3", StandbyState::Missing),
            ],
            problems: vec!["the master is alone".to_owned()],
        };
        let expected = "\
master  10.0.0.1:4550
epoch   3

STANDBY  STATE    SINCE                     LAG  REASON
cp-2     gone     1970-01-01T00:00:00.000Z  0    cut off
cp-3     missing  -                         -    -

✗ the master is alone
";
        assert_eq!(overview(&masters, &Paint { colour: false }), expected);
    }

    #[test]
    fn a_host_that_hands_over_names_the_next_master() {
        let directory = tempfile::tempdir().unwrap();
        let note = serde_json::to_string(&hand_over()).unwrap();
        std::fs::write(directory.path().join(HandOver::FILE), note).unwrap();
        let found = local(directory.path()).unwrap();
        let text = &found.problems[0];
        assert!(text.contains("hands the master over to cp-2"), "{text}");
        for (leaves, again) in [
            (false, "`ctl master retire cp-1 --to cp-2 --keep`"),
            (
                true,
                "`ctl master retire cp-1 --to cp-2 --force --cluster prod`",
            ),
        ] {
            let note = FailedHandOver {
                from: "cp-1".to_owned(),
                to: "cp-2".to_owned(),
                leaves,
                since: Time::from_millis(0),
                reason: "it was off".to_owned(),
            };
            let text = failure(&note, "prod");
            for part in [
                "not handed over to cp-2 at 1970-01-01T00:00:00.000Z: it was off",
                again,
            ] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }

    #[test]
    fn a_standby_without_its_master_says_what_it_has() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(local(directory.path()), None);
        std::fs::write(directory.path().join(STANDBY_OF), "10.0.0.1:4550\n").unwrap();
        std::fs::create_dir(directory.path().join("standby")).unwrap();
        let problem = || local(directory.path()).unwrap().problems.remove(0);
        let text = problem();
        assert!(text.contains("no copy"), "{text}");
        std::fs::write(directory.path().join("standby/epoch"), "4").unwrap();
        let time = Time::from_millis;
        let report = StreamReport {
            master: "10.0.0.1:4550".to_owned(),
            since: time(0),
            following: false,
            alive: None,
            missed: None,
        };
        let write = |report: &StreamReport| {
            let text = serde_json::to_string(report).unwrap();
            let path = directory.path().join("standby").join(StreamReport::FILE);
            std::fs::write(path, text).unwrap();
        };
        write(&report);
        assert_eq!(local(directory.path()).unwrap().epoch, Some(4));
        let text = problem();
        assert!(text.contains("until 1970-01-01T00:00:00.000Z:"), "{text}");
        let off = StreamGap::Off {
            from: time(1000),
            to: time(2000),
        };
        for (missed, expected) in [
            (
                off,
                "did not run on this host from 1970-01-01T00:00:01.000Z to",
            ),
            (
                StreamGap::Answered { at: time(3000) },
                "the master answered at 1970-01-01T00:00:03.000Z",
            ),
        ] {
            write(&StreamReport {
                missed: Some(missed),
                ..report.clone()
            });
            let text = problem();
            assert!(text.contains(expected), "{text}");
        }
        write(&StreamReport {
            following: true,
            ..report
        });
        let text = problem();
        assert!(text.contains("follows 10.0.0.1:4550"), "{text}");
    }
}
