use halite_host_reports::Good;
use serde_json::json;

use super::*;

const NOW: Millis = 1_800_000_000_000;
const DAY: Millis = 24 * HOUR;

fn holder(name: &str, since: Millis, newest: Option<Millis>) -> Holder {
    let reports = json!({
        "backup.since": since,
        "backup.json": newest.map(|time| json!({"ended": time, "directory": "/b", "failure": null,
            "good": {"name": "prod", "time": time}})),
    });
    Holder {
        has_master: name == "cp-1",
        ..Holder::from_reports(name, &reports)
    }
}

fn verified(holder: Holder, ended: Millis, failure: Option<&str>) -> Holder {
    let good = Good {
        name: "prod".to_owned(),
        time: ended,
        keys: Some(700),
    };
    Holder {
        verified: Some(RunReport {
            ended,
            directory: "/b".to_owned(),
            failure: failure.map(str::to_owned),
            good: Some(good),
            nothing: false,
        }),
        ..holder
    }
}

fn fresh(name: &str) -> Holder {
    let holder = holder(name, NOW - 90 * DAY, Some(NOW - HOUR));
    verified(holder, NOW - DAY, None)
}

#[test]
fn timely_backups_cause_no_finding() {
    let backup = Backup::default();
    let all = [fresh("cp-1"), fresh("cp-2"), fresh("cp-3")];
    assert_eq!(judge(&backup, &all, NOW), Findings::default());
    // One of the six-hourly runs was missed.
    let late = verified(
        holder("cp-2", NOW - 90 * DAY, Some(NOW - 13 * HOUR)),
        NOW - DAY,
        None,
    );
    assert_eq!(
        judge(&backup, &[fresh("cp-1"), late], NOW),
        Findings::default()
    );
    // A cluster of one host can hold only one copy.
    assert_eq!(judge(&backup, &[fresh("cp-1")], NOW), Findings::default());
}

#[test]
fn the_first_backup_is_awaited_with_a_warning_and_missed_after_an_interval() {
    let backup = Backup::default();
    // The first verification may come before the first backup.
    let early = |name: &str, since: Millis| {
        let none = "there is no backup in /b; `ctl backup create` makes one";
        let mut holder = verified(holder(name, since, None), since + HOUR, Some(none));
        holder.next = Some(NOW + HOUR);
        let last = holder.verified.as_mut().unwrap();
        (last.good, last.nothing) = (None, true);
        holder
    };
    let since = NOW - 7 * HOUR;
    let found = judge(&backup, &[early("cp-1", since), early("cp-2", since)], NOW);
    assert_eq!(
        found.first,
        [
            "there is no backup of the cluster on cp-1 yet; the next is due at 2027-01-15T09:00:00.000Z: \
             `ctl backup create` makes one at once",
            "there is no backup of the cluster on cp-2 yet; the next is due at 2027-01-15T09:00:00.000Z: \
             `systemctl start halite-backup` on cp-2 makes one at once",
        ]
    );
    let only = Findings {
        first: found.first.clone(),
        ..Findings::default()
    };
    assert_eq!(found, only, "it is a warning alone");

    let since = since - 1;
    let found = judge(&backup, &[early("cp-1", since)], NOW);
    assert_eq!((&found.first, &found.unverified), (&vec![], &vec![]));
    assert_eq!(
        found.overdue,
        [
            "there is no backup of the cluster on cp-1, where there should be some since 2027-01-15T00:59:59.999Z; the next \
             is due at 2027-01-15T09:00:00.000Z: `journalctl -u halite-backup` on cp-1 shows more, and `ctl backup create` \
             makes one at once"
        ]
    );

    // A new backup has the usual time until it is verified.
    let mut made = early("cp-1", NOW - 3 * DAY);
    made.newest = Newest::Of(NOW - HOUR);
    assert_eq!(judge(&backup, &[made], NOW), Findings::default());
}

#[test]
fn a_directory_that_cannot_be_read_is_not_a_missing_backup() {
    let backup = Backup::default();
    let hidden = Holder {
        newest: Newest::Unknown,
        ..fresh("cp-1")
    };
    let found = judge(&backup, &[hidden], NOW);
    assert_eq!((found.first.len(), found.overdue.len()), (0, 0));
}

#[test]
fn the_host_whose_second_backup_is_overdue_is_named() {
    let backup = Backup::default();
    let old = NOW - 13 * HOUR - 1;
    let late = verified(holder("cp-2", NOW - 90 * DAY, Some(old)), NOW - DAY, None);
    let none = Holder {
        failure: Some(Failure {
            why: "no room".to_owned(),
            ended: old,
        }),
        ..holder("cp-3", old, None)
    };
    let found = judge(&backup, &[fresh("cp-1"), late, none], NOW);
    let [late, none] = found.overdue.as_slice() else {
        panic!("{found:?}")
    };
    assert!(
        late.starts_with(
            "the newest backup of the cluster on cp-2 was made at 2027-01-14T18:59:59.999Z:"
        ),
        "{late}"
    );
    assert!(
        none.starts_with("there is no backup of the cluster on cp-3, "),
        "{none}"
    );
    assert!(none.contains("the last run failed: no room"), "{none}");
    let few = &found.few[0];
    let begin = "1 of 3 hosts hold a verified backup of the cluster that is not overdue (cp-1), and `backup.copies` is 2";
    assert!(few.starts_with(begin), "{few}");
}

#[test]
fn a_run_that_failed_after_the_newest_backup_is_a_warning() {
    let backup = Backup::default();
    let made = NOW - 5 * HOUR;
    let with = |name: &str, ended: Millis| {
        let reports = json!({
            "backup.since": NOW - 90 * DAY,
            "backup.json": {"ended": ended, "directory": "/b", "failure": "cannot write the backup: no room",
                "good": {"name": "prod", "time": made}},
        });
        let own = Holder {
            has_master: name == "cp-1",
            ..Holder::from_reports(name, &reports)
        };
        judge(&backup, &[verified(own, NOW - DAY, None)], NOW)
    };
    for name in ["cp-1", "cp-2"] {
        let found = with(name, NOW - HOUR);
        assert_eq!(
            found.failed,
            [format!(
                "the newest backup of the cluster on {name} was made at 2027-01-15T03:00:00.000Z, and the run that ended at \
                 2027-01-15T07:00:00.000Z failed: cannot write the backup: no room; `journalctl -u halite-backup` on {name} \
                 shows more, and `systemctl start halite-backup` there makes one"
            )]
        );
        let only = Findings {
            failed: found.failed.clone(),
            ..Findings::default()
        };
        assert_eq!(found, only, "it is a warning alone");
        // A backup was made by hand afterwards, so without a report.
        assert_eq!(with(name, made - 1), Findings::default());
    }
}

#[test]
fn a_host_that_was_never_set_up_does_not_count() {
    let backup = Backup::default();
    let bare = Holder::from_reports("cp-2", &Value::Null);
    let found = judge(&backup, &[fresh("cp-1"), bare], NOW);
    assert_eq!(found.overdue, [""; 0]);
    assert!(found.few[0].contains("`ctl highstate`"), "{found:?}");
    let one = Backup {
        copies: 1,
        ..backup
    };
    assert_eq!(judge(&one, &[fresh("cp-1")], NOW), Findings::default());
}

#[test]
fn a_damaged_or_unverified_backup_is_a_finding() {
    let backup = Backup::default();
    let changed = "its digest differs";
    let all = [
        verified(fresh("cp-1"), NOW - HOUR, Some(changed)),
        verified(fresh("cp-2"), NOW - 15 * DAY, None),
        holder("cp-3", NOW - 15 * DAY, Some(NOW - HOUR)),
    ];
    let found = judge(&backup, &all, NOW).unverified;
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found[0].contains("on cp-1 is not verified") && found[0].contains(changed),
        "{found:?}"
    );
    assert!(
        found[1].starts_with("no backup of the cluster on cp-2 was verified since "),
        "{found:?}"
    );
    let never = Backup {
        verify: "never".to_owned(),
        ..backup
    };
    assert_eq!(judge(&never, &all, NOW).unverified, [""; 0]);
}

/// A copy that cannot be restored does not count: the last good one may be on one host only.
#[test]
fn only_verified_backups_count_as_copies() {
    let backup = Backup::default();
    let unverified = |age: Millis| holder("cp-2", NOW - age, Some(NOW - HOUR));
    let few = |backup: &Backup, second: Holder| judge(backup, &[fresh("cp-1"), second], NOW).few;
    let damaged = || verified(fresh("cp-2"), NOW - HOUR, Some("its digest differs"));
    let begin = "1 of 2 hosts hold a verified backup of the cluster that is not overdue (cp-1), and `backup.copies` is 2";
    let late = verified(fresh("cp-2"), NOW - 15 * DAY, None);
    for second in [damaged(), late, unverified(15 * DAY)] {
        let said = few(&backup, second);
        assert!(said[0].starts_with(begin), "{said:?}");
        assert!(
            said[0].contains("`systemctl start halite-backup halite-backup-verify`"),
            "{said:?}"
        );
    }
    // Its first verification is not due yet.
    assert_eq!(few(&backup, unverified(3 * DAY)), [""; 0]);
    // A third host holds the second copy.
    let all = [fresh("cp-1"), damaged(), fresh("cp-3")];
    assert_eq!(judge(&backup, &all, NOW).few, [""; 0]);

    // Without verifications a backup counts, unless it was found to be damaged.
    let never = Backup {
        verify: "never".to_owned(),
        ..backup
    };
    assert_eq!(few(&never, unverified(90 * DAY)), [""; 0]);
    let said = few(&never, damaged());
    assert!(
        said[0].starts_with("1 of 2 hosts hold a backup of the cluster that is not overdue (cp-1)"),
        "{said:?}"
    );
}

#[test]
fn the_status_has_each_host_with_its_newest_backup() {
    let shown = fresh("cp-2").document(NOW);
    let at = |text: &str| Some(text.parse().unwrap());
    assert_eq!(shown.newest, at("2027-01-15T07:00:00.000Z"));
    assert_eq!(shown.verified, at("2027-01-14T08:00:00.000Z"));
    assert_eq!(shown.newest_age, Some(60 * 60));
    assert_eq!(shown.verified_age, Some(24 * 60 * 60));
    assert_eq!(shown.keys, Some(700));
    assert_eq!(shown.next, None);
    let failed = verified(fresh("cp-2"), NOW, Some("damaged")).document(NOW);
    assert_eq!(
        (failed.verified, failed.verified_age, failed.keys),
        (None, None, None)
    );
}
