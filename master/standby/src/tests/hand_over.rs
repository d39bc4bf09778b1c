//! The master is handed over, however often either side is killed: exactly one of them has it, with
//! everything that was answered.

use halite_api::{HandOver, HandOverPhase, Time};
use halite_core::ca::Cas;
use halite_core::clock::{Clock as _, SystemClock};
use halite_core::init::init;

use super::*;
use crate::hand_over::{Decision, read, under_way, write as write_note};
use crate::mark;
use crate::promote::{Boundary, PromoteError, Promoted, Promotion, PromotionRequest, Unit};
use crate::take_over::{forget, taken, waiting};

/// A unit that must be neither stopped nor started: the promotion is a part of its start.
struct Untouched;

impl Unit for Untouched {
    fn stop(&self) -> std::io::Result<()> {
        panic!("stopped")
    }

    fn start(&self) -> std::io::Result<()> {
        panic!("started")
    }
}

/// The boundaries of a promotion by order.
const BOUNDARIES: [Boundary; 9] = [
    Boundary::Noted,
    Boundary::Raised,
    Boundary::Files,
    Boundary::Cleared,
    Boundary::Store,
    Boundary::Epoch,
    Boundary::Identities,
    Boundary::Master,
    Boundary::Removed,
];

pub(super) fn note() -> HandOver {
    HandOver {
        from: "cp-1".to_owned(),
        to: "cp-2".to_owned(),
        leaves: true,
        epoch: 2,
        masters: vec!["127.0.0.1:1".to_owned()],
        hosts: vec!["cp-2".to_owned()],
        since: Time::from_millis(0),
        phase: HandOverPhase::Offered,
        reason: String::new(),
    }
}

/// Creates a master with a document and lines in its store, which is offered to a standby.
async fn offered() -> (MasterHost, MasterHost, String) {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let made = init(&master.config, SystemClock.now()).unwrap();
    std::fs::write(master.config.config_dir.join("cluster.yaml"), "declared").unwrap();
    let store = master.store().await;
    write(&store, 1, 10).await;
    write(&store, 2, 40_000).await;
    store.close().await;
    std::fs::write(mark(&standby.config), "127.0.0.1:1\n").unwrap();
    write_note(&master.config, &note()).unwrap();
    (master, standby, made.ca_sha256)
}

/// Runs the master's daemon once for the hand-over; returns whether the standby has acknowledged.
async fn life(master: &MasterHost, standby: &MasterHost, killed_at: Option<u64>) -> bool {
    let store = master.store().await;
    let found = under_way(&master.config).unwrap().unwrap();
    let decision = Decision::new(master.config.clone(), found);
    let ends = ends(master, &store, standby.receiver(), PATIENT, killed_at);
    let done = ends
        .feed
        .hand_over(&super::epoch(&store), &ends.hello, || decision.decide())
        .await;
    let (_, error) = ends.standby.await.unwrap();
    assert!(error.is_none(), "{error:?}");
    store.close().await;
    done.is_ok()
}

async fn take_over(
    host: &MasterHost,
    end_at: Option<Boundary>,
) -> Result<Option<u64>, PromoteError> {
    let unit = Untouched;
    let mut promotion = Promotion::new(&host.config, host.directory.path(), &SystemClock, &unit);
    promotion.end_at = end_at;
    promotion.take_over().await
}

/// Checks that the standby has the master, with everything.
async fn check(host: &MasterHost, ca: &str, case: &str) {
    assert!(!mark(&host.config).exists(), "{case}");
    assert!(!directory(&host.config).exists(), "{case}");
    assert!(
        !host.config.state_dir.join("promotion.json").exists(),
        "{case}"
    );
    let document = std::fs::read_to_string(host.config.config_dir.join("cluster.yaml"));
    assert_eq!(document.unwrap(), "declared", "{case}");
    let cas = Cas::load(&host.config.state_dir).unwrap();
    assert_eq!(cas.certificate_sha256(halite_core::ca::HALITE).unwrap(), ca);
    let record = taken(&host.config).unwrap().unwrap();
    assert_eq!(
        (record.epoch, record.from.as_str(), record.leaves),
        (2, "cp-1", true)
    );
    assert!(record.taken > 0, "{case}");
    let store = host.store().await;
    assert_eq!(store.epoch(), 2, "{case}: raised once");
    store.close().await;
    let path = host.config.state_dir.join("store.db");
    assert_eq!(numbers(&path).await, [1, 2], "{case}");
}

#[tokio::test]
async fn a_take_over_interrupted_at_any_boundary_continues_at_the_next_start() {
    for boundary in BOUNDARIES {
        let case = format!("{boundary:?}");
        let (master, standby, ca) = offered().await;
        assert!(life(&master, &standby, None).await);
        let ended = take_over(&standby, Some(boundary)).await.unwrap_err();
        assert!(
            matches!(ended, PromoteError::Ended(at) if at == boundary),
            "{case}: {ended}"
        );
        assert_eq!(take_over(&standby, None).await.unwrap(), Some(2), "{case}");
        check(&standby, &ca, &case).await;
        assert_eq!(take_over(&standby, None).await.unwrap(), None, "{case}");
    }
}

#[tokio::test]
async fn wherever_either_side_is_killed_one_of_both_has_the_master_and_in_the_end_the_standby() {
    let mut decided_before_it_was_known = 0;
    for killed_at in 1..40 {
        let case = format!("killed at record {killed_at}");
        let (master, standby, ca) = offered().await;
        let done = life(&master, &standby, Some(killed_at)).await;
        let phase = read(&master.config).unwrap().unwrap().phase;
        let ordered = waiting(&standby.config).unwrap().is_some();
        // The standby is never the master before this host has recorded that it no longer is.
        assert!(!ordered || phase == HandOverPhase::Decided, "{case}");
        assert!(!done || ordered, "{case}");
        decided_before_it_was_known += usize::from(phase == HandOverPhase::Decided && !ordered);
        if ordered {
            assert_eq!(take_over(&standby, None).await.unwrap(), Some(2), "{case}");
        } else {
            assert_eq!(take_over(&standby, None).await.unwrap(), None, "{case}");
            assert!(life(&master, &standby, None).await, "{case}");
            assert_eq!(take_over(&standby, None).await.unwrap(), Some(2), "{case}");
        }
        check(&standby, &ca, &case).await;
        if done {
            assert!(decided_before_it_was_known > 0, "no kill between the two");
            return;
        }
    }
    panic!("more records than expected");
}

#[test]
fn an_offer_that_has_failed_is_not_taken_and_a_decision_is_not_given_up() {
    let host = MasterHost::new();
    write_note(&host.config, &note()).unwrap();
    let late = Decision::new(host.config.clone(), note());
    assert!(late.give_up("it was off").unwrap());
    late.decide().unwrap_err();
    let found = read(&host.config).unwrap().unwrap();
    assert_eq!(
        (found.phase, found.reason.as_str()),
        (HandOverPhase::Failed, "it was off")
    );
    assert_eq!(
        under_way(&host.config).unwrap(),
        None,
        "it is still the master"
    );

    let taken = Decision::new(host.config.clone(), note());
    assert_eq!(taken.decide().unwrap().epoch, 2);
    assert!(!taken.give_up("it was off").unwrap());
    let found = under_way(&host.config).unwrap().unwrap();
    assert_eq!(found.phase, HandOverPhase::Decided);
    // Another start of the daemon decides the same.
    assert_eq!(
        Decision::new(host.config.clone(), found)
            .decide()
            .unwrap()
            .epoch,
        2
    );
}

#[tokio::test]
async fn a_master_that_was_handed_over_is_taken_back_by_force_only() {
    let (master, standby, _) = offered().await;
    assert!(life(&master, &standby, None).await);
    let unit = super::promotion::Calls::default();
    let promotion = Promotion::new(&master.config, master.directory.path(), &SystemClock, &unit);
    let error = promotion
        .run(&PromotionRequest::default())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, PromoteError::HandedOver(to) if to == "cp-2"),
        "{error}"
    );
    let forced = PromotionRequest {
        force: true,
        cluster: Some("prod".to_owned()),
    };
    // Higher than the standby's epoch, because the standby may return.
    assert_eq!(promotion.run(&forced).await.unwrap(), Promoted::Done(3));
    assert_eq!(under_way(&master.config).unwrap(), None);
    let store = master.store().await;
    assert_eq!(store.epoch(), 3);
    store.close().await;
}

#[tokio::test]
async fn the_record_of_a_hand_over_is_forgotten_for_its_host_only() {
    let (master, standby, _) = offered().await;
    assert!(life(&master, &standby, None).await);
    take_over(&standby, None).await.unwrap();
    forget(&standby.config, "cp-3").unwrap();
    assert!(taken(&standby.config).unwrap().is_some());
    forget(&standby.config, "cp-1").unwrap();
    assert_eq!(taken(&standby.config).unwrap(), None);
    forget(&standby.config, "cp-1").unwrap();
}
