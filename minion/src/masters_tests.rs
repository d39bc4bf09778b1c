//! The minion's record of masters, and the masters that it obeys.
#![expect(clippy::disallowed_methods, reason = "the tests damage the file")]

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, SigningKey as _};

use super::*;

/// The certificate of a cluster's CA, and its key.
static CA: LazyLock<(String, KeyPair)> = LazyLock::new(ca);

fn ca() -> (String, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // It expired long ago.
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    (params.self_signed(&key).unwrap().pem(), key)
}

/// The epoch of a master, signed by this CA.
fn signed(number: u64, holder: &str, (_, key): &(String, KeyPair)) -> Epoch {
    let mut epoch = Epoch {
        number,
        holder: holder.to_owned(),
        signature: String::new(),
    };
    let signature = key.sign(epoch.statement().as_bytes()).unwrap();
    epoch.signature = STANDARD.encode(signature);
    epoch
}

fn epoch(number: u64, holder: &str) -> Epoch {
    signed(number, holder, &CA)
}

fn config(directory: &std::path::Path) -> Config {
    Config {
        state_dir: directory.to_owned(),
        masters: vec!["a:1".into()],
        ..Config::default()
    }
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn configured_masters_go_first_and_the_others_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let mut masters = Masters::load(&config);
    assert_eq!(masters.addresses(), ["a:1"]);
    masters
        .accept(
            &epoch(1, "cp-1"),
            &CA.0,
            texts(&["b:1", "a:1", "no address", ":1"]),
        )
        .unwrap();
    assert_eq!(masters.addresses(), ["a:1", "b:1"]);
    assert_eq!(Masters::load(&config).addresses(), ["a:1", "b:1"]);
    // Masters that a later one no longer names are gone.
    masters
        .accept(&epoch(1, "cp-1"), &CA.0, texts(&["c:1"]))
        .unwrap();
    assert_eq!(Masters::load(&config).addresses(), ["a:1", "c:1"]);
}

#[test]
fn a_lower_epoch_than_the_highest_is_refused_after_a_restart_too() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let mut masters = Masters::load(&config);
    masters
        .accept(&epoch(0, "cp-1"), &CA.0, Vec::new())
        .unwrap();
    masters
        .accept(&epoch(4, "cp-1"), &CA.0, texts(&["b:1"]))
        .unwrap();
    masters
        .accept(&epoch(4, "cp-1"), &CA.0, texts(&["b:1"]))
        .unwrap();
    for mut masters in [masters, Masters::load(&config)] {
        assert_eq!(masters.epoch(), 4);
        let refused = masters
            .accept(&epoch(3, "cp-1"), &CA.0, texts(&["c:1"]))
            .unwrap_err();
        assert!(
            matches!(refused, NotObeyed::Outdated { epoch: 3, seen: 4 }),
            "{refused}"
        );
        assert_eq!(masters.addresses(), ["a:1", "b:1"], "it teaches nothing");
    }
    forget(&config).unwrap();
    assert_eq!(Masters::load(&config).epoch(), 0);
}

#[test]
fn while_the_highest_epoch_is_not_known_no_master_is_obeyed() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    Masters::load(&config)
        .accept(&epoch(4, "cp-1"), &CA.0, texts(&["b:1"]))
        .unwrap();
    let owner = files::Owner::default();
    for damaged in ["{\"epoch\": 4, \"mas", "", "{\"masters\": []}", "[]"] {
        files::write(&config.known_masters(), damaged.as_bytes(), owner).unwrap();
        let mut masters = Masters::load(&config);
        // The configured one is asked, and refused.
        assert_eq!(masters.addresses(), ["a:1"]);
        for number in [3, 4, 5] {
            let refused = masters
                .accept(&epoch(number, "cp-1"), &CA.0, texts(&["c:1"]))
                .unwrap_err();
            assert!(matches!(refused, NotObeyed::Damaged { .. }), "{refused}");
            let text = chain(&refused);
            let remedy = format!("remove {}", config.known_masters().display());
            assert!(
                text.contains(&remedy) && text.contains("masters.json: it is damaged: "),
                "{text}"
            );
        }
        let kept = std::fs::read(config.known_masters()).unwrap();
        assert_eq!(kept, damaged.as_bytes(), "it is evidence");
        // The operator has removed it: no restart is needed.
        forget(&config).unwrap();
        masters
            .accept(&epoch(5, "cp-1"), &CA.0, texts(&["c:1"]))
            .unwrap();
        assert_eq!(Masters::load(&config).epoch(), 5);
    }
}

#[test]
fn an_epoch_that_cannot_be_noted_is_not_obeyed_until_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let mut masters = Masters::load(&config);
    masters
        .accept(&epoch(4, "cp-1"), &CA.0, texts(&["b:1"]))
        .unwrap();
    // No file can be written in its place.
    let in_the_way = config.known_masters();
    std::fs::remove_file(&in_the_way).unwrap();
    std::fs::create_dir_all(in_the_way.join("entry")).unwrap();
    let refused = masters
        .accept(&epoch(5, "cp-1"), &CA.0, texts(&["c:1"]))
        .unwrap_err();
    assert!(
        matches!(refused, NotObeyed::NotNoted { epoch: 5, .. }),
        "{refused}"
    );
    let text = chain(&refused);
    assert!(text.contains("retries by itself"), "{text}");
    assert!(text.contains("masters.json"), "{text}");
    // None of its data count, and the master of the recorded epoch is still obeyed.
    assert_eq!(masters.epoch(), 4);
    assert_eq!(masters.addresses(), ["a:1", "b:1"]);
    masters
        .accept(&epoch(4, "cp-1"), &CA.0, texts(&["d:1"]))
        .unwrap();
    assert_eq!(masters.addresses(), ["a:1", "d:1"]);
    std::fs::remove_dir_all(&in_the_way).unwrap();
    masters
        .accept(&epoch(5, "cp-1"), &CA.0, texts(&["c:1"]))
        .unwrap();
    assert_eq!(Masters::load(&config).epoch(), 5);
    let refused = masters
        .accept(&epoch(4, "cp-1"), &CA.0, Vec::new())
        .unwrap_err();
    assert!(matches!(refused, NotObeyed::Outdated { .. }), "{refused}");
}

#[test]
fn of_two_masters_with_the_same_epoch_one_is_obeyed_by_all() {
    let (low, high) = (epoch(4, "cp-1-77"), epoch(4, "cp-2-11"));
    for order in [[&low, &high], [&high, &low]] {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let mut masters = Masters::load(&config);
        for shown in order {
            let _ = masters.accept(shown, &CA.0, Vec::new());
        }
        for mut masters in [masters, Masters::load(&config)] {
            let refused = masters.accept(&low, &CA.0, Vec::new()).unwrap_err();
            assert!(
                matches!(&refused, NotObeyed::Double { epoch: 4, seen } if seen == "cp-2-11"),
                "{refused}"
            );
            masters.accept(&high, &CA.0, Vec::new()).unwrap();
            assert_eq!(masters.obeyed(), Some(high.clone()));
        }
    }
}

#[test]
fn an_epoch_that_the_ca_has_not_signed_is_not_obeyed() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let mut masters = Masters::load(&config);
    masters
        .accept(&epoch(4, "cp-1"), &CA.0, Vec::new())
        .unwrap();
    let raised = Epoch {
        number: 6,
        ..epoch(5, "cp-2")
    };
    let other = Epoch {
        holder: "cp-3".into(),
        ..epoch(5, "cp-2")
    };
    let without = Epoch {
        signature: String::new(),
        ..epoch(5, "cp-2")
    };
    for shown in [raised, other, without, signed(5, "cp-2", &ca())] {
        let refused = masters.accept(&shown, &CA.0, texts(&["c:1"])).unwrap_err();
        assert!(matches!(refused, NotObeyed::Unproven { .. }), "{refused}");
        assert_eq!(Masters::load(&config).epoch(), 4, "it teaches nothing");
    }
}

#[test]
fn a_record_of_an_earlier_version_is_continued() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let before = br#"{"epoch": 4, "masters": ["b:1"]}"#;
    files::write(&config.known_masters(), before, files::Owner::default()).unwrap();
    let mut masters = Masters::load(&config);
    assert_eq!((masters.epoch(), masters.obeyed()), (4, None));
    let refused = masters.accept(&epoch(3, "cp-1"), &CA.0, Vec::new());
    assert!(matches!(refused, Err(NotObeyed::Outdated { .. })));
    masters
        .accept(&epoch(4, "cp-1"), &CA.0, Vec::new())
        .unwrap();
    let obeyed = Masters::load(&config).obeyed().unwrap();
    assert_eq!(obeyed.rank(), (4, "cp-1"));
    assert!(obeyed.is_proven(&CA.0));
}
