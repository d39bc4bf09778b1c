//! A master that is taken back by force, however often that is interrupted.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use halite_api::{HandOver, HandOverPhase};
use halite_core::clock::{Steady, SystemClock};
use halite_core::isolation::{AFTER, Isolation, Surroundings};
use halite_core::succession::{Succession, check};

use super::hand_over::note;
use super::promotion::forced;
use super::*;
use crate::hand_over::{under_way, write as write_note};
use crate::promote::{Boundary, PromoteError, Promoted, Promotion, PromotionRequest, Unit};

/// A unit that refuses its first starts.
struct Starts {
    refused: AtomicU32,
    started: AtomicU32,
}

impl Starts {
    fn refusing(refused: u32) -> Self {
        Self {
            refused: AtomicU32::new(refused),
            started: AtomicU32::new(0),
        }
    }

    fn has_started(&self) -> bool {
        self.started.load(Ordering::SeqCst) > 0
    }
}

impl Unit for Starts {
    fn stop(&self) -> io::Result<()> {
        Ok(())
    }

    fn start(&self) -> io::Result<()> {
        let refused = &self.refused;
        let left = refused.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(1)
        });
        if left.is_ok() {
            return Err(io::Error::other("no room"));
        }
        self.started.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// The reason why the master of a host does not act.
#[derive(Debug, Clone, Copy)]
enum Why {
    Replaced,
    HandedOver,
    Isolated,
}

const LOST: Surroundings = Surroundings {
    standbys: 2,
    alone_since: Some(0),
    accepted: 4,
    connected: 1,
};

/// Creates a host whose master does not act; each is taken back with an epoch of at least 3.
async fn host(why: Why) -> MasterHost {
    let host = MasterHost::new();
    let store = host.store().await;
    write(&store, 1, 10).await;
    store.close().await;
    match why {
        Why::Replaced => {
            let own = Succession::new(&host.config.state_dir, first(), "");
            own.hear(2, "cp-2-22", "minion:a").unwrap_err();
        }
        Why::HandedOver => {
            let decided = HandOver {
                phase: HandOverPhase::Decided,
                ..note()
            };
            write_note(&host.config, &decided).unwrap();
        }
        Why::Isolated => {
            let isolation = Isolation::new(&host.config.state_dir);
            isolation.look(Steady(0), LOST);
            isolation.look(Steady(AFTER), LOST);
        }
    }
    host
}

async fn take_back(
    host: &MasterHost,
    unit: &Starts,
    end_at: Option<Boundary>,
) -> Result<Promoted, PromoteError> {
    let mut promotion = Promotion::new(&host.config, host.directory.path(), &SystemClock, unit);
    promotion.end_at = end_at;
    promotion.run(&forced()).await
}

/// Checks that the host has the master, and that it acts.
async fn check_acts(host: &MasterHost, case: &str) {
    assert_eq!(under_way(&host.config).unwrap(), None, "{case}");
    let isolation = Isolation::new(&host.config.state_dir);
    isolation.look(Steady(0), LOST);
    isolation.look(Steady(AFTER), LOST);
    assert_eq!(isolation.reason(), None, "{case}");
    let store = host.store().await;
    let raised = store.epoch();
    assert!(raised > 1, "{case}: {raised}");
    check(&host.config.state_dir, raised).unwrap();
    store.close().await;
    let path = host.config.state_dir.join("store.db");
    assert_eq!(numbers(&path).await, [1], "{case}");
}

#[tokio::test]
async fn a_master_whose_start_failed_is_started_by_the_same_command() {
    for why in [Why::Replaced, Why::HandedOver, Why::Isolated] {
        let (host, unit) = (host(why).await, Starts::refusing(1));
        let error = take_back(&host, &unit, None).await.unwrap_err();
        assert!(
            matches!(
                error,
                PromoteError::Unit {
                    action: "start",
                    ..
                }
            ),
            "{why:?}: {error}"
        );
        take_back(&host, &unit, None).await.unwrap();
        assert!(unit.has_started(), "{why:?}");
        check_acts(&host, &format!("{why:?}")).await;
    }
}

#[tokio::test]
async fn a_master_that_is_taken_back_starts_and_acts_wherever_that_was_ended() {
    for why in [Why::Replaced, Why::HandedOver, Why::Isolated] {
        for boundary in [
            Boundary::Stopped,
            Boundary::Raised,
            Boundary::Epoch,
            Boundary::Master,
            Boundary::Started,
        ] {
            let case = format!("{why:?}, {boundary:?}");
            let (host, unit) = (host(why).await, Starts::refusing(0));
            let ended = take_back(&host, &unit, Some(boundary)).await.unwrap_err();
            assert!(
                matches!(ended, PromoteError::Ended(at) if at == boundary),
                "{case}: {ended}"
            );
            assert_eq!(unit.has_started(), boundary == Boundary::Started, "{case}");
            take_back(&host, &unit, None).await.unwrap();
            assert!(unit.has_started(), "{case}");
            check_acts(&host, &case).await;
        }
    }
}

/// A promotion whose command was killed while the unit started leaves its note, and the master
/// serves.
#[tokio::test]
async fn the_note_of_an_earlier_promotion_is_not_in_the_way() {
    for why in [Why::Replaced, Why::HandedOver, Why::Isolated] {
        let case = format!("{why:?}");
        let (host, unit) = (host(why).await, Starts::refusing(0));
        let note = host.config.state_dir.join("promotion.json");
        std::fs::write(&note, r#"{"epoch":1}"#).unwrap();
        let promotion = Promotion::new(&host.config, host.directory.path(), &SystemClock, &unit);
        let refused = promotion
            .run(&PromotionRequest::default())
            .await
            .unwrap_err();
        let is_reason = match why {
            Why::Replaced => matches!(refused, PromoteError::Replaced(_)),
            Why::HandedOver => matches!(refused, PromoteError::HandedOver(_)),
            Why::Isolated => matches!(refused, PromoteError::Isolated),
        };
        assert!(is_reason && !unit.has_started(), "{case}: {refused}");
        std::fs::write(&note, r#"{"epoch":1}"#).unwrap();
        let done = take_back(&host, &unit, None).await.unwrap();
        assert!(
            matches!(done, Promoted::Done(epoch) if epoch > 1),
            "{case}: {done:?}"
        );
        assert!(unit.has_started() && !note.exists(), "{case}");
        check_acts(&host, &case).await;
    }
}
