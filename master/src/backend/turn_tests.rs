//! Turns of the hosts of a job that restarts services.

use halite_core::event_stream::EventStream;
use halite_core::names::minion;
use halite_fleet::jobs::TurnAnswer;
use halite_proto::v1;
use halite_proto::v1::minion_message::Body as ToMaster;
use serde_json::{Value, json};

use super::fixture::{Life, Site};
use super::wire::Wire;

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*-1':\n    - host\n"),
    (
        "host.sls",
        "motd:\n  file.managed:\n    - name: /etc/motd\n    - contents: welcome\n",
    ),
];
const WORKERS: [&str; 3] = ["worker-1", "worker-2", "worker-3"];

/// A control plane and three workers, of which one may be out at a time.
fn site() -> Site {
    let site = Site::new(TREE);
    for (number, name) in WORKERS.iter().enumerate().skip(1) {
        let document = format!(
            "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [worker]\naddress: 10.10.1.{}\n",
            100 + number
        );
        let path = site.path().join(format!("etc/nodes/{name}.yaml"));
        std::fs::write(path, document).unwrap();
    }
    site
}

/// Starts a job on all hosts, with the declared budget if `batch` is null.
fn start(life: &Life, batch: Value, test: bool) -> EventStream {
    let mut args = json!({"sls": ["host"]});
    if !batch.is_null() {
        args["batch"] = batch;
    }
    let request = v1::RunRequest {
        target: "*-*".into(),
        function: "state.apply".into(),
        args_json: args.to_string(),
        test,
        ..v1::RunRequest::default()
    };
    life.runtime
        .block_on(life.backend.run("root", request))
        .unwrap()
}

fn ask(life: &Life, host: &str, job: &str) -> TurnAnswer {
    let (host, job) = (minion(host), job.parse().unwrap());
    let asked = life.backend.take_turn(&host, &job, "kubelet.service");
    life.runtime.block_on(asked).unwrap()
}

fn has_to_wait_for(answer: &TurnAnswer, host: &str) -> bool {
    matches!(answer, TurnAnswer::Waits(because) if because.contains(host))
}

#[test]
fn hosts_restart_services_one_after_the_other_until_one_fails() {
    let site = site();
    let life = site.live();
    let mut plane = Wire::connect(&life, "bootstrap-1");
    let mut workers = WORKERS.map(|name| Wire::connect(&life, name));
    let _stream = start(&life, json!("25%"), false);
    let job = plane.job();
    for worker in &mut workers {
        worker.job();
    }
    assert_eq!(ask(&life, "worker-1", &job), TurnAnswer::Taken);
    assert!(has_to_wait_for(&ask(&life, "worker-2", &job), "worker-1"));
    assert!(has_to_wait_for(&ask(&life, "worker-3", &job), "worker-1"));
    // The order of control planes is another one.
    assert_eq!(ask(&life, "bootstrap-1", &job), TurnAnswer::Taken);

    workers[0].say(ToMaster::Returned(v1::JobReturn {
        job: job.clone(),
        retcode: 0,
        return_json: "null".into(),
        error: String::new(),
    }));
    assert_eq!(ask(&life, "worker-3", &job), TurnAnswer::Taken);
    assert!(has_to_wait_for(&ask(&life, "worker-2", &job), "worker-3"));
    workers[2].returns(&job, "containerd does not start");
    let answer = ask(&life, "worker-2", &job);
    assert!(
        matches!(&answer, TurnAnswer::Refused(because) if because.contains("worker-3 failed")),
        "{answer:?}"
    );
    let (host, job) = (minion("worker-1"), job.parse().unwrap());
    let late = life.backend.take_turn(&host, &job, "kubelet.service");
    let refusal = life.runtime.block_on(late).unwrap_err();
    assert!(refusal.message.contains("no open part"), "{refusal}");
}

#[test]
fn a_test_run_takes_no_turn_and_a_larger_budget_is_given_by_the_job() {
    let site = site();
    let life = site.live();
    let mut workers = WORKERS.map(|name| Wire::connect(&life, name));
    let stream = start(&life, json!("25%"), true);
    let jobs = workers.each_mut().map(Wire::job);
    for name in WORKERS {
        assert_eq!(ask(&life, name, &jobs[0]), TurnAnswer::Taken);
    }
    drop(stream);
    for worker in &workers {
        worker.returns(&jobs[0], "over");
    }
    let _stream = start(&life, json!(2), false);
    let jobs = workers.each_mut().map(Wire::job);
    assert_eq!(ask(&life, "worker-1", &jobs[0]), TurnAnswer::Taken);
    assert_eq!(ask(&life, "worker-2", &jobs[0]), TurnAnswer::Taken);
    assert!(has_to_wait_for(
        &ask(&life, "worker-3", &jobs[0]),
        "worker-2"
    ));
}

#[test]
fn the_cluster_document_declares_the_budget() {
    let site = site();
    let path = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, format!("{text}upgrade: {{batch: 2}}\n")).unwrap();
    let life = site.live();
    let mut workers = WORKERS.map(|name| Wire::connect(&life, name));
    let _stream = start(&life, Value::Null, false);
    let jobs = workers.each_mut().map(Wire::job);
    assert_eq!(ask(&life, "worker-1", &jobs[0]), TurnAnswer::Taken);
    assert_eq!(ask(&life, "worker-2", &jobs[0]), TurnAnswer::Taken);
    assert!(has_to_wait_for(
        &ask(&life, "worker-3", &jobs[0]),
        "worker-2"
    ));
}

#[test]
fn a_host_stays_out_over_a_restart_of_the_master() {
    let site = site();
    let life = site.live();
    let mut workers = WORKERS.map(|name| Wire::connect(&life, name));
    let stream = start(&life, json!("25%"), false);
    let job = workers.each_mut().map(Wire::job)[0].clone();
    assert_eq!(ask(&life, "worker-1", &job), TurnAnswer::Taken);
    drop((stream, workers));
    life.kill();

    let life = site.live();
    let _workers = WORKERS.map(|name| Wire::with_jobs(&life, name, &[&job], &[]));
    assert!(has_to_wait_for(
        &ask(&life, "worker-2", &job),
        "worker-1, which may restart services"
    ));
    assert!(has_to_wait_for(&ask(&life, "worker-3", &job), "worker-1"));
    // Its first answer was lost with the previous master.
    assert_eq!(ask(&life, "worker-1", &job), TurnAnswer::Taken);
    assert!(has_to_wait_for(&ask(&life, "worker-2", &job), "worker-1"));
}

#[test]
fn a_budget_that_is_not_understood_is_refused() {
    let site = site();
    let life = site.live();
    let request = v1::RunRequest {
        function: "state.highstate".into(),
        args_json: json!({"batch": "half"}).to_string(),
        ..v1::RunRequest::default()
    };
    let refused = life.runtime.block_on(life.backend.run("root", request));
    let refusal = refused.err().unwrap();
    assert!(
        refusal
            .message
            .contains("\"half\" is neither a number nor a percentage"),
        "{refusal}"
    );
}
