//! The step that moves the virtual address, on minions that report their addresses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use halite_etcd::fake::FakeCluster;
use halite_proto::v1;
use serde_json::json;

use super::fixture;
use crate::backend::fixture::{Journal, Life, ScriptedMinion, Site};

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    (
        "orchestrate/away.sls",
        "away:\n  halite.vip_moved_off:\n    - node: {{ pillar.node }}\n    - timeout: {{ pillar.timeout }}\n",
    ),
    (
        "orchestrate/away_or_off.sls",
        "away:\n  halite.vip_moved_off:\n    - node: {{ pillar.node }}\n    - offline: skip\n    - timeout: {{ pillar.timeout }}\n",
    ),
    (
        "orchestrate/leader.sls",
        "leader:\n  halite.etcd_leader_moved_off:\n    - node: {{ pillar.node }}\n    - timeout: {{ pillar.timeout }}\n",
    ),
    (
        "halite/host/keepalived/aside.sls",
        "vip-elsewhere:\n  file.managed:\n    - name: /vip\n    - contents: x\n",
    ),
];

const VIP: &str = "10.10.0.100";

/// A site with two control planes and a worker.
fn site() -> Site {
    let mut site = Site::new(TREE);
    let cluster = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&cluster).unwrap();
    std::fs::write(&cluster, format!("{text}apiServer: {{vip: {VIP}}}\n")).unwrap();
    let node = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: cp-2}\nroles: [control-plane, etcd]\naddress: 10.10.0.12\n";
    std::fs::write(site.path().join("etc/nodes/cp-2.yaml"), node).unwrap();
    site.servers = vec!["bootstrap-1", "cp-2"];
    site
}

/// A host that has the address while it is the holder. The state that moves it makes `next` the
/// holder.
fn host(
    name: &'static str,
    next: &'static str,
    holder: &Arc<Mutex<&'static str>>,
) -> ScriptedMinion {
    let holder = Arc::clone(holder);
    ScriptedMinion::new(name).on(move |job| {
        let mut holder = holder.lock().unwrap();
        if job.low_json.contains("vip-elsewhere") {
            *holder = next;
        }
        let addresses = if *holder == name {
            vec![VIP]
        } else {
            Vec::new()
        };
        (job.function == "halite.health").then(|| json!({"addresses": addresses}))
    })
}

/// The same host, but no other host takes the address at the first attempt.
fn fails_once(
    name: &'static str,
    next: &'static str,
    holder: &Arc<Mutex<&'static str>>,
) -> ScriptedMinion {
    first_fails(name, next, holder, name)
}

/// The same host, but the first attempt is cut off when another host has taken the address.
fn is_cut_off_once(
    name: &'static str,
    next: &'static str,
    holder: &Arc<Mutex<&'static str>>,
) -> ScriptedMinion {
    first_fails(name, next, holder, next)
}

/// The same host, whose first attempt fails; then `after` has the address.
fn first_fails(
    name: &'static str,
    next: &'static str,
    holder: &Arc<Mutex<&'static str>>,
    after: &'static str,
) -> ScriptedMinion {
    let held = Arc::clone(holder);
    let minion = host(name, next, holder);
    let (journal, moves) = (Arc::clone(&minion.journal), Arc::clone(&minion.host));
    minion.on(move |job| {
        let is_move = job.low_json.contains("vip-elsewhere");
        let is_first = applied_of(&journal) == 0;
        let answer = moves(job);
        if is_move {
            let failing = &mut journal.lock().unwrap().failing;
            failing.clear();
            if is_first {
                failing.insert("vip-elsewhere".to_owned());
                *held.lock().unwrap() = after;
            }
        }
        answer
    })
}

/// The same host, but the address comes back to it after the first move, which succeeded.
fn comes_back_once(
    name: &'static str,
    next: &'static str,
    holder: &Arc<Mutex<&'static str>>,
) -> ScriptedMinion {
    let held = Arc::clone(holder);
    let minion = host(name, next, holder);
    let (journal, moves) = (Arc::clone(&minion.journal), Arc::clone(&minion.host));
    minion.on(move |job| {
        let is_first = applied_of(&journal) == 0;
        let answer = moves(job);
        if is_first && job.low_json.contains("vip-elsewhere") {
            *held.lock().unwrap() = name;
        }
        answer
    })
}

fn move_off(life: &Life, node: &str, timeout: u32) -> (i32, String) {
    run(life, "orchestrate.away", node, timeout)
}

fn run(life: &Life, sls: &str, node: &str, timeout: u32) -> (i32, String) {
    let request = v1::OrchestrateRequest {
        sls: sls.into(),
        pillar_json: json!({"node": node, "timeout": timeout}).to_string(),
        ..Default::default()
    };
    let stream = life
        .runtime
        .block_on(life.backend.orchestrate("root", request));
    let events = life.collect(stream.unwrap());
    let last = events.last().unwrap();
    (last.retcode, last.data_json.clone())
}

fn applied(minion: &ScriptedMinion) -> usize {
    applied_of(&minion.journal)
}

fn applied_of(journal: &Mutex<Journal>) -> usize {
    journal.lock().unwrap().applied.len()
}

#[test]
fn the_address_moves_once_and_from_its_holder_only() {
    let site = site();
    let life = site.live();
    let holder = Arc::new(Mutex::new("bootstrap-1"));
    let first = host("bootstrap-1", "cp-2", &holder);
    let second = host("cp-2", "bootstrap-1", &holder);
    life.connect(&first);
    life.connect(&second);
    for _ in 0..2 {
        let (retcode, data) = move_off(&life, "bootstrap-1", 60);
        assert_eq!(retcode, 0, "{data}");
        assert!(data.contains("cp-2 holds 10.10.0.100"), "{data}");
        assert_eq!((applied(&first), applied(&second)), (1, 0));
    }
    let (retcode, data) = move_off(&life, "worker-1", 60);
    assert_eq!(retcode, 0, "{data}");
    assert!(data.contains("worker-1 has no control plane"), "{data}");
}

/// The master is killed after each event of the step in turn: the address moves once.
#[test]
fn a_move_that_was_killed_at_any_event_is_done_once() {
    for kill_after in 1.. {
        let site = site();
        let holder = Arc::new(Mutex::new("bootstrap-1"));
        let first = host("bootstrap-1", "cp-2", &holder);
        let second = host("cp-2", "bootstrap-1", &holder);
        let life = site.live();
        life.connect(&first);
        life.connect(&second);
        let pillar = json!({"node": "bootstrap-1", "timeout": 60});
        let moving = fixture::request("orchestrate.away", &pillar);
        let ended = fixture::killed(life, moving, kill_after);
        let life = site.live();
        let run = fixture::newest_run(&life);
        life.connect(&first);
        life.connect(&second);
        let (retcode, data) = fixture::resumed(&life, &run);
        assert_eq!(retcode, 0, "killed after {kill_after}: {data}");
        let moves = (applied(&first), applied(&second));
        assert_eq!(moves, (1, 0), "killed after {kill_after}");
        assert_eq!(*holder.lock().unwrap(), "cp-2", "killed after {kill_after}");
        // When another run repeats it, the address is already elsewhere.
        let (retcode, data) = move_off(&life, "bootstrap-1", 60);
        assert_eq!(retcode, 0, "killed after {kill_after}: {data}");
        let moves = (applied(&first), applied(&second));
        assert_eq!(moves, (1, 0), "killed after {kill_after}");
        if ended {
            return;
        }
    }
}

/// etcd's leader moves to the host with the address; without an answer of that host, to the newest
/// member.
#[test]
fn the_host_with_the_address_leads_etcd_next() {
    for (second, leader) in [(true, "cp-2"), (false, "cp-3")] {
        let mut site = site();
        let members = Arc::new(FakeCluster::new(&["bootstrap-1", "cp-2", "cp-3"]));
        site.etcd = Some((members.clone(), Duration::ZERO));
        let life = site.live();
        let holder = Arc::new(Mutex::new("cp-2"));
        life.connect(&host("bootstrap-1", "cp-2", &holder));
        if second {
            life.connect(&host("cp-2", "bootstrap-1", &holder));
        }
        let (retcode, data) = run(&life, "orchestrate.leader", "bootstrap-1", 60);
        assert_eq!(retcode, 0, "{data}");
        assert_eq!(members.leader().as_deref(), Some(leader), "{data}");
    }
}

/// The host gives the address up after the leadership. The one with the highest priority takes it.
#[test]
fn the_host_that_takes_the_address_next_leads_etcd_next() {
    for (priorities, leader) in [([253, 252], "cp-2"), ([252, 253], "cp-3")] {
        let mut site = site();
        for (name, octet, priority) in [("cp-2", 12, priorities[0]), ("cp-3", 13, priorities[1])] {
            let address = format!("10.10.0.{octet}");
            let node = format!(
                "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [control-plane, etcd]\n\
                 resolved:\n  controlPlane: {address}\n  workloadPlane: {address}\n  vrrpPriority: {priority}\n"
            );
            std::fs::write(site.path().join(format!("etc/nodes/{name}.yaml")), node).unwrap();
        }
        let members = Arc::new(FakeCluster::new(&["bootstrap-1", "cp-2", "cp-3"]));
        site.etcd = Some((members.clone(), Duration::ZERO));
        let life = site.live();
        let holder = Arc::new(Mutex::new("bootstrap-1"));
        for name in ["bootstrap-1", "cp-2", "cp-3"] {
            life.connect(&host(name, "cp-2", &holder));
        }
        let (retcode, data) = run(&life, "orchestrate.leader", "bootstrap-1", 60);
        assert_eq!(retcode, 0, "{data}");
        assert_eq!(members.leader().as_deref(), Some(leader), "{data}");
    }
}

#[test]
fn a_host_that_is_off_is_left_out_where_the_step_says_so() {
    let site = site();
    let life = site.live();
    let holder = Arc::new(Mutex::new("bootstrap-1"));
    life.connect(&host("bootstrap-1", "cp-2", &holder));
    let (retcode, data) = run(&life, "orchestrate.away_or_off", "cp-2", 60);
    assert_eq!(retcode, 0, "{data}");
    assert!(
        data.contains("cp-2 is not connected, so it is left out"),
        "{data}"
    );
    let (retcode, data) = move_off(&life, "cp-2", 0);
    assert_eq!(retcode, 1, "{data}");
}

#[test]
fn a_host_that_no_other_can_relieve_keeps_the_address() {
    let mut site = site();
    site.servers = vec!["bootstrap-1"];
    let life = site.live();
    let holder = Arc::new(Mutex::new("bootstrap-1"));
    let first = host("bootstrap-1", "cp-2", &holder);
    life.connect(&first);
    life.connect(&host("cp-2", "bootstrap-1", &holder));
    let (retcode, data) = move_off(&life, "bootstrap-1", 0);
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("no API server except the one on bootstrap-1 is ready"),
        "{data}"
    );
    assert_eq!(applied(&first), 0);
    assert_eq!(*holder.lock().unwrap(), "bootstrap-1");
}

/// Makes a minion of the host that gives up the address, from its name, the next host and the
/// holder.
type Giver = fn(&'static str, &'static str, &Arc<Mutex<&'static str>>) -> ScriptedMinion;

/// Moves the address off a host whose first attempt has no effect: once without time for a second
/// attempt, with the text of the failure, and once with enough time.
fn takes_two_attempts(giver: Giver, failure: &str) {
    for (limit, retcode, text, attempts) in
        [(0, 1, failure, 1), (24, 0, "cp-2 holds 10.10.0.100", 2)]
    {
        let site = site();
        let life = site.live();
        let holder = Arc::new(Mutex::new("bootstrap-1"));
        let first = giver("bootstrap-1", "cp-2", &holder);
        life.connect(&first);
        life.connect(&host("cp-2", "bootstrap-1", &holder));
        let (ended, data) = move_off(&life, "bootstrap-1", limit);
        assert_eq!(ended, retcode, "{data}");
        assert!(data.contains(text), "{data}");
        assert_eq!(applied(&first), attempts, "{data}");
    }
}

/// The other API server may have been slow when keepalived asked it.
#[test]
fn an_address_that_no_host_took_is_moved_again_within_the_limit() {
    takes_two_attempts(fails_once, "it broke");
}

/// It has left keepalived stopped.
#[test]
fn the_states_are_applied_again_after_an_attempt_that_was_cut_off() {
    takes_two_attempts(is_cut_off_once, "it broke");
}

/// The host that took it may have failed at once.
#[test]
fn an_address_that_came_back_is_moved_again_within_the_limit() {
    takes_two_attempts(comes_back_once, "bootstrap-1 has it again");
}

#[test]
fn a_host_that_does_not_answer_is_not_taken_for_one_without_the_address() {
    let site = site();
    let life = site.live();
    let holder = Arc::new(Mutex::new("cp-2"));
    life.connect(&host("cp-2", "bootstrap-1", &holder));
    let (retcode, data) = move_off(&life, "bootstrap-1", 0);
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("bootstrap-1 does not say which addresses it has"),
        "{data}"
    );
}

/// Each host records its priority when it connects; another host changes none of them.
#[test]
fn the_priority_of_a_host_is_recorded_when_it_connects() {
    let site = site();
    let life = site.live();
    let recorded = |name: &str| {
        let path = site.path().join(format!("etc/nodes/{name}.yaml"));
        let text = std::fs::read_to_string(path).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("vrrpPriority: "));
        line.map(str::to_owned)
    };
    life.connect(&ScriptedMinion::new("bootstrap-1"));
    assert_eq!(recorded("bootstrap-1").as_deref(), Some("254"));
    assert_eq!(recorded("cp-2"), None);
    life.connect(&ScriptedMinion::new("worker-1"));
    assert_eq!(recorded("worker-1"), None);
}
