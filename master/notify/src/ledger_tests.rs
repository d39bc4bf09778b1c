use halite_secrets::SecretText;
use proptest::prelude::*;

use super::*;
use crate::notice::sample;

const SECOND: Millis = 1000;
pub(super) const MINUTE: Millis = 60 * SECOND;
pub(super) const HOUR: Millis = 60 * MINUTE;

fn sink(form: SinkForm) -> SinkTarget {
    SinkTarget {
        name: "ops".to_owned(),
        form,
        url: SecretText::new("https://a.corp"),
        ca: None,
        header: None,
        repeat: 12 * HOUR,
        severity: NoticeSeverity::Warning,
    }
}

pub(super) fn plain() -> SinkTarget {
    sink(SinkForm::Plain)
}

fn away(host: &str) -> Notice {
    sample("minions", host, &format!("the minion on {host} is away"))
}

/// Rounds with the same findings, a minute apart; returns the time after them.
pub(super) fn rounds(ledger: &mut Ledger, count: u32, hosts: &[&str], from: Millis) -> Millis {
    let mut now = from;
    for _ in 0..count {
        let notices = hosts.iter().map(|host| {
            let mut notice = away(host);
            notice.since = now;
            notice
        });
        ledger.observe(notices.collect(), now);
        now += MINUTE;
    }
    now
}

/// The news of a batch: `+host`, `=host`, `-host`.
pub(super) fn words(batch: Option<&Batch>) -> Vec<String> {
    let word = |item: &BatchItem| {
        let sign = match item.news {
            News::New => '+',
            News::Persists => '=',
            News::Resolved(_) => '-',
        };
        format!("{sign}{}", item.notice.host.as_deref().unwrap_or("?"))
    };
    batch.into_iter().flatten().map(word).collect()
}

/// Delivers what is due; returns its news.
pub(super) fn deliver(ledger: &mut Ledger, sink: &SinkTarget, now: Millis) -> Vec<String> {
    let batch = ledger.due(sink, now);
    if let Some(batch) = &batch {
        ledger.delivered(&sink.name, batch, now);
    }
    words(batch.as_ref())
}

/// The ledger of the next master: only its text is there.
pub(super) fn restarted(ledger: &Ledger) -> Ledger {
    Ledger::read(&ledger.text().unwrap()).unwrap()
}

#[test]
fn a_finding_is_sent_once_two_rounds_have_it_and_resolved_once_three_lack_it() {
    let (mut ledger, sink) = (Ledger::default(), plain());
    let now = rounds(&mut ledger, 1, &["cp-1"], 0);
    assert_eq!(ledger.due(&sink, now), None);
    let now = rounds(&mut ledger, 1, &["cp-1"], now);
    let batch = ledger.due(&sink, now).unwrap();
    assert_eq!(words(Some(&batch)), ["+cp-1"]);
    assert_eq!(batch[0].notice.since, 0, "the first round had it");
    assert_eq!(deliver(&mut ledger, &sink, now), ["+cp-1"]);
    assert_eq!(ledger.due(&sink, now + MINUTE), None);
    let now = rounds(&mut ledger, 2, &[], now);
    assert_eq!(ledger.due(&sink, now), None);
    let after = rounds(&mut ledger, 1, &[], now);
    let batch = ledger.due(&sink, after).unwrap();
    assert_eq!(batch[0].news, News::Resolved(now));
    assert_eq!(deliver(&mut ledger, &sink, after), ["-cp-1"]);
    assert_eq!(ledger.due(&sink, after + HOUR), None);
}

#[test]
fn a_finding_of_one_round_is_not_sent_and_one_that_comes_back_is_not_resolved() {
    let (mut ledger, sink) = (Ledger::default(), plain());
    let mut now = 0;
    for _ in 0..5 {
        now = rounds(&mut ledger, 1, &["cp-1"], now);
        now = rounds(&mut ledger, 1, &[], now);
        assert_eq!(ledger.due(&sink, now), None);
    }
    now = rounds(&mut ledger, 2, &["cp-1"], now);
    assert_eq!(deliver(&mut ledger, &sink, now), ["+cp-1"]);
    for _ in 0..5 {
        now = rounds(&mut ledger, 2, &[], now);
        now = rounds(&mut ledger, 1, &["cp-1"], now);
        assert_eq!(ledger.due(&sink, now), None);
    }
}

#[test]
fn two_findings_of_a_round_that_differ_in_numbers_are_one_and_need_two_rounds() {
    let (mut ledger, sink) = (Ledger::default(), plain());
    let both = || ["a ends in 3 days", "a ends in 4 days"].map(|text| sample("c", "h", text));
    ledger.observe(both().into(), 0);
    assert_eq!(ledger.due(&sink, 0), None);
    ledger.observe(both().into(), MINUTE);
    assert_eq!(deliver(&mut ledger, &sink, MINUTE), ["+h"]);
}

#[test]
fn what_persists_is_repeated_together_at_the_interval_with_its_present_text() {
    let (mut ledger, mut sink) = (Ledger::default(), plain());
    sink.repeat = HOUR;
    let now = rounds(&mut ledger, 2, &["a"], 0);
    assert_eq!(deliver(&mut ledger, &sink, now), ["+a"]);
    let later = rounds(&mut ledger, 2, &["a", "b"], now);
    assert_eq!(deliver(&mut ledger, &sink, later), ["+b"]);
    let mut notice = away("a");
    notice.message.push_str(" 7 h");
    ledger.observe(vec![notice, away("b")], now + HOUR - 1);
    assert_eq!(ledger.due(&sink, now + HOUR - 1), None);
    let batch = ledger.due(&sink, now + HOUR).unwrap();
    let mut found = words(Some(&batch));
    found.sort();
    assert_eq!(found, ["=a", "=b"]);
    assert!(
        batch
            .iter()
            .any(|item| item.notice.message.ends_with("7 h"))
    );
    ledger.delivered("ops", &batch, now + HOUR);
    assert_eq!(ledger.due(&sink, now + 2 * HOUR - 1), None);
}

#[test]
fn an_alertmanager_gets_what_persists_every_five_minutes() {
    let (mut ledger, sink) = (Ledger::default(), sink(SinkForm::Alertmanager));
    let now = rounds(&mut ledger, 2, &["a"], 0);
    assert_eq!(deliver(&mut ledger, &sink, now), ["+a"]);
    assert_eq!(ledger.due(&sink, now + 5 * MINUTE - 1), None);
    assert_eq!(deliver(&mut ledger, &sink, now + 5 * MINUTE), ["=a"]);
}

#[test]
fn a_sink_that_is_down_for_an_hour_is_tried_with_pauses_and_gets_the_difference() {
    let (mut ledger, sink) = (Ledger::default(), plain());
    let now = rounds(&mut ledger, 2, &["a", "b"], 0);
    assert_eq!(deliver(&mut ledger, &sink, now), ["+a", "+b"]);
    let down = rounds(&mut ledger, 3, &["a"], now);
    let mut attempts = 0;
    for second in (0..3600).step_by(5) {
        let now = down + second * SECOND;
        // `c` is a finding in the middle of the hour alone.
        let hosts: &[&str] = match second {
            600..=1200 => &["a", "c", "d"],
            _ => &["a", "d"],
        };
        if second % 60 == 0 {
            rounds(&mut ledger, 1, hosts, now);
        }
        if ledger.due(&sink, now).is_some() {
            attempts += 1;
            ledger.failed("ops", "connection refused", now);
        }
    }
    assert!((12..20).contains(&attempts), "{attempts} attempts");
    let failure = ledger.record("ops").unwrap().failure.clone().unwrap();
    assert_eq!((failure.since, failure.attempts), (down, attempts));
    assert_eq!(ledger.failing().count(), 1);
    // It is back: within the longest pause it gets what it lacks, first in a small request.
    let back = down + HOUR;
    assert!(failure.next <= back + PAUSES.1);
    let next = failure.next.max(back);
    assert_eq!(deliver(&mut ledger, &sink, next), ["-b"]);
    assert_eq!(ledger.failing().count(), 0);
    assert_eq!(deliver(&mut ledger, &sink, next), ["+d"]);
    assert_eq!(ledger.due(&sink, back + HOUR), None);
}

#[test]
fn the_next_master_repeats_nothing_and_resolves_what_the_sink_knows() {
    let (mut ledger, sink) = (Ledger::default(), plain());
    let now = rounds(&mut ledger, 2, &["a", "b"], 0);
    assert_eq!(deliver(&mut ledger, &sink, now), ["+a", "+b"]);
    let mut next = restarted(&ledger);
    assert_eq!(next.due(&sink, now), None, "before its first round");
    let now = rounds(&mut next, 1, &["a"], now);
    assert_eq!(next.due(&sink, now), None);
    let now = rounds(&mut next, 2, &["a"], now);
    assert_eq!(words(next.due(&sink, now).as_ref()), ["-b"]);
    // It ends before the request: the one after it sends the resolution, with its time.
    let ended = next.due(&sink, now).unwrap()[0].news;
    let mut third = restarted(&next);
    let now = rounds(&mut third, 1, &["a"], now + HOUR);
    assert_eq!(third.due(&sink, now).unwrap()[0].news, ended);
    assert_eq!(deliver(&mut third, &sink, now), ["-b"]);
}

#[test]
fn a_sink_gets_the_findings_of_its_severity() {
    let (mut ledger, mut sink) = (Ledger::default(), plain());
    sink.severity = NoticeSeverity::Failure;
    let warning = Notice {
        severity: NoticeSeverity::Warning,
        ..away("w")
    };
    let both = || vec![warning.clone(), away("f")];
    ledger.observe(both(), 0);
    ledger.observe(both(), 1);
    assert_eq!(deliver(&mut ledger, &sink, 1), ["+f"]);
    assert_eq!(ledger.present(NoticeSeverity::Failure), 1);
    assert_eq!(ledger.present(NoticeSeverity::Warning), 2);
    sink.severity = NoticeSeverity::Warning;
    assert_eq!(deliver(&mut ledger, &sink, 2), ["+w"]);
    sink.severity = NoticeSeverity::Failure;
    assert_eq!(deliver(&mut ledger, &sink, 3), ["-w"]);
}

#[test]
fn a_request_has_a_limited_size_and_each_finding_has_its_turn() {
    let (mut ledger, sink) = (Ledger::default(), plain());
    let hosts: Vec<String> = (0..1200).map(|number| format!("host-{number}x")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let now = rounds(&mut ledger, 2, &hosts, 0);
    for _ in 0..MOST / BATCH {
        assert_eq!(deliver(&mut ledger, &sink, now).len(), BATCH);
    }
    assert_eq!(ledger.due(&sink, now), None, "the rest waits for room");
    let later = now + 12 * HOUR;
    for _ in 0..MOST / BATCH {
        assert_eq!(deliver(&mut ledger, &sink, later).len(), BATCH);
    }
    assert_eq!(ledger.due(&sink, later), None);
}

#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    let (mut ledger, sink) = (Ledger::default(), plain());
    let year = 365 * 24 * HOUR;
    rounds(&mut ledger, 2, &["a"], year);
    assert_eq!(deliver(&mut ledger, &sink, year), ["+a"]);
    assert_eq!(deliver(&mut ledger, &sink, 0), ["=a"], "once more");
    assert_eq!(ledger.due(&sink, MINUTE), None);
    rounds(&mut ledger, 2, &["a", "b"], year);
    ledger.failed("ops", "x", year);
    assert_eq!(deliver(&mut ledger, &sink, 2 * MINUTE), ["+b"]);
}

#[test]
fn a_sink_that_is_not_declared_is_forgotten_and_a_new_one_learns_everything() {
    let (mut ledger, sink) = (Ledger::default(), plain());
    let now = rounds(&mut ledger, 2, &["a"], 0);
    assert_eq!(deliver(&mut ledger, &sink, now), ["+a"]);
    let other = SinkTarget {
        name: "chat".to_owned(),
        ..plain()
    };
    ledger.retain(|name| name == "chat");
    assert_eq!(ledger.record("ops"), None);
    assert_eq!(deliver(&mut ledger, &other, now), ["+a"]);
}

#[test]
fn a_finding_without_a_round_resolves_no_other() {
    let (mut ledger, sink) = (Ledger::default(), plain());
    let now = rounds(&mut ledger, 2, &["a"], 0);
    assert_eq!(deliver(&mut ledger, &sink, now), ["+a"]);
    for _ in 0..5 {
        ledger.add(sample("health", "", "the checks do not end"));
    }
    assert_eq!(deliver(&mut ledger, &sink, now), ["+?"]);
    let now = rounds(&mut ledger, 3, &["a"], now);
    assert_eq!(deliver(&mut ledger, &sink, now), ["-?"]);
}

#[test]
fn a_sink_that_failed_and_lacks_nothing_any_more_does_not_count_as_failing() {
    let (mut ledger, sink) = (Ledger::default(), plain());
    let now = rounds(&mut ledger, 2, &["a"], 0);
    ledger.failed("ops", "x", now);
    ledger.settle(&sink, now);
    assert_eq!(ledger.failing().count(), 1);
    let now = rounds(&mut ledger, 3, &[], now);
    ledger.settle(&sink, now);
    assert_eq!(ledger.failing().count(), 0);
    assert_eq!(ledger.due(&sink, now), None);
}

#[test]
fn a_known_finding_that_one_round_has_again_is_not_due_without_end() {
    let (mut ledger, mut sink) = (Ledger::default(), plain());
    sink.repeat = MINUTE;
    let now = rounds(&mut ledger, 2, &["a", "b"], 0);
    assert_eq!(deliver(&mut ledger, &sink, now), ["+a", "+b"]);
    let now = rounds(&mut ledger, 3, &["a"], now);
    let now = rounds(&mut ledger, 1, &["a", "b"], now);
    assert_eq!(deliver(&mut ledger, &sink, now), ["=a"]);
    assert_eq!(ledger.due(&sink, now), None);
}

#[test]
fn the_next_master_sends_only_what_its_own_rounds_have_seen() {
    let (mut ledger, sink) = (Ledger::default(), plain());
    let now = rounds(&mut ledger, 2, &["a"], 0) + 13 * HOUR;
    assert_eq!(deliver(&mut ledger, &sink, 0), ["+a"]);
    let other = SinkTarget {
        name: "chat".to_owned(),
        ..plain()
    };
    let mut next = restarted(&ledger);
    assert_eq!(next.due(&sink, now), None);
    assert_eq!(next.due(&other, now), None);
    let now = rounds(&mut next, 1, &["a"], now);
    assert_eq!(deliver(&mut next, &sink, now), ["=a"]);
    assert_eq!(deliver(&mut next, &other, now), ["+a"]);
}

#[test]
fn without_rounds_only_the_findings_that_a_sink_knows_stay() {
    let (mut ledger, sink) = (Ledger::default(), plain());
    let now = rounds(&mut ledger, 2, &["a"], 0);
    assert_eq!(deliver(&mut ledger, &sink, now), ["+a"]);
    let now = rounds(&mut ledger, 2, &["a", "b"], now);
    ledger.forget_unknown();
    assert_eq!(ledger.present(NoticeSeverity::Warning), 1);
    assert_eq!(ledger.due(&sink, now + 13 * HOUR), None);
    let now = rounds(&mut ledger, 3, &[], now);
    assert_eq!(deliver(&mut ledger, &sink, now), ["-a"]);
}

#[test]
fn a_sink_with_another_address_or_form_is_another_receiver() {
    let (mut ledger, mut sink) = (Ledger::default(), plain());
    let now = rounds(&mut ledger, 2, &["a"], 0);
    assert_eq!(deliver(&mut ledger, &sink, now), ["+a"]);
    // It has no address on record.
    ledger.accept(&sink);
    assert_eq!(ledger.due(&sink, now), None);
    let mut ledger = restarted(&ledger);
    let now = rounds(&mut ledger, 1, &["a"], now);
    ledger.accept(&sink);
    assert_eq!(ledger.due(&sink, now), None);
    sink.url = SecretText::new("https://b.corp");
    ledger.accept(&sink);
    assert_eq!(deliver(&mut ledger, &sink, now), ["+a"]);
    sink.form = SinkForm::Webhook;
    ledger.accept(&sink);
    assert_eq!(deliver(&mut ledger, &sink, now), ["+a"]);
    ledger.accept(&sink);
    assert_eq!(ledger.due(&sink, now), None);
    assert!(!ledger.text().unwrap().contains("b.corp"));
}

#[test]
fn a_request_that_is_refused_becomes_smaller() {
    let (mut ledger, sink) = (Ledger::default(), plain());
    let hosts: Vec<String> = (0..200).map(|number| format!("host-{number}x")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let mut now = rounds(&mut ledger, 2, &hosts, 0);
    for size in [100, 50, 25, 12, 6, 3, 1, 1] {
        assert_eq!(ledger.due(&sink, now).unwrap().len(), size);
        ledger.failed("ops", "it answers 413", now);
        now += PAUSES.1;
    }
    assert_eq!(deliver(&mut ledger, &sink, now).len(), 1);
    assert_eq!(deliver(&mut ledger, &sink, now).len(), BATCH);
    assert_eq!(deliver(&mut ledger, &sink, now).len(), 99);
    assert_eq!(ledger.due(&sink, now), None);
}

#[derive(Debug, Clone)]
enum Act {
    /// Rounds with the findings in this set.
    Rounds(u8, u32),
    Attempt(bool),
    Restart,
    Pass(u32),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (0_u8..32, 1_u32..4).prop_map(|(set, count)| Act::Rounds(set, count)),
        3 => any::<bool>().prop_map(Act::Attempt),
        1 => Just(Act::Restart),
        1 => (0_u32..100_000).prop_map(Act::Pass),
    ];
    prop::collection::vec(act, 0..60)
}

const HOSTS: [&str; 5] = ["a", "b", "c", "d", "e"];

fn hosts(set: u8) -> Vec<&'static str> {
    let all = HOSTS.iter().enumerate();
    all.filter(|(bit, _)| set & (1 << bit) != 0)
        .map(|(_, host)| *host)
        .collect()
}

proptest! {
    /// A receiver that applies each request knows the findings, however often it failed and the
    /// master restarted, and is never notified of what it knows already.
    #[test]
    fn a_receiver_ends_with_the_present_findings(acts in acts(), last in 0_u8..32) {
        let (mut ledger, sink) = (Ledger::default(), plain());
        let mut received = BTreeSet::new();
        let mut now = 0;
        let mut receive = |ledger: &mut Ledger, now: Millis| {
            let batch = ledger.due(&sink, now).unwrap_or_default();
            for item in &batch {
                match item.news {
                    News::New => assert!(received.insert(item.fingerprint.clone())),
                    News::Persists => assert!(received.contains(&item.fingerprint)),
                    News::Resolved(_) => assert!(received.remove(&item.fingerprint)),
                }
            }
            if !batch.is_empty() {
                ledger.delivered("ops", &batch, now);
            }
            received.clone()
        };
        for act in acts {
            match act {
                Act::Rounds(set, count) => now = rounds(&mut ledger, count, &hosts(set), now),
                Act::Attempt(true) => drop(receive(&mut ledger, now)),
                Act::Attempt(false) if ledger.due(&sink, now).is_some() => {
                    ledger.failed("ops", "x", now);
                }
                Act::Attempt(false) => {}
                Act::Restart => ledger = restarted(&ledger),
                Act::Pass(seconds) => now += Millis::from(seconds) * SECOND,
            }
        }
        now = rounds(&mut ledger, 3, &hosts(last), now) + HOUR;
        // A small request after failed attempts, and then the rest.
        receive(&mut ledger, now);
        let known = receive(&mut ledger, now);
        prop_assert_eq!(ledger.due(&sink, now), None);
        let wanted: BTreeSet<String> = hosts(last).iter().map(|host| away(host).fingerprint()).collect();
        prop_assert_eq!(known, wanted);
    }
}
