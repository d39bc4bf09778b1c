//! Of two masters one stops, and no host can stop one by its mere claim.

use halite_pillar::ca_rotation::RotationStage::{Only, Sign, Trust};

use super::*;
use crate::ca::{Cas, HALITE};
use crate::clock::{Clock as _, SystemClock};

/// Creates the CAs of a cluster.
fn cas(directory: &Path) -> Cas {
    Cas::create_or_load(directory, "prod", SystemClock.now()).unwrap()
}

/// A master with the epoch 3.
fn third(directory: &Path, cas: &Cas) -> Succession {
    let own = cas.sign_epoch(3, "cp-1-11").unwrap();
    Succession::new(directory, own, cas.certificate_pem(HALITE).unwrap())
}

#[tokio::test]
async fn a_master_hands_over_once() {
    let directory = tempfile::tempdir().unwrap();
    let own = third(directory.path(), &cas(directory.path()));
    assert_eq!(own.hand_over(|| Err("no room")), Err("no room"));
    assert_eq!(own.hand_over(|| Ok::<(), ()>(())), Ok(true));
    let second = own.hand_over(|| -> Result<(), ()> { panic!("written twice") });
    assert_eq!(second, Ok(false));
    own.hands_over().await;
}

#[tokio::test]
async fn a_higher_epoch_ends_the_master_and_each_later_start_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let own = third(directory.path(), &cas(directory.path()));
    own.hear(2, "cp-2-22", "minion:a").unwrap();
    own.hear(3, "cp-1-11", "minion:a").unwrap();
    check(directory.path(), 3).unwrap();
    let refused = own.hear(4, "cp-0-00", "minion:b").unwrap_err();
    assert_eq!(own.replaced().await, refused);
    let started = check(directory.path(), 3).unwrap_err();
    assert!(
        matches!(&started, NotStarted::Replaced(replaced) if *replaced == refused),
        "{started}"
    );
    let text = refused.to_string();
    for part in ["epoch 3", "epoch 4", "minion:b"] {
        assert!(text.contains(part), "{text}");
    }
    check(directory.path(), 5).unwrap();
    forget(directory.path()).unwrap();
    check(directory.path(), 3).unwrap();
}

#[test]
fn a_claim_without_evidence_ends_no_master() {
    let directory = tempfile::tempdir().unwrap();
    let cas = cas(directory.path());
    let own = third(directory.path(), &cas);
    let proven = cas.sign_epoch(4, "cp-2-22").unwrap();
    let changed = |number, holder: &str| Epoch {
        number,
        holder: holder.to_owned(),
        signature: proven.signature.clone(),
    };
    let other = tempfile::tempdir().unwrap();
    let other = self::cas(other.path()).sign_epoch(4, "cp-2-22").unwrap();
    for claim in [
        changed(5, "cp-2-22"),
        changed(4, "cp-3-33"),
        changed(3, "cp-2-22"),
        other,
    ] {
        let refused = own.hear_claim(0, Some(&claim), "minion:a");
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Claimed::Unproven { .. }), "{refused}");
    }
    // The claim as a minion of protocol 1 makes it.
    let refused = own.hear_claim(4, None, "minion:a").unwrap_err();
    assert!(matches!(refused, Claimed::Unproven { .. }), "{refused}");
    assert!(refused.to_string().contains("minion:a"), "{refused}");
    own.hear_claim(3, None, "minion:a").unwrap();
    // An epoch that is not higher changes nothing, no matter which master signed it.
    own.hear_claim(0, Some(&changed(2, "cp-9")), "minion:a")
        .unwrap();
    check(directory.path(), 3).unwrap();
}

#[test]
fn a_claim_of_an_impossible_epoch_ends_no_master() {
    let directory = tempfile::tempdir().unwrap();
    let cas = cas(directory.path());
    let own = third(directory.path(), &cas);
    for heard in [u64::MAX, i64::MAX.unsigned_abs(), 1 << 63] {
        let signed = cas.sign_epoch(heard, "cp-2-22").unwrap();
        for (number, evidence) in [(heard, None), (0, Some(&signed))] {
            let refused = own.hear_claim(number, evidence, "minion:a").unwrap_err();
            assert!(matches!(refused, Claimed::Unproven { .. }), "{refused}");
        }
    }
    check(directory.path(), 3).unwrap();
}

#[test]
fn evidence_of_any_epoch_that_a_store_can_have_ends_the_master() {
    // A promotion, a restore, and a master whose clock was far ahead.
    for heard in [4, 1_800_000_000, 1 << 40] {
        let directory = tempfile::tempdir().unwrap();
        let cas = cas(directory.path());
        let own = third(directory.path(), &cas);
        let evidence = cas.sign_epoch(heard, "cp-2-22").unwrap();
        let refused = own.hear_claim(0, Some(&evidence), "minion:a");
        assert!(matches!(refused.unwrap_err(), Claimed::Replaced(_)));
        check(directory.path(), 3).unwrap_err();
    }
}

#[test]
fn of_two_masters_with_the_same_epoch_the_same_one_stops_on_each_side() {
    let directory = tempfile::tempdir().unwrap();
    let cas = cas(directory.path());
    let [low, high] = ["cp-1-11", "cp-2-00"].map(|holder| cas.sign_epoch(3, holder).unwrap());
    let ca_pem = cas.certificate_pem(HALITE).unwrap();
    let there = tempfile::tempdir().unwrap();
    let there = Succession::new(there.path(), high.clone(), ca_pem);
    there.hear_claim(0, Some(&low), "standby:cp-3").unwrap();
    there.hear(low.number, &low.holder, "the other").unwrap();
    let here = Succession::new(directory.path(), low, ca_pem);
    here.hear_claim(0, Some(&high), "standby:cp-3").unwrap_err();
    // The refusal survives a restart, until a promotion raises the epoch.
    check(directory.path(), 3).unwrap_err();
    check(directory.path(), 4).unwrap();
}

#[test]
fn a_record_that_cannot_be_read_refuses_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let mark = mark(directory.path());
    check(directory.path(), 3).unwrap();
    for damaged in ["", "4", "four minion:b", "-1 minion:b"] {
        std::fs::write(&mark, damaged).unwrap();
        let refused = check(directory.path(), 3).unwrap_err();
        assert!(matches!(refused, NotStarted::Damaged(_)), "{refused}");
        assert!(refused.to_string().contains("remove the file"), "{refused}");
    }
    forget(directory.path()).unwrap();
    std::fs::create_dir(&mark).unwrap();
    let refused = check(directory.path(), 3).unwrap_err();
    assert!(
        matches!(refused, NotStarted::Unreadable { .. }),
        "{refused}"
    );
}

/// The epoch keeps its rank, and is signed again.
#[test]
fn a_master_signs_its_epoch_again_with_the_next_ca() {
    let directory = tempfile::tempdir().unwrap();
    let cas = cas(directory.path());
    let old = cas.certificate_pem(HALITE).unwrap().to_owned();
    let master = third(directory.path(), &cas);
    let now = SystemClock.now();
    for (stage, by_old) in [(Trust, true), (Sign, false), (Only, false)] {
        cas.begin_stage(HALITE, stage, "prod", now).unwrap();
        let trusted = cas.certificate_pem(HALITE).unwrap();
        master.follow_ca(cas.sign_epoch(3, "cp-1-11").unwrap(), trusted);
        let evidence = master.evidence();
        assert_eq!(evidence.rank(), master.own().rank());
        assert_eq!(evidence.is_proven(&old), by_old);
        assert!(evidence.is_proven(trusted));
    }
    // Of the CA that has left.
    let other = tempfile::tempdir().unwrap();
    let foreign = self::cas(other.path()).sign_epoch(4, "cp-2-22").unwrap();
    let claim = |epoch: &Epoch| master.hear_claim(0, Some(epoch), "minion:a");
    assert!(matches!(claim(&foreign), Err(Claimed::Unproven { .. })));
    let next = cas.sign_epoch(4, "cp-2-22").unwrap();
    assert!(matches!(claim(&next), Err(Claimed::Replaced(_))));
}
