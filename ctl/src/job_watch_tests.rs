use halite_api::{JobEnded, PartState};
use serde_json::{Map, Value, json};

use super::*;
use crate::output::Format;

fn id(number: u64) -> JobId {
    JobId::from_number(number)
}

fn minion(name: &str) -> MinionId {
    name.parse().unwrap()
}

fn event(data: &EventData, last: bool) -> v1::Event {
    v1::Event {
        tag: data.tag().unwrap(),
        data_json: data.to_text(),
        last,
        ..v1::Event::default()
    }
}

fn wait(hosts: &[&str], because: &str) -> StepWait {
    StepWait {
        job: Some(id(1)),
        step: hosts.join(", "),
        hosts: hosts.iter().map(|host| minion(host)).collect(),
        until: "it is free".to_owned(),
        because: because.to_owned(),
        seconds: 10,
        ..StepWait::default()
    }
}

fn returned(job: u64, retcode: i32, answer: Value, error: Option<&str>) -> PartReturned {
    let answer = (!answer.is_null()).then_some(MinionAnswer(answer));
    let state = match error {
        Some(_) => PartState::Lost,
        None => PartState::Returned,
    };
    let error = error.map(str::to_owned);
    PartReturned::new((id(job), minion("w")), state, retcode, answer, error)
}

fn ret(part: PartReturned) -> v1::Event {
    event(&EventData::PartReturned(Box::new(part)), false)
}

fn done(job: u64) -> v1::Event {
    let data = JobEnded {
        job: id(job),
        retcode: 0,
        succeeded: vec![minion("w")],
        failed: Vec::new(),
        lost: Vec::new(),
    };
    event(&EventData::JobEnded(data), true)
}

fn state(id: &str, result: bool, is_changed: bool) -> StateReturn {
    let changes = is_changed.then(|| ("diff".to_owned(), json!("x")));
    StateReturn {
        index: 0,
        id: id.to_owned(),
        name: id.to_owned(),
        function: "file.managed".to_owned(),
        sls: "s".to_owned(),
        result: Some(result),
        changes: Map::from_iter(changes),
        comment: String::new(),
        start_time: String::new(),
        duration: 1.0,
        run_num: 0,
        ran: true,
        fail_run: true,
    }
}

fn run(states: Vec<StateReturn>) -> Value {
    serde_json::to_value(RunReturn { states }).unwrap()
}

#[test]
fn a_wait_has_its_usual_time_and_a_remedy_if_there_are_any() {
    let mut turn = StepWait {
        step: "turn".to_owned(),
        ..wait(&[], "a holds it")
    };
    assert_eq!(
        waiting(&turn),
        "turn: waiting for 10 s until it is free: a holds it"
    );
    turn.usual = Some(4);
    turn.remedy = "look there".to_owned();
    assert_eq!(
        waiting(&turn),
        "turn: waiting for 10 s (usually 4 s here) until it is free: a holds it; look there"
    );
}

fn take(watch: &mut JobWatch, event: &v1::Event, screen: &mut Screen) -> bool {
    watch.take(event, screen, &mut |_, _, _| {})
}

#[test]
fn a_job_is_collected_from_its_events() {
    let mut screen = Screen::new(Format::Json);
    let mut watch = JobWatch::default();
    let data = StateProgress {
        job: id(1),
        minion: minion("w"),
        index: 0,
        total: 2,
        state: Some(state("/etc/x", true, false)),
    };
    assert_eq!(progress(&data), "w  1/2  file.managed /etc/x");
    let data = EventData::StateProgress(Box::new(data));
    assert!(!take(&mut watch, &event(&data, false), &mut screen));
    let part = returned(1, 0, run(Vec::new()), None);
    assert!(!take(&mut watch, &ret(part), &mut screen));
    assert!(take(&mut watch, &done(1), &mut screen));
    let outcome = job_outcome(&watch.done, true);
    assert_eq!(outcome.changed, Some(0));
    assert_eq!(outcome.job, Some(id(1)));
    assert_eq!(outcome.minions.get("w").unwrap().total, Some(0));
}

#[test]
fn a_wait_for_hosts_is_printed_once_for_each_reason() {
    let mut watch = JobWatch::default();
    let mut is_news = |host: &str, because: &str| {
        let wait = StepWait {
            step: host.to_owned(),
            ..wait(&[], because)
        };
        watch.is_news(&wait)
    };
    assert!(is_news("w1", "the job runs"));
    // The reports of two hosts alternate.
    assert!(is_news("w2", "the job runs"));
    assert!(!is_news("w1", "the job runs"));
    assert!(is_news("w1", "w1 is not connected"));
    assert!(is_news("w1", "the job runs"));
    // Some of the hosts that are reported together return, or their number grows.
    let mut of_hosts = |hosts: &[&str], because: &str| watch.is_news(&wait(hosts, because));
    assert!(of_hosts(&["a", "b", "c"], "the job runs"));
    assert!(!of_hosts(&["a", "c"], "the job runs"));
    assert!(of_hosts(&["a", "c", "d"], "the job runs"));
    assert!(of_hosts(&["a", "c"], "another reason"));
}

#[test]
fn a_wait_is_not_part_of_the_document() {
    let mut screen = Screen::new(Format::Json);
    let mut watch = JobWatch::default();
    let data = EventData::Wait(wait(&["w"], "it hangs"));
    assert!(!take(&mut watch, &event(&data, false), &mut screen));
    let empty = JobOutcome {
        job: Some(id(1)),
        ..JobOutcome::default()
    };
    assert_eq!(job_outcome(&watch.done, false), empty);
}

#[test]
fn hosts_repaired_in_parallel_are_in_the_report() {
    let mut screen = Screen::new(Format::Json);
    let mut watch = JobWatch::default();
    let repair = ParallelRepair {
        job: id(1),
        hosts: vec![minion("cp-1"), minion("cp-2")],
        because: "etcd has no quorum and is repaired without waiting: cp-2 does not answer"
            .to_owned(),
    };
    assert_eq!(
        parallel_repair(&repair),
        "etcd has no quorum and is repaired without waiting: cp-2 does not answer; repaired in parallel: cp-1, cp-2"
    );
    let data = EventData::ParallelRepair(repair.clone());
    assert!(!take(&mut watch, &event(&data, false), &mut screen));
    let outcome = job_outcome(&watch.done, true);
    assert_eq!(outcome.parallel_repair, Some(repair));
}

#[test]
fn a_return_without_states_is_shown_as_it_is() {
    let mut screen = Screen::new(Format::Json);
    let mut watch = JobWatch::default();
    take(
        &mut watch,
        &ret(returned(1, 0, json!(true), None)),
        &mut screen,
    );
    assert!(take(&mut watch, &done(1), &mut screen));
    let outcome = job_outcome(&watch.done, false);
    let answer = outcome.minions.get("w").unwrap().answer.clone();
    assert_eq!(answer, Some(MinionAnswer(json!(true))));
    assert_eq!(outcome.states, None);
}

#[test]
fn what_the_update_of_a_minion_changed_is_in_the_report_of_the_highstate() {
    let mut screen = Screen::new(Format::Json);
    let mut watch = JobWatch::default();
    let mut ret = |job: u64, states: Vec<StateReturn>| {
        let event = ret(returned(job, 0, run(states), None));
        take(&mut watch, &event, &mut screen)
    };
    let first = vec![
        state("program", true, true),
        state("same", true, false),
        state("bad", false, true),
    ];
    // Repeated, after the connection broke.
    assert!(!ret(1, first.clone()) && !ret(1, first));
    assert!(!ret(2, vec![state("program", true, false)]));
    let update = MinionUpdate {
        job: id(1),
        hosts: vec![minion("w")],
        because: "it is another program".to_owned(),
        then: "it is updated first".to_owned(),
    };
    assert_eq!(
        minion_update(&update),
        "w: it is another program; it is updated first"
    );
    let update = EventData::MinionUpdate(update);
    for _ in 0..2 {
        take(&mut watch, &event(&update, false), &mut screen);
    }
    take(&mut watch, &done(2), &mut screen);
    let outcome = job_outcome(&watch.done, true);
    assert_eq!((outcome.changed, outcome.failed), (Some(1), Some(0)));
    assert_eq!((outcome.states, outcome.job), (Some(2), Some(id(2))));
    assert_eq!(outcome.minion_updates.len(), 1);
}

#[test]
fn failures_name_the_state_that_failed_itself() {
    let failed = |name: &str, ran: bool, comment: &str| StateReturn {
        comment: comment.to_owned(),
        ran,
        ..state(name, false, false)
    };
    let states = run(vec![
        failed("a", true, "no such package"),
        failed("b", false, "requisite failed"),
    ]);
    assert_eq!(
        failures(returned(1, 1, states, None)),
        ["w: file.managed a (s): no such package"]
    );
    let lost = returned(1, 1, Value::Null, Some("not connected"));
    assert_eq!(failures(lost), ["w: not connected"]);
}
