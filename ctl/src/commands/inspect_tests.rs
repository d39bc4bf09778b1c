use super::*;

const PLAIN: Paint = Paint { colour: false };

fn backups(host: halite_api::BackupHost) -> ClusterBackups {
    ClusterBackups {
        copies: 1,
        hosts: vec![host],
    }
}

#[test]
fn a_backup_has_its_age_or_the_time_of_the_first() {
    let host = |newest: Option<u64>, verified: Option<u64>| halite_api::BackupHost {
        host: "a".to_owned(),
        newest_age: newest,
        verified_age: verified,
        next: Some(halite_api::Time::from_millis(0)),
        ..halite_api::BackupHost::default()
    };
    for (host, expected) in [
        (
            host(None, None),
            "backups     a none yet (next 1970-01-01T00:00:00.000Z)\n",
        ),
        (host(Some(7100), None), "backups     a 118m ago\n"),
        (
            host(Some(119), Some(345_600)),
            "backups     a 119s ago (verified 4d ago)\n",
        ),
    ] {
        assert_eq!(saved(&backups(host)), expected);
    }
}

#[test]
fn the_registry_has_its_last_good_backup() {
    let time = halite_api::Time::from_millis(0);
    let known = |backup_time, verified| RegistryBackups {
        host: "w".to_owned(),
        backup: None,
        backup_time,
        verified,
    };
    for (known, expected) in [
        (known(None, None), "on w, no backup yet".to_owned()),
        (
            known(Some(time), None),
            format!("on w, last good backup {time}"),
        ),
        (
            known(Some(time), Some(time)),
            format!("on w, last good backup {time}, verified {time}"),
        ),
    ] {
        assert_eq!(registry(&known), format!("registry    {expected}\n"));
    }
}

#[test]
fn an_answer_of_another_version_is_shown_in_its_words() {
    let text = include_str!("../../../lib/api/contract/status.json");
    let text = text.replace("\"key\": \"accepted\"", "\"key\": \"leased\"");
    let status: ClusterStatus = halite_api::from_text(&text).unwrap();
    assert!(overview(&status, &PLAIN).contains("leased"));
}
