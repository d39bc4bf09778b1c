//! The backups of the cluster in `ctl status` and `ctl health`: their age, and whether they are
//! encrypted. `ctl backup create` gives a file its name, with the time at which it began, when it is
//! whole and on the disk; so the names say enough.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use halite_pillar::backup::Backup;
use halite_pillar::declaration::Declaration;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::app::App;
use crate::ca::{Cas, HALITE};
use crate::clock::rfc3339;
use crate::declared::in_background;
use crate::refusal::Refusal;
use crate::store::Millis;

/// The end of a backup's name, and the form of the time before it.
const SUFFIX: &str = ".halite-backup";
const TIME: &str = "%Y%m%dT%H%M%SZ";
const HOUR: Millis = 60 * 60 * 1000;
/// The time for a directory, which may be a share, to answer.
const LIMIT: Duration = Duration::from_secs(3);

/// The problems of the backups; none before the second one is overdue.
pub(super) async fn problems(app: &App, declaration: &Declaration) -> Vec<String> {
    let backup = &declaration.cluster.backup;
    let cluster = declaration.cluster.metadata.name.clone();
    let directory = PathBuf::from(&backup.directory);
    let listing = in_background(move || Ok::<_, Refusal>(newest(&directory, &cluster)));
    let newest = match tokio::time::timeout(LIMIT, listing).await {
        Ok(Ok(newest)) => newest,
        Ok(Err(refusal)) => Err(io::Error::other(refusal)),
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
    };
    judge(backup, newest, made(&app.cas), app.clock.now())
        .into_iter()
        .collect()
}

/// A remark about backups that everyone who gets one can read.
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

/// The time at which the cluster was made: when its own CA begins.
fn made(cas: &Cas) -> Millis {
    let pem = cas.certificate_pem(HALITE).ok();
    let found = pem.and_then(|pem| halite_proto::pki::Inspected::from_pem(pem).ok());
    found.map_or(0, |found| found.not_before * 1000)
}

/// The time of the newest backup of a cluster in a directory, by its name.
fn newest(directory: &Path, cluster: &str) -> io::Result<Option<Millis>> {
    let mut newest = None;
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        newest = newest.max(name.to_str().and_then(|name| time(name, cluster)));
    }
    Ok(newest)
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

fn judge(
    backup: &Backup,
    newest: io::Result<Option<Millis>>,
    made: Millis,
    now: Millis,
) -> Option<String> {
    let directory = &backup.directory;
    let remedy = "`journalctl -u halite-backup` on the first host shows why, and `ctl backup create` makes one";
    // One may fail, and its successor may take its time.
    let overdue = |since: Millis| now - since > (2 * backup.longest_gap() + 1) * HOUR;
    match newest {
        Ok(Some(time)) if overdue(time) => Some(format!(
            "the newest backup of the cluster in {directory} is of {}: {remedy}",
            rfc3339(time)
        )),
        Ok(None) if overdue(made) => Some(format!(
            "there is no backup of the cluster in {directory}: {remedy}"
        )),
        Ok(_) => None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => judge(backup, Ok(None), made, now),
        Err(error) => Some(format!(
            "cannot read the backups of the cluster in {directory}: {error}; is its disk or share well?"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_800_000_000_000;

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
        assert_eq!(newest(dir.path(), "prod").unwrap(), time);
        assert_eq!(newest(dir.path(), "other").unwrap(), None);
    }

    #[test]
    fn the_second_overdue_backup_is_a_problem() {
        let backup = Backup::default();
        assert_eq!(backup.longest_gap(), 6);
        let judged = |newest, made| judge(&backup, newest, made, NOW);
        let missing = || Err(io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(judged(Ok(Some(NOW - 13 * HOUR)), 0), None);
        let old = judged(Ok(Some(NOW - 13 * HOUR - 1)), NOW).unwrap();
        assert!(old.contains("is of 2027-01-14T18:59:59.999Z"), "{old}");
        // A new cluster has none yet.
        assert_eq!(judged(Ok(None), NOW - 13 * HOUR), None);
        assert_eq!(judged(missing(), NOW - 13 * HOUR), None);
        for none in [Ok(None), missing()] {
            let none = judged(none, NOW - 13 * HOUR - 1).unwrap();
            assert!(
                none.contains("there is no backup of the cluster in /var/lib/halite/backup"),
                "{none}"
            );
        }
        let hung = judged(Err(io::Error::from(io::ErrorKind::TimedOut)), NOW).unwrap();
        assert!(hung.starts_with("cannot read the backups"), "{hung}");
    }
}
