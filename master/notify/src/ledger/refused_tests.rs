use std::collections::BTreeSet;

use super::*;
use crate::ledger::tests::{HOUR, MINUTE, deliver, plain, restarted, rounds, words};

const REFUSED: &str = "it answers 400 Bad Request";

/// Sends what is due to a sink that refuses requests with the host `bad`; returns the hosts of the
/// requests that it took.
fn exchange(ledger: &mut Ledger, now: Millis) -> Option<Vec<String>> {
    let batch = ledger.due(&plain(), now)?;
    let sent = words(Some(&batch));
    if sent.iter().any(|word| word.ends_with("bad")) {
        ledger.refused("ops", &batch, REFUSED, now);
        return Some(Vec::new());
    }
    ledger.delivered("ops", &batch, now);
    Some(sent)
}

#[test]
fn others_do_not_wait_for_a_finding_that_the_sink_refuses() {
    let mut ledger = Ledger::default();
    let start = rounds(&mut ledger, 2, &["a", "bad", "c", "d"], 0);
    let mut taken = BTreeSet::new();
    let mut now = start;
    while taken.len() < 3 {
        taken.extend(exchange(&mut ledger, now).unwrap_or_default());
        now += 1000;
        assert!(now < start + 5 * MINUTE, "only {taken:?} are taken");
    }
    assert_eq!(Vec::from_iter(taken), ["+a", "+c", "+d"]);
    // It is narrowed down to itself, and the sink does not count as failing for it.
    while ledger.refusing().count() == 0 {
        exchange(&mut ledger, now);
        now += 1000;
        assert!(now < start + 10 * MINUTE, "it is never alone");
    }
    ledger.settle(&plain(), now);
    assert_eq!(ledger.failing().count(), 0);
    let record = ledger.record("ops").unwrap();
    let refused = record.refused().next().unwrap();
    assert_eq!(refused.notice.host.as_deref(), Some("bad"));
    assert_eq!(refused.error, REFUSED);
    // A new finding is sent at once.
    let now = rounds(&mut ledger, 2, &["a", "bad", "c", "d", "e"], now);
    assert_eq!(exchange(&mut ledger, now).unwrap(), ["+e"]);
    // What is refused is tried again, rarely, and also by the next master.
    let mut ledger = restarted(&ledger);
    let begin = rounds(&mut ledger, 1, &["a", "bad", "c", "d", "e"], now);
    let attempts = (0..HOUR / 1000).filter(|second| {
        let sent = exchange(&mut ledger, begin + second * 1000);
        assert!(sent.as_ref().is_none_or(Vec::is_empty), "{sent:?}");
        sent.is_some()
    });
    assert_eq!(attempts.count(), 12);
}

#[test]
fn a_sink_that_takes_what_it_refused_gets_all_of_it() {
    let mut ledger = Ledger::default();
    let mut now = rounds(&mut ledger, 2, &["a", "b"], 0);
    for _ in 0..3 {
        if let Some(batch) = ledger.due(&plain(), now) {
            ledger.refused("ops", &batch, REFUSED, now);
        }
        now += PAUSES.1;
    }
    assert_eq!(ledger.record("ops").unwrap().refused().count(), 2);
    assert_eq!(deliver(&mut ledger, &plain(), now).len(), 1);
    assert_eq!(deliver(&mut ledger, &plain(), now).len(), 1);
    assert_eq!(ledger.refusing().count(), 0);
    assert_eq!(ledger.due(&plain(), now), None);
}

#[test]
fn after_a_test_that_the_sink_took_the_refused_findings_are_sent_at_once() {
    let mut ledger = Ledger::default();
    let now = rounds(&mut ledger, 2, &["a"], 0);
    let batch = ledger.due(&plain(), now).unwrap();
    ledger.refused("ops", &batch, REFUSED, now);
    ledger.settle(&plain(), now);
    assert_eq!(ledger.due(&plain(), now + 1), None);
    ledger.succeeded("ops", now);
    assert_eq!(deliver(&mut ledger, &plain(), now + 1), ["+a"]);
}

#[test]
fn a_refused_finding_that_is_over_and_a_refused_resolution_are_forgotten() {
    let mut ledger = Ledger::default();
    let now = rounds(&mut ledger, 2, &["a"], 0);
    let batch = ledger.due(&plain(), now).unwrap();
    ledger.refused("ops", &batch, REFUSED, now);
    let now = rounds(&mut ledger, 3, &[], now);
    assert_eq!(ledger.refusing().count(), 0);
    assert_eq!(ledger.due(&plain(), now + HOUR), None);

    let now = rounds(&mut ledger, 2, &["b"], now + HOUR);
    assert_eq!(deliver(&mut ledger, &plain(), now), ["+b"]);
    let now = rounds(&mut ledger, 3, &[], now);
    let batch = ledger.due(&plain(), now).unwrap();
    assert_eq!(words(Some(&batch)), ["-b"]);
    ledger.refused("ops", &batch, REFUSED, now);
    assert_eq!(ledger.due(&plain(), now + HOUR), None);
}
