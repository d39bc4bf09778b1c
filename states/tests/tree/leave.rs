//! Hosts that leave the cluster: the steps, and what is removed from a host.

use halite_states::compile;
use halite_states::compile::Compiled;
use halite_states::low::Chunk;
use serde_json::{Value, json};

use crate::support;
use crate::support::{assert_chain, fixture, golden, highstate, sure, with};

/// The states of `halite.leave`.
const LEAVE: [&str; 8] = [
    "mounts",
    "data_mounts",
    "host",
    "data",
    "minion",
    "address",
    "control_plane",
    "packages",
];

fn remove(pillar: &Value, grains: &Value) -> Compiled {
    sure(with(pillar, grains, |i| {
        compile::step(i, &["halite.orchestrate.remove_node".to_owned()])
    }))
}

/// The states by which a host of a fixture leaves.
fn leaving(fixture_name: &str) -> Vec<Chunk> {
    let (pillar, grains) = fixture(fixture_name);
    let compiled = LEAVE.map(|sls| {
        let sls = [format!("halite.leave.{sls}")];
        sure(with(&pillar, &grains, |i| compile::step(i, &sls)))
    });
    let chunks = compiled.into_iter().map(|one| one.low.chunks);
    chunks.flatten().collect()
}

fn steps(compiled: &Compiled) -> Vec<&str> {
    let chunks = compiled.low.chunks.iter();
    chunks.map(|chunk| chunk.id.as_str()).collect()
}

#[test]
fn a_removal_has_the_steps_that_the_host_needs_each_after_the_previous_one() {
    let (mut pillar, grains) = fixture("master");
    pillar["node"] = json!("worker-1");
    let worker = remove(&pillar, &grains);
    assert_chain(&worker);
    let mut text = support::steps("remove_node, worker", &worker);

    // A host that is lost is not contacted, and is cut off first.
    pillar["dead"] = json!(true);
    pillar["keep"] = json!(true);
    pillar["halite"]["nodes"]["worker-1"]["roles"] = json!(["control-plane", "etcd"]);
    let dead = remove(&pillar, &grains);
    let target = |chunk: &Chunk| chunk.args.get("tgt").and_then(Value::as_str) == Some("worker-1");
    assert!(!dead.low.chunks.iter().any(target));
    let at = |id: &str| steps(&dead).iter().position(|step| *step == id).unwrap();
    assert!(at("fenced") < at("member") && at("fenced") < at("node"));
    text += &support::steps("remove_node, control-plane etcd, dead and kept", &dead);

    pillar["dead"] = json!(false);
    pillar["keep"] = json!(false);
    let plane = remove(&pillar, &grains);
    let missing = |id: &&&str| !steps(&plane).contains(id);
    let steps_of_worker = steps(&worker);
    assert_eq!(
        steps_of_worker.iter().find(missing),
        None,
        "a worker has it"
    );
    text += &support::steps("remove_node, control-plane etcd", &plane);

    // The document was removed in an earlier, interrupted run: the remaining steps do not contact
    // the host.
    pillar["halite"]["nodes"]
        .as_object_mut()
        .unwrap()
        .remove("worker-1");
    let rest = remove(&pillar, &grains);
    assert!(!rest.low.chunks.iter().any(target));
    text += &support::steps("remove_node, no document", &rest);
    golden("steps-remove.txt", &text);
}

/// Pods of the last worker first get a place if the taint of control planes follows the workers.
#[test]
fn the_last_worker_is_drained_when_control_planes_take_pods() {
    let (mut pillar, grains) = fixture("master");
    pillar["node"] = json!("worker-1");
    pillar["halite"]["nodes"]["bootstrap-1"]["taintFollowsWorkers"] = json!(true);
    let steps_of = |pillar: &Value| {
        let compiled = remove(pillar, &grains);
        steps(&compiled).iter().map(|id| (*id).to_owned()).collect()
    };
    let is_between = |steps: Vec<String>, before: &str, after: &str| {
        let place = |name: &str| steps.iter().position(|id| id == name).unwrap();
        let place_of_taint = place("control-planes");
        place(before) < place_of_taint && place_of_taint < place(after)
    };
    assert!(is_between(steps_of(&pillar), "allowed", "drained"));
    let mut dead = pillar.clone();
    dead["dead"] = json!(true);
    assert!(is_between(steps_of(&dead), "fenced", "node"));

    // Its replacement is a worker. With another worker, or if the taint is always set, nothing
    // changes.
    let mut keep = pillar.clone();
    keep["keep"] = json!(true);
    let mut other = pillar.clone();
    let nodes = &mut other["halite"]["nodes"];
    nodes["worker-2"] = nodes["worker-1"].clone();
    let mut always = pillar.clone();
    always["halite"]["nodes"]["bootstrap-1"]["taintFollowsWorkers"] = json!(false);
    for pillar in [keep, other, always] {
        let steps: Vec<String> = steps_of(&pillar);
        assert!(!steps.contains(&"control-planes".to_owned()), "{steps:?}");
    }
}

#[test]
fn options_of_a_removal_reach_their_steps() {
    let (mut pillar, grains) = fixture("master");
    pillar["node"] = json!("worker-1");
    pillar["force"] = json!(true);
    pillar["cluster"] = json!("prod");
    pillar["wipe_data"] = json!(true);
    pillar["packages"] = json!(true);
    pillar["drain"] = json!({"delete_emptydir_data": true, "timeout": 60});
    let compiled = remove(&pillar, &grains);
    let step = |id: &str| {
        let chunk = compiled.low.chunks.iter().find(|chunk| chunk.id == id);
        &chunk.unwrap().args
    };
    assert_eq!(step("allowed")["force"], true);
    assert_eq!(step("allowed")["cluster"], "prod");
    assert_eq!(step("drained")["delete_emptydir_data"], true);
    assert_eq!(step("drained")["timeout"], 60);
    // Pods that no kubelet ends may be left there: `host` ends their containers before `node`.
    assert_eq!(step("drained")["cleaned"], true);
    let sls = [
        "halite.leave.host",
        "halite.leave.data",
        "halite.leave.packages",
    ];
    assert_eq!(step("host")["sls"], json!(sls));
    let forget = step("names")["arg"][0].as_str().unwrap();
    assert!(
        forget.contains("[[:space:]]+worker-1[[:space:]]*$/d"),
        "{forget}"
    );
}

/// Only the line of the removed host disappears from a `hosts` file.
#[test]
fn only_the_removed_name_leaves_the_hosts_file() {
    let (mut pillar, grains) = fixture("master");
    pillar["node"] = json!("worker-1");
    let compiled = remove(&pillar, &grains);
    let names = compiled.low.chunks.iter().find(|chunk| chunk.id == "names");
    let line = names.unwrap().args["arg"][0].as_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    let kept = "127.0.1.1 worker-1\n10.0.0.13\tworker-10\n10.0.0.14 worker-1.example alias\n";
    std::fs::write(&hosts, format!("10.0.0.12\tworker-1\n{kept}")).unwrap();
    let line = line.replace("/etc/hosts", hosts.to_str().unwrap());
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", &line])
        .status();
    assert!(status.unwrap().success(), "{line}");
    assert_eq!(std::fs::read_to_string(&hosts).unwrap(), kept);
}

#[test]
fn only_a_mask_of_halite_leaves_swap_target() {
    let chunks = leaving("worker");
    let path = "/etc/systemd/system/swap.target";
    let removal = chunks.iter().find(|chunk| chunk.name == path).unwrap();
    let condition = json!("test -e /var/lib/halite/swap-masked");
    assert_eq!(removal.controls.onlyif, [condition]);
}

/// A control plane with a full name has all of them on one line:
/// `10.0.0.1 cp.example cp api.internal`.
#[test]
fn shared_names_leave_the_line_of_the_full_name_of_a_host() {
    let (mut pillar, grains) = fixture("bootstrap");
    let registry = &mut pillar["halite"]["siteRegistry"];
    registry["address"] = json!("10.10.0.11");
    let sls = ["halite.leave.host".to_owned()];
    let compiled = sure(with(&pillar, &grains, |i| compile::step(i, &sls)));
    let absent = |chunk: &&Chunk| chunk.function() == "host.absent";
    let names: Vec<(&str, &Value)> = (compiled.low.chunks.iter().filter(absent))
        .map(|chunk| (chunk.name.as_str(), &chunk.args["ip"]))
        .collect();
    assert_eq!(
        names,
        [
            ("api.prod.internal", &json!(["10.10.0.100"])),
            ("registry.prod.internal", &json!(["10.10.0.11"])),
        ]
    );
    // Afterwards, lines that have only the cluster's names are removed.
    let at = |id: &str| steps(&compiled).iter().position(|step| *step == id);
    assert!(at("api-name").is_some() && at("api-name") < at("cluster-names"));
}

/// Without containerd they are identified by their groups alone.
#[test]
fn the_processes_of_pods_are_found_in_both_versions_of_control_groups() {
    let chunks = leaving("worker");
    let gone = chunks.iter().find(|chunk| chunk.id == "containers-gone");
    let line = &gone.unwrap().name;
    let (_, line) = line.split_once("pids=$(").unwrap();
    let (line, _) = line.split_once(") || break").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let line = line.replace("/sys/fs/cgroup", directory.path().to_str().unwrap());
    let found = || {
        let found = std::process::Command::new("/bin/sh")
            .args(["-c", &line])
            .output()
            .unwrap();
        let text = String::from_utf8(found.stdout).unwrap();
        let mut pids: Vec<String> = text.lines().map(str::to_owned).collect();
        // The groups of version 2 below the first one match the path of version 1 as well.
        pids.sort();
        pids.dedup();
        (found.status.success(), pids)
    };
    let group = |path: &str, pids: &str| {
        let group = directory.path().join(path);
        std::fs::create_dir_all(&group).unwrap();
        std::fs::write(group.join("cgroup.procs"), pids).unwrap();
    };
    // A process outside the namespace is 0.
    group("kubepods.slice/kubepods-burstable.slice/a.scope", "0\n");
    group("system.slice/containerd.service", "7\n");
    assert_eq!(found(), (false, vec![]));
    group(
        "kubepods.slice/kubepods-burstable.slice/a.scope",
        "11\n12\n",
    );
    group("pids/kubepods.slice/b.scope", "13\n");
    let pids = ["11", "12", "13"].map(str::to_owned);
    assert_eq!(found(), (true, pids.to_vec()));
}

/// Paths that the states of a host write.
fn written(compiled: &Compiled) -> Vec<String> {
    let mut paths = Vec::new();
    for chunk in &compiled.low.chunks {
        let name = chunk.name.clone();
        match chunk.function().as_str() {
            "file.managed" | "file.directory" | "file.symlink" | "x509.certificate"
            | "kubeconfig.managed" => {
                paths.push(name);
            }
            "pkgrepo.managed" => paths.push(format!("/etc/apt/sources.list.d/{name}.list")),
            "kmod.present" => paths.push("/etc/modules-load.d/halite.conf".to_owned()),
            "sysctl.present" => paths.push(chunk.args["config"].as_str().unwrap().to_owned()),
            _ => {}
        }
    }
    paths
}

/// Words of a command that are paths, without the quotes around them.
fn paths_in(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| c.is_whitespace() || "\"';".contains(c));
    let paths = words.filter(|word| word.starts_with('/'));
    paths.map(str::to_owned)
}

#[test]
fn files_of_halite_are_removed_from_a_host_that_leaves() {
    for name in ["bootstrap", "worker"] {
        let (mut pillar, grains) = fixture(name);
        // More files than without it.
        pillar["halite"]["apiServer"]["localProxy"] = json!(true);
        let mut gone: Vec<String> = Vec::new();
        for chunk in leaving(name) {
            match chunk.function().as_str() {
                "file.absent" => gone.push(chunk.name),
                "cmd.run" => gone.extend(paths_in(&chunk.name)),
                // The unit that is removed last.
                "file.managed" => {
                    gone.extend(paths_in(chunk.args["contents"].as_str().unwrap()));
                }
                _ => {}
            }
        }
        let paths = written(&highstate(&pillar, &grains));
        assert!(paths.len() > 10, "{paths:?}");
        for path in paths {
            let goes = gone.iter().any(|gone| {
                let rest = path.strip_prefix(gone.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            });
            assert!(goes, "{name}: {path} stays");
        }
    }
}

/// A host that stays keeps nothing of its control plane: paths that its former states wrote and its
/// new ones do not are removed.
#[test]
fn files_of_a_control_plane_are_removed_from_a_host_that_stays() {
    let (mut pillar, grains) = fixture("bootstrap");
    let node = &mut pillar["halite"]["node"];
    node["runs"] = json!({"containers": true, "master": false, "standby": true});
    node["roles"] = json!(["control-plane", "etcd", "worker"]);
    node["etcd"] =
        json!({"member": "bootstrap-1", "initialCluster": "bootstrap-1=https://10.0.0.1:2380"});
    let name = node["name"].as_str().unwrap().to_owned();
    pillar["halite"]["nodes"][&name]["roles"] = node["roles"].clone();
    let before = written(&highstate(&pillar, &grains));
    let absent = |compiled: &Compiled| -> Vec<String> {
        let chunks = compiled.low.chunks.iter();
        let absent = chunks.filter(|chunk| chunk.function() == "file.absent");
        absent.map(|chunk| chunk.name.clone()).collect()
    };
    let mut gone: Vec<String> = Vec::new();
    for sls in ["control_plane", "etcd", "plane"] {
        let sls = [format!("halite.leave.{sls}")];
        gone.extend(absent(&sure(with(&pillar, &grains, |i| {
            compile::step(i, &sls)
        }))));
    }
    let node = &mut pillar["halite"]["node"];
    node["runs"]["standby"] = json!(false);
    node["roles"] = json!(["worker"]);
    node["etcd"] = Value::Null;
    pillar["halite"]["nodes"][&name]["roles"] = json!(["worker"]);
    let worker = highstate(&pillar, &grains);
    gone.extend(absent(&worker));
    // Directories: etcd's data is set aside there, and the others are removed when they are empty.
    gone.extend(
        [
            "/var/lib/etcd",
            "/root/.kube",
            "/var/lib/halite/master",
            "/var/lib/halite/reports",
        ]
        .map(str::to_owned),
    );
    let kept = written(&worker);
    let former: Vec<String> = before
        .into_iter()
        .filter(|path| !kept.contains(path))
        .collect();
    assert!(former.len() > 20, "{former:?}");
    let stays: Vec<&String> = former
        .iter()
        .filter(|path| {
            !gone.iter().any(|gone| {
                let rest = path.strip_prefix(gone.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        })
        .collect();
    assert_eq!(stays, [""; 0]);
    // Nothing that a worker needs is removed.
    for path in &kept {
        assert!(!gone.contains(path), "{path} is removed");
    }
}

/// A declared host without an address, which has not enrolled yet or will be replaced, does not
/// keep the others from their states.
#[test]
fn a_host_without_an_address_is_left_out_of_the_others_states() {
    let (mut pillar, grains) = fixture("bootstrap");
    let new = &mut pillar["halite"]["nodes"]["cp-2"];
    *new = json!({"roles": ["control-plane", "etcd"], "runs": {"containers": true}, "controlPlane": null,
        "workloadPlane": null, "labels": {}, "taints": [], "taintFollowsWorkers": false});
    let compiled = highstate(&pillar, &grains);
    for chunk in &compiled.low.chunks {
        let args = Value::Object(chunk.args.clone()).to_string();
        assert!(chunk.name != "cp-2", "{}", chunk.id);
        assert!(
            !args.contains("None") && !args.contains("\"none\""),
            "{}: {args}",
            chunk.id
        );
    }
}

/// Shell code that runs only when a host leaves is at least parsed by a shell here.
#[test]
fn commands_of_a_removal_are_shell_and_never_match_themselves() {
    for name in ["bootstrap", "worker"] {
        let mut lines: Vec<String> = Vec::new();
        for chunk in leaving(name) {
            if chunk.function() == "cmd.run" {
                lines.push(chunk.name.clone());
            }
            let conditions = chunk.controls.onlyif.iter();
            lines.extend(conditions.filter_map(|line| line.as_str().map(str::to_owned)));
        }
        assert!(lines.len() > 10, "{lines:?}");
        for line in lines {
            let status = std::process::Command::new("/bin/sh")
                .args(["-n", "-c", &line])
                .status();
            assert!(status.unwrap().success(), "{line}");
            // `pgrep -f` and `pkill -f` also match the shell's own command line.
            let patterns = line.split("-f '").skip(1);
            for pattern in patterns.filter_map(|rest| rest.split('\'').next()) {
                assert!(pattern.starts_with('['), "{line}");
            }
        }
    }
}
