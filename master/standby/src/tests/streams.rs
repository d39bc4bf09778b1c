//! The records that a standby accepts and refuses.

use std::os::unix::fs::PermissionsExt as _;

use halite_proto::v1::standby_record::Body;
use halite_proto::v1::{Epoch, FollowStart, LogPiece, StandbyFile};

use super::*;
use crate::copy::Copy;

fn record(number: u64, sync: bool, body: Body) -> StandbyRecord {
    StandbyRecord {
        number,
        sync,
        body: Some(body),
    }
}

fn start(epoch: u64, base: bool) -> StandbyRecord {
    let start = FollowStart {
        protocol: 1,
        epoch,
        base,
        ..FollowStart::default()
    };
    record(1, false, Body::Start(start))
}

#[tokio::test]
async fn a_master_of_a_lower_epoch_is_refused_also_after_a_restart() {
    let standby = MasterHost::new();
    let mut receiver = standby.receiver();
    receiver.take(start(4, true)).await.unwrap();
    drop(receiver);
    let mut receiver = standby.receiver();
    assert_eq!(receiver.hello().epoch, 4);
    let error = receiver.take(start(3, true)).await.unwrap_err();
    assert!(
        matches!(error, CopyError::Epoch { master: 3, seen: 4 }),
        "{error}"
    );
    let error = receiver.take(record(2, true, Body::Base(vec![1]))).await;
    assert!(error.is_err(), "no part of it is accepted");
    let mut heard = Receiver::open(&directory(&standby.config), 9).unwrap();
    assert!(heard.take(start(8, true)).await.is_err());
}

#[tokio::test]
async fn of_two_masters_with_the_same_epoch_one_is_followed() {
    let standby = MasterHost::new();
    let by = |evidence: Epoch| {
        let start = FollowStart {
            protocol: 2,
            epoch: evidence.number,
            base: true,
            evidence: Some(evidence),
            ..FollowStart::default()
        };
        record(1, false, Body::Start(start))
    };
    let shown = |holder: &str| by(CAS.sign_epoch(4, holder).unwrap());
    // An earlier version recorded only the number.
    std::fs::create_dir_all(directory(&standby.config)).unwrap();
    let number = directory(&standby.config).join("epoch");
    std::fs::write(&number, "4").unwrap();
    let mut receiver = standby.receiver();
    assert_eq!((receiver.hello().epoch, receiver.hello().heard), (4, None));
    receiver.begin(ca_pem()).unwrap();
    receiver.take(shown("cp-1-11")).await.unwrap();
    receiver.take(shown("cp-2-22")).await.unwrap();
    for mut receiver in [receiver, standby.receiver()] {
        receiver.begin(ca_pem()).unwrap();
        let heard = receiver.hello().heard.unwrap();
        assert_eq!(heard.rank(), (4, "cp-2-22"));
        assert!(receiver.take(shown("cp-1-11")).await.is_err());
        assert!(receiver.take(start(4, true)).await.is_err(), "an older one");
        let forged = Epoch {
            number: 5,
            ..CAS.sign_epoch(4, "cp-3-33").unwrap()
        };
        let refused = receiver.take(by(forged)).await.unwrap_err();
        assert!(matches!(refused, CopyError::Unproven(5)), "{refused}");
        receiver.take(shown("cp-2-22")).await.unwrap();
    }
    // An earlier version and `ctl master list` read it.
    assert_eq!(std::fs::read_to_string(number).unwrap().trim(), "4");
}

#[tokio::test]
async fn files_are_private_and_are_those_of_the_master() {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let etc = &master.config.config_dir;
    std::fs::create_dir_all(etc.join("nodes")).unwrap();
    std::fs::write(etc.join("cluster.yaml"), "first").unwrap();
    std::fs::write(etc.join("nodes/cp-1.yaml"), "node").unwrap();
    std::fs::write(etc.join("master.yaml"), "of this host").unwrap();
    std::fs::create_dir(master.config.state_dir.join("ca")).unwrap();
    std::fs::write(master.config.state_dir.join("ca/halite.key"), "secret").unwrap();
    let store = master.store().await;
    let mut first = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(first.following().await);
    // A revocation is on the standby before its commit is answered.
    store
        .revoke(&halite_store::Revocation {
            serial: "0a".to_owned(),
            owner: "a".to_owned(),
            when: 1,
            reason: "lost".to_owned(),
        })
        .await
        .unwrap();
    let receiver = first.cut().await;
    let content = |receiver: &Receiver| -> Vec<(String, String)> {
        let files = receiver.copy().unwrap().files();
        files
            .map(|(place, path, _)| {
                let mode = std::fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600, "{place}");
                (place.to_owned(), std::fs::read_to_string(path).unwrap())
            })
            .collect()
    };
    let expected = |rest: &[(&str, &str)]| -> Vec<(String, String)> {
        rest.iter()
            .map(|(place, text)| ((*place).to_owned(), (*text).to_owned()))
            .collect()
    };
    assert_eq!(
        content(&receiver),
        expected(&[
            ("config/cluster.yaml", "first"),
            ("config/nodes/cp-1.yaml", "node"),
            ("state/ca/halite.key", "secret"),
            ("state/store.db.revoked", "certificate 0a\n"),
        ])
    );
    // First while the standby is away, and then while it follows.
    std::fs::remove_file(etc.join("nodes/cp-1.yaml")).unwrap();
    let mut second = link(&master, &store, receiver, PATIENT, None);
    assert!(second.following().await);
    std::fs::write(etc.join("cluster.yaml.new"), "second").unwrap();
    std::fs::rename(etc.join("cluster.yaml.new"), etc.join("cluster.yaml")).unwrap();
    let place = |name: &str| {
        let root = directory(&standby.config).join("copy-1/files/config");
        root.join(name)
    };
    while std::fs::read_to_string(place("cluster.yaml")).unwrap_or_default() != "second" {
        tokio::task::yield_now().await;
    }
    assert!(!place("nodes/cp-1.yaml").exists());
    second.cut().await;
}

#[tokio::test]
async fn a_file_of_another_place_is_refused() {
    let standby = MasterHost::new();
    let mut copy = Copy::begin(&directory(&standby.config), 1).unwrap();
    for path in [
        "",
        "config",
        "/etc/passwd",
        "config/../../x",
        "state/./../x",
        "other/x",
        "../config/x",
    ] {
        let file = StandbyFile {
            path: path.to_owned(),
            mode: 0o600,
            ..StandbyFile::default()
        };
        let error = copy.take_file(&file).unwrap_err();
        assert!(matches!(error, CopyError::Place(_)), "{path}: {error}");
    }
}

#[tokio::test]
async fn a_piece_that_does_not_follow_is_refused() {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let store = master.store().await;
    write(&store, 1, 10).await;
    let log = store.log();
    let end = log.end().unwrap().unwrap();
    let whole = log.piece(0, &end, 1 << 20).unwrap().unwrap();
    let later = log.piece(1, &end, 1 << 20).unwrap().unwrap();
    let piece = |offset: u64, data: &[u8]| LogPiece {
        salt: end.position.salt.to_vec(),
        offset,
        data: data.to_vec(),
    };
    let mut copy = Copy::begin(&directory(&standby.config), 1).unwrap();
    copy.take_log(&piece(later.offset, &later.data))
        .await
        .unwrap_err();
    let mut damaged = whole.data.clone();
    *damaged.last_mut().unwrap() ^= 1;
    copy.take_log(&piece(0, &damaged)).await.unwrap_err();
    let cut = &whole.data[..whole.data.len() - 1];
    copy.take_log(&piece(0, cut)).await.unwrap_err();
    copy.take_log(&piece(0, &whole.data)).await.unwrap();
    copy.sync().unwrap();
    assert_eq!(copy.position(), Some(end.position));
    copy.take_log(&piece(later.offset, &later.data))
        .await
        .unwrap_err();
}
