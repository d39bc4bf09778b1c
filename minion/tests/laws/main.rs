//! The law "the plan is the result" over a table of inputs, on the fake host.
//!
//! For each input: the start, the plan, the result, which has the changes of the plan where the
//! plan can know them, and a second check, which must be empty. The answers are in `answers.json`;
//! the suite `laws` of the lab compares a real host's answers with them. So both hosts get the same
//! inputs and must give the same answers.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test's panic is its report"
)]

mod shell;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use halite_golden::check_golden;
use halite_minion::host::overlay::KNOWN_AFTER_APPLY;
use halite_minion::host::{Group, MountPoint, User};
use halite_minion::journal::Directory;
use halite_minion::modules;
use halite_minion::pending_triggers::PendingTriggers;
use halite_minion::runner::Runner;
use halite_minion_fake::FakeHost;
use halite_minion_fake::disk::Node;
use halite_states::compile::{Compiled, Input, sls};
use halite_states::engine::RunOptions;
use halite_states::low::RunReturn;
use halite_states::run::run;
use halite_states::tree::{DirTree, MemoryTree};
use serde_json::{Value, json};

/// The keys of a return that are not compared, with the reason.
const LEFT_OUT: [(&str, &str); 2] = [
    ("start_time", "the clock of the host"),
    ("duration", "the speed of the host"),
];

/// Functions without an input, with the reason.
const WITHOUT_AN_INPUT: [(&str, &str); 14] = [
    ("etcd.data", "a bare host has no etcd"),
    ("etcd.founded", "a bare host has no etcd"),
    ("etcd.joined", "a bare host has no etcd"),
    ("etcd.recorded", "a bare host has no etcd"),
    ("firewalld.ipsets", "a bare host has no firewalld"),
    ("firewalld.owned", "a bare host has no firewalld"),
    ("firewalld.policy", "a bare host has no firewalld"),
    ("firewalld.zone", "a bare host has no firewalld"),
    ("image.present", "a bare host has no containerd"),
    ("kubeconfig.managed", "only a master signs certificates"),
    ("pkgrepo.managed", "a bare host reaches no repository"),
    ("static_pod.running", "a bare host has no kubelet"),
    ("unit.ready", "a bare host has no etcd"),
    ("x509.certificate", "only a master signs certificates"),
];

/// Groups of Debian that the table names.
const GROUPS: [(&str, u32); 4] = [("daemon", 1), ("adm", 4), ("staff", 50), ("users", 100)];

/// Kernel parameters that the table names, with any values: the table sets them first.
const PARAMETERS: [&str; 4] = [
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
];

fn directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/laws"))
}

/// A fake host like a bare host of the lab, as far as the table sees it.
fn bare_host() -> FakeHost {
    let host = FakeHost::new();
    let mut state = host.state();
    state.hook = Some(shell::run);
    state.disk.put("/srv/law", Node::directory());
    state.disk.put("/home", Node::directory());
    state.put_file(
        "/etc/hosts",
        b"127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
    );
    state.put_file("/etc/fstab", b"# UNCONFIGURED FSTAB FOR BASE SYSTEM\n");
    state.put_file("/etc/apt/sources.list", b"");
    for (name, gid) in GROUPS {
        let group = Group {
            name: name.to_owned(),
            gid,
            members: Vec::new(),
        };
        state.accounts.groups.insert(name.to_owned(), Some(group));
    }
    let daemon = User {
        name: "daemon".to_owned(),
        uid: 1,
        gid: 1,
        home: "/usr/sbin".to_owned(),
        shell: "/usr/sbin/nologin".to_owned(),
        gecos: "daemon".to_owned(),
        groups: Vec::new(),
    };
    state
        .accounts
        .users
        .insert("daemon".to_owned(), Some(daemon));
    for parameter in PARAMETERS {
        state.put_sysctl(parameter, "0");
    }
    state.modules.insert("overlay".to_owned());
    for (package, version) in [("dpkg", "1.21.22"), ("tar", "1.34+dfsg-1.2")] {
        state
            .packages
            .insert(package.to_owned(), version.to_owned());
    }
    state.mounts.push(MountPoint {
        device: "overlay".to_owned(),
        root: "/".to_owned(),
        path: "/".to_owned(),
        fstype: "overlay".to_owned(),
        options: "rw,relatime".to_owned(),
    });
    drop(state);
    host
}

fn compile(states: &str) -> Compiled {
    let own = MemoryTree::new().with("input.sls", states);
    let tree = DirTree::new()
        .root(directory().join("tree"))
        .with_fallback(own);
    let (pillar, grains) = (json!({}), json!({}));
    let input = Input {
        tree: &tree,
        minion: "law-1",
        pillar: &pillar,
        grains: &grains,
        bundle: &|_| None,
    };
    sls(&input, &["input".to_owned()]).unwrap_or_else(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        panic!("{}\n{states}", problems.join("\n"))
    })
}

/// A run of states as `ctl local apply` makes it.
async fn apply(
    host: &FakeHost,
    records: &Directory,
    compiled: &Compiled,
    options: RunOptions,
) -> RunReturn {
    let pending = PendingTriggers::open(records.clone()).unwrap();
    let runner = Runner::new(host).with_pending(Some(pending));
    run(&compiled.low, &runner, options, |_| {}).await
}

/// The returns of a run without the keys that are not compared.
fn normal(returned: &RunReturn) -> Vec<Value> {
    let mut states = Vec::new();
    for state in &returned.states {
        let mut state = serde_json::to_value(state).unwrap();
        let keys = state.as_object_mut().unwrap();
        for (key, _) in LEFT_OUT {
            keys.remove(key);
        }
        states.push(state);
    }
    states
}

/// The answers of the fake host to an input; a text if they break the law.
async fn answers(
    host: &FakeHost,
    records: &Directory,
    input: &table::Input,
    functions: &mut BTreeSet<String>,
) -> (Value, Option<String>) {
    let mut started = Vec::new();
    if let Some(start) = &input.start {
        let compiled = compile(start);
        host.state().blobs.extend(compiled.blobs.clone());
        let returned = apply(host, records, &compiled, RunOptions::default()).await;
        started = returned.states.iter().map(|state| state.result).collect();
    }
    let compiled = compile(&input.states);
    host.state().blobs.extend(compiled.blobs.clone());
    functions.extend(compiled.low.chunks.iter().map(|chunk| chunk.function()));
    let test = RunOptions { test: true };
    let plan = apply(host, records, &compiled, test).await;
    let result = apply(host, records, &compiled, RunOptions::default()).await;
    let second = apply(host, records, &compiled, test).await;
    let broken = broken(input, &plan, &result, &second);
    let broken = broken.map(|reason| format!("{}: {reason}", input.name));
    let answers = json!({
        "name": input.name,
        "start": input.start,
        "states": input.states,
        "started": started,
        "plan": normal(&plan),
        "result": normal(&result),
        "second": normal(&second),
    });
    (answers, broken)
}

/// The reason why the answers break the law, if they do.
fn broken(
    input: &table::Input,
    plan: &RunReturn,
    result: &RunReturn,
    second: &RunReturn,
) -> Option<String> {
    let changed = second.changed() > 0;
    match &input.repeats {
        None if changed => {
            let (done, states) = (json!(result.states), json!(second.states));
            return Some(format!(
                "the result is\n{done:#}\nand the second check finds changes:\n{states:#}"
            ));
        }
        Some(_) if !changed => return Some("the second check is empty".to_owned()),
        _ => {}
    }
    if plan.states.len() != result.states.len() {
        return Some("plan and result have another number of states".to_owned());
    }
    // After a command, and after a failure, the plan does not know the host.
    let mut is_open = false;
    for (planned, done) in plan.states.iter().zip(&result.states) {
        is_open |= planned.function.starts_with("cmd.") || done.result == Some(false);
        let is_known = !is_open && !planned.comment.contains(KNOWN_AFTER_APPLY);
        if is_known && planned.changes != done.changes {
            let (planned, done) = (json!(planned), json!(done));
            return Some(format!(
                "the plan is\n{planned:#}\nand the result is\n{done:#}"
            ));
        }
    }
    None
}

#[test]
fn the_plan_is_the_result_and_the_answers_are_those_that_a_real_host_must_give() {
    let inputs = table::read(directory());
    assert!(inputs.len() >= 60, "only {} inputs", inputs.len());
    let names: BTreeSet<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    assert_eq!(names.len(), inputs.len(), "two inputs have one name");
    let records = tempfile::tempdir().unwrap();
    let records = Directory(records.path().join("pending-triggers"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let host = bare_host();
    let (mut all, mut broken, mut functions) = (Vec::new(), Vec::new(), BTreeSet::new());
    for input in &inputs {
        let (answers, reason) = runtime.block_on(answers(&host, &records, input, &mut functions));
        all.push(answers);
        broken.extend(reason);
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    has_every_function(&functions);
    let left_out: BTreeMap<&str, &str> = LEFT_OUT.into();
    let golden = json!({"left_out": left_out, "inputs": all});
    check_golden(&directory().join("answers.json"), &format!("{golden:#}\n"));
}

/// Fails unless each function has an input or a reason.
fn has_every_function(used: &BTreeSet<String>) {
    let without: BTreeSet<&str> = WITHOUT_AN_INPUT.iter().map(|(name, _)| *name).collect();
    for function in modules::functions() {
        let name = format!("{}.{}", function.name.0, function.name.1);
        assert!(
            used.contains(&name) != without.contains(name.as_str()),
            "{name} needs an input, or a reason in WITHOUT_AN_INPUT, and not both"
        );
    }
}
