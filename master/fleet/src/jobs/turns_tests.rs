use halite_core::names::minion;
use halite_store::JobStatus;
use serde_json::json;

use super::*;

const NOW: Millis = 1_800_000_000_000;

/// Workers with turns of one master.
struct Workers {
    turns: Turns,
    group: BTreeSet<String>,
    seconds: i64,
}

fn job(number: u64) -> JobId {
    JobId::from_number(number)
}

impl Workers {
    fn new(number: usize) -> Self {
        Self {
            turns: Turns::default(),
            group: (1..=number)
                .map(|number| format!("worker-{number}"))
                .collect(),
            seconds: 0,
        }
    }

    fn ask(&mut self, host: &str, number: u64, budget: Option<usize>) -> TurnAnswer {
        let (host, job) = (minion(host), job(number));
        let question = Question {
            host: &host,
            job: &job,
            group: &self.group,
            budget,
        };
        let steady = Steady(self.seconds * 1000);
        self.turns.ask(&question, NOW, steady)
    }

    fn takes(&mut self, host: &str, number: u64) -> bool {
        self.ask(host, number, Some(1)) == TurnAnswer::Taken
    }

    fn end(&mut self, host: &str, number: u64, end: PartEnd) {
        self.turns.end(&minion(host), &job(number), end);
    }
}

#[test]
fn no_more_hosts_are_out_than_the_budget_allows() {
    for budget in 1..=4 {
        let mut workers = Workers::new(9);
        let mut waiting: Vec<String> = workers.group.iter().cloned().collect();
        let mut out = Vec::new();
        // All ask again after each end, in another order each time.
        while !waiting.is_empty() || !out.is_empty() {
            waiting.reverse();
            let asked = std::mem::take(&mut waiting);
            for name in asked {
                match workers.ask(&name, 1, Some(budget)) {
                    TurnAnswer::Taken => out.push(name),
                    TurnAnswer::Waits(_) => waiting.push(name),
                    TurnAnswer::Refused(because) => panic!("{name}: {because}"),
                }
            }
            assert!(out.len() <= budget, "{out:?}");
            assert!(!out.is_empty(), "nothing continues: {waiting:?}");
            let back = out.remove(0);
            workers.end(&back, 1, PartEnd::Succeeded);
        }
    }
}

#[test]
fn a_repeated_question_gets_the_same_turn() {
    let mut workers = Workers::new(2);
    assert!(workers.takes("worker-1", 1));
    assert!(workers.takes("worker-1", 1));
    assert!(!workers.takes("worker-2", 1));
}

#[test]
fn a_wait_names_the_hosts_that_are_out_and_since_when() {
    let mut workers = Workers::new(8);
    assert!(workers.takes("worker-1", 1));
    assert_eq!(
        workers.ask("worker-2", 1, Some(1)),
        TurnAnswer::Waits("1 of 1 hosts out: worker-1 since 2027-01-15T08:00:00.000Z".into())
    );
    assert_eq!(workers.turns.report(&job(1), Steady(0)), None);
    workers.seconds = 5;
    assert!(!workers.takes("worker-3", 1));
    let (hosts, since) = workers.turns.report(&job(1), Steady(10_000)).unwrap();
    assert_eq!(hosts, ["worker-2", "worker-3"].map(minion));
    assert_eq!(since, Duration::from_secs(10));
    assert_eq!(workers.turns.report(&job(1), Steady(11_000)), None);
    let wait = waiting(&job(1), &hosts, "1 of 1 hosts out: worker-1", since);
    assert_eq!(wait.step, "worker-2, worker-3");
    assert!(wait.remedy.contains("ctl job cancel"), "{wait:?}");
    // No host waits any more.
    workers.end("worker-1", 1, PartEnd::Succeeded);
    workers.end("worker-2", 1, PartEnd::Succeeded);
    assert!(workers.takes("worker-3", 1));
    assert_eq!(workers.turns.report(&job(1), Steady(60_000)), None);
}

#[test]
fn a_host_that_fails_keeps_its_turn_until_the_job_ends() {
    let mut workers = Workers::new(8);
    assert!(workers.takes("worker-1", 1));
    workers.end("worker-1", 1, PartEnd::Failed);
    let TurnAnswer::Refused(because) = workers.ask("worker-2", 1, Some(1)) else {
        panic!("worker-2 may not restart anything")
    };
    assert!(
        because.contains("worker-1 failed after a restart")
            && because.contains("run the command again"),
        "{because}"
    );
    // One of two: the others continue with the rest of the budget.
    assert_eq!(workers.ask("worker-2", 1, Some(2)), TurnAnswer::Taken);
    let waits = workers.ask("worker-3", 1, Some(2));
    let TurnAnswer::Waits(because) = &waits else {
        panic!("{waits:?}")
    };
    assert!(
        because.contains("worker-1, which failed, since"),
        "{because}"
    );
    // Another job does not wait for the failed one: that may be in the queue behind it on this
    // host.
    assert!(!workers.takes("worker-4", 2));
    workers.end("worker-2", 1, PartEnd::Succeeded);
    assert!(workers.takes("worker-4", 2));
    workers.end("worker-4", 2, PartEnd::Succeeded);
    // The end of the job ends the turn of the failed host.
    workers.turns.retain_open(|open| *open == job(2));
    assert!(workers.takes("worker-4", 2));
}

#[test]
fn a_host_that_fails_without_a_turn_takes_none() {
    let mut workers = Workers::new(8);
    workers.end("worker-1", 1, PartEnd::Failed);
    assert!(workers.takes("worker-2", 1));
}

#[test]
fn jobs_share_one_budget_and_a_step_of_a_run_counts_without_waiting() {
    let mut workers = Workers::new(8);
    assert!(workers.takes("worker-1", 1));
    assert!(!workers.takes("worker-2", 2));
    assert_eq!(workers.ask("worker-3", 3, None), TurnAnswer::Taken);
    workers.end("worker-1", 1, PartEnd::Succeeded);
    assert!(!workers.takes("worker-2", 2));
    workers.end("worker-3", 3, PartEnd::Succeeded);
    assert!(workers.takes("worker-2", 2));
}

#[test]
fn after_a_restart_a_host_counts_as_out_until_it_asks_or_ends() {
    let mut workers = Workers::new(8);
    for host in ["worker-1", "worker-2", "cp-1"] {
        workers.turns.presume(&minion(host), &job(1), NOW);
    }
    // A host that asks has no turn; hosts outside the group do not count.
    assert!(!workers.takes("worker-1", 1));
    assert!(workers.takes("worker-2", 1));
    workers.end("worker-2", 1, PartEnd::Succeeded);
    assert!(workers.takes("worker-1", 1));
    // A known turn is not forgotten when its host connects again.
    workers.turns.presume(&minion("worker-1"), &job(1), NOW);
    assert!(workers.takes("worker-1", 1));
}

#[test]
fn a_test_run_restarts_nothing_and_a_step_has_its_own_batches() {
    let with = |function: &str, test: bool, operator: &str, args: Value| Job {
        job_id: job(1),
        function: function.to_owned(),
        args_json: args.to_string(),
        test,
        operator: operator.to_owned(),
        target: "*".to_owned(),
        minions: Vec::new(),
        order: Vec::new(),
        created: 0,
        deadline: None,
        steady_deadline: None,
        request_id: None,
        status: JobStatus::Running,
        retcode: None,
        finished: None,
        bundle: None,
    };
    assert!(may_restart(&with(
        "state.highstate",
        false,
        "root",
        json!({})
    )));
    assert!(may_restart(&with(
        "state.certificates",
        false,
        "root",
        json!({})
    )));
    assert!(!may_restart(&with(
        "state.highstate",
        true,
        "root",
        json!({})
    )));
    assert!(!may_restart(&with("test.ping", false, "root", json!({}))));
    let step = with(
        "state.highstate",
        false,
        "run:20261121000000000001",
        json!({}),
    );
    let [usual, all] = [
        DeclaredBatch::default(),
        DeclaredBatch::Text("100%".to_owned()),
    ];
    assert_eq!(budget(&step, 8, &usual), None);
    let mine = |args: Value, declared: &DeclaredBatch| {
        let job = with("state.highstate", false, "root", args);
        budget(&job, 8, declared)
    };
    assert_eq!(mine(json!({}), &usual), Some(2));
    assert_eq!(mine(json!({}), &DeclaredBatch::Number(3)), Some(3));
    assert_eq!(mine(json!({}), &all), Some(8));
    assert_eq!(
        mine(json!({"batch": "50%"}), &DeclaredBatch::Number(3)),
        Some(4)
    );
}
