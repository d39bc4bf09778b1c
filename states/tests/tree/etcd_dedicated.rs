//! Members of etcd on dedicated hosts: a host with nothing else, a control plane without a member,
//! and the steps that give the API servers their members.

use halite_states::compile;
use halite_states::compile::Compiled;
use serde_json::{Value, json};

use crate::support::{assert_chain, chunk, contents, fixture, highstate, sure, with};

const API_SERVER: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";
const SERVERS: [&str; 2] = ["https://10.10.0.11:2379", "https://10.10.1.12:2379"];

/// A fixture whose host has these roles, next to a first host with a member.
fn dedicated(name: &str, roles: &[&str]) -> (Value, Value) {
    let (mut pillar, grains) = fixture(name);
    let halite = &mut pillar["halite"];
    halite["etcd"]["placement"] = json!("dedicated");
    halite["etcd"]["mode"] = json!("host-service");
    halite["etcd"]["servers"] = json!(SERVERS);
    if name == "master" {
        return (pillar, grains);
    }
    let (first, _) = fixture("bootstrap");
    halite["pki"] = first["halite"]["pki"].clone();
    if !(roles.contains(&"etcd") && roles.contains(&"control-plane")) {
        halite["pki"]["etcd"].as_object_mut().unwrap().remove("key");
    }
    let id = grains["id"].as_str().unwrap().to_owned();
    let is_node = roles
        .iter()
        .any(|role| ["control-plane", "worker"].contains(role));
    for path in ["/node".to_owned(), format!("/nodes/{id}")] {
        let node = halite.pointer_mut(&path).unwrap();
        node["roles"] = json!(roles);
        node["runs"]["containers"] = json!(is_node);
        node["foundsEtcd"] = json!(false);
        node["vrrpPriority"] = json!(199);
    }
    halite["node"]["etcd"] = match roles.contains(&"etcd") {
        true => json!({"member": id, "initialCluster": "bootstrap-1=https://10.10.0.11:2380"}),
        false => Value::Null,
    };
    (pillar, grains)
}

fn of(name: &str, roles: &[&str]) -> Compiled {
    let (pillar, grains) = dedicated(name, roles);
    highstate(&pillar, &grains)
}

/// The ids of the steps of an orchestration about a host, and the steps.
fn steps(name: &str, pillar: &Value) -> (Vec<String>, Compiled) {
    let (_, grains) = fixture("master");
    let names = [format!("halite.orchestrate.{name}")];
    let compiled = sure(with(pillar, &grains, |input| compile::step(input, &names)));
    let ids = compiled.low.chunks.iter().map(|chunk| chunk.id.clone());
    (ids.collect(), compiled)
}

/// Returns whether all of these steps occur, in this order.
fn are_in_order(steps: &[String], wanted: &[&str]) -> bool {
    let mut steps = steps.iter();
    wanted.iter().all(|id| steps.any(|step| step == id))
}

/// The master's pillar for a run about `worker-1` with these roles, next to `bootstrap-1` and
/// `cp-2`.
fn run(roles: &[&str]) -> Value {
    let (mut pillar, _) = dedicated("master", &[]);
    let nodes = &mut pillar["halite"]["nodes"];
    nodes["worker-1"]["roles"] = json!(roles);
    nodes["worker-1"]["runs"] = json!({"containers": roles != ["etcd"]});
    nodes["cp-2"] = nodes["bootstrap-1"].clone();
    nodes["cp-2"]["roles"] = json!(["control-plane"]);
    pillar["node"] = json!("worker-1");
    pillar
}

/// containerd for the image, the unit and its certificates: no kubelet, no pod, no key of a CA.
#[test]
fn a_dedicated_etcd_host_has_the_member_and_nothing_of_kubernetes() {
    let (pillar, grains) = dedicated("worker", &["etcd"]);
    let compiled = highstate(&pillar, &grains);
    chunk(&compiled, "service.running", "containerd");
    let image = pillar["halite"]["images"]["etcd"].as_str().unwrap();
    chunk(&compiled, "image.present", image);
    chunk(&compiled, "unit.ready", "etcd");
    for name in ["server", "peer", "healthcheck-client"] {
        let file = format!("/etc/kubernetes/pki/etcd/{name}.crt");
        chunk(&compiled, "x509.certificate", &file);
    }
    let packages = chunk(&compiled, "pkg.installed", "host-packages").args["pkgs"].to_string();
    assert!(
        packages.contains("containerd") && packages.contains("runc"),
        "{packages}"
    );
    for part in ["kubelet", "kubeadm", "kubernetes-cni"] {
        assert!(!packages.contains(part), "{packages}");
    }
    // Without /etc/protocols, firewalld ends. On other hosts iptables brings the package.
    assert!(packages.contains("netbase"), "{packages}");
    let images = compiled.low.chunks.iter();
    let images = images.filter(|chunk| chunk.function() == "image.present");
    assert_eq!(images.count(), 1);
    for chunk in &compiled.low.chunks {
        let text = format!("{} {} {}", chunk.sls, chunk.id, chunk.name);
        for part in [
            "halite.base.kubelet",
            "control_plane",
            "ca.key",
            "halite-pods",
        ] {
            assert!(!text.contains(part), "{part} in {text}");
        }
    }
    let rules = chunk(&compiled, "firewalld.policy", "halite-host").args["rich_rules"].to_string();
    for port in ["\\\"2379-2380\\\"", "port=\\\"2379\\\""] {
        assert!(rules.contains(port), "{rules}");
    }
    assert!(
        !rules.contains("10250") && !rules.contains("6443"),
        "{rules}"
    );
}

/// A worker on the member's host does not change the member.
#[test]
fn a_worker_may_have_a_member() {
    let compiled = of("worker", &["etcd", "worker"]);
    chunk(&compiled, "unit.ready", "etcd");
    chunk(&compiled, "service.running", "kubelet");
}

#[test]
fn a_control_plane_without_a_member_uses_all_that_have_a_vote() {
    let compiled = of("worker", &["control-plane"]);
    let manifest = contents(&compiled, API_SERVER);
    let flag = format!("--etcd-servers={}", SERVERS.join(","));
    for flag in [
        flag.as_str(),
        "--etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt",
        "--etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt",
    ] {
        assert!(manifest.contains(flag), "no {flag} in:\n{manifest}");
    }
    let (pillar, _) = dedicated("worker", &["control-plane"]);
    let ca = contents(&compiled, "/etc/kubernetes/pki/etcd/ca.crt");
    assert_eq!(json!(ca), pillar["halite"]["pki"]["etcd"]["cert"]);
    let client = "/etc/kubernetes/pki/apiserver-etcd-client.crt";
    chunk(&compiled, "x509.certificate", client);
    for chunk in &compiled.low.chunks {
        let sls = &chunk.sls;
        assert!(
            !sls.starts_with("halite.base.etcd") && sls != "halite.base.pki.etcd",
            "{sls}"
        );
    }
    // It does not wait for a member of its own.
    let ready = compiled.low.chunks.iter();
    let mut ready = ready.filter(|chunk| chunk.id == "kube-apiserver-ready");
    assert!(!ready.next().unwrap().args.contains_key("behind"));
}

/// Its own member is one of those that it uses, so that it can be moved away.
#[test]
fn a_control_plane_with_a_member_uses_all_too() {
    let first = ["bootstrap", "registry", "etcd", "control-plane"];
    let (mut pillar, grains) = dedicated("bootstrap", &first);
    pillar["halite"]["node"]["foundsEtcd"] = json!(true);
    let compiled = highstate(&pillar, &grains);
    let flag = format!("--etcd-servers={}", SERVERS.join(","));
    assert!(contents(&compiled, API_SERVER).contains(&flag));
    chunk(
        &compiled,
        "etcd.founded",
        "/var/lib/halite/etcd-member.json",
    );
    // Once its member was moved away, it does not found a second cluster.
    pillar["halite"]["node"]["foundsEtcd"] = json!(false);
    let again = highstate(&pillar, &grains);
    let mut all = again.low.chunks.iter();
    assert!(all.all(|chunk| chunk.function() != "etcd.founded"));
}

#[test]
fn kubeadm_knows_the_members_that_have_a_vote() {
    let (pillar, grains) = dedicated("master", &[]);
    let compiled = highstate(&pillar, &grains);
    let documents =
        &chunk(&compiled, "kubernetes.manifest", "kubeadm-configuration").args["documents"];
    let text = documents[0]["data"]["ClusterConfiguration"]
        .as_str()
        .unwrap();
    let root = halite_secrets::yaml::parse("f", text).unwrap();
    let etcd = root.get("etcd").unwrap().to_json();
    assert_eq!(etcd["external"]["endpoints"], json!(SERVERS));
}

/// A pod on a control plane has the address of its host, which the member would let in.
#[test]
fn pods_do_not_reach_hosts_of_etcd() {
    let (mut pillar, grains) = dedicated("worker", &["control-plane"]);
    pillar["halite"]["firewall"]["podsToHosts"] = json!("deny");
    let rules = |pillar: &Value| {
        let compiled = highstate(pillar, &grains);
        let sets = chunk(&compiled, "firewalld.ipsets", "halite-sets").args["sets"].clone();
        let policy = chunk(&compiled, "firewalld.policy", "halite-pods-out");
        (policy.args["rich_rules"].to_string(), sets)
    };
    let reject = "destination ipset=\\\"halite-etcd\\\" reject";
    let (found, sets) = rules(&pillar);
    assert!(found.contains(reject), "{found}");
    assert_eq!(sets["halite-etcd"], json!(["10.10.0.11"]));
    pillar["halite"]["etcd"]["placement"] = json!("stacked");
    assert!(!rules(&pillar).0.contains(reject));
}

/// A learner, its promotion, and then each API server by itself, all under the lock.
#[test]
fn the_api_servers_follow_a_member_that_comes() {
    // The first host no longer has one.
    let plain = json!(["bootstrap", "registry", "control-plane"]);
    let run = |roles: &[&str]| {
        let mut pillar = run(roles);
        pillar["halite"]["nodes"]["bootstrap-1"]["roles"] = plain.clone();
        pillar
    };
    let (ids, compiled) = steps("add_node", &run(&["etcd"]));
    let order = [
        "turn",
        "learner",
        "promoted",
        "bootstrap-1-members",
        "cp-2-members",
        "members",
        "turn-ends",
    ];
    assert!(are_in_order(&ids, &order), "{ids:?}");
    assert_chain(&compiled);
    let (ids, _) = steps("add_node", &run(&["etcd", "worker"]));
    assert!(
        are_in_order(&ids, &["members", "turn-ends", "node", "ready"]),
        "{ids:?}"
    );
    let (ids, _) = steps("add_node", &run(&["control-plane"]));
    assert!(
        !ids.contains(&"turn".to_owned()) && ids.contains(&"joined".to_owned()),
        "{ids:?}"
    );
}

#[test]
fn the_api_servers_follow_a_member_that_leaves() {
    let (ids, compiled) = steps("remove_node", &run(&["etcd"]));
    let order = [
        "turn",
        "member",
        "undeclared",
        "bootstrap-1-members",
        "cp-2-members",
        "members",
    ];
    assert!(are_in_order(&ids, &order), "{ids:?}");
    assert_chain(&compiled);
    let (ids, _) = steps("remove_node", &run(&["worker"]));
    assert!(!ids.contains(&"members".to_owned()), "{ids:?}");
}

/// The first host has the master; then the members, and then the API servers that use them.
#[test]
fn an_upgrade_takes_members_before_the_further_control_planes() {
    let mut pillar = run(&["etcd"]);
    let nodes = pillar["halite"]["nodes"].as_object_mut().unwrap();
    nodes
        .values_mut()
        .for_each(|node| node["bundle"] = json!("0.1.0"));
    pillar["halite"]["master"]["node"] = json!("bootstrap-1");
    pillar["bundle"] = json!("0.2.0");
    let (ids, compiled) = steps("upgrade", &pillar);
    let order = [
        "bootstrap-1-etcd",
        "bootstrap-1-control-plane",
        "bootstrap-1-host",
        "worker-1-etcd",
        "worker-1-host",
        "cp-2-control-plane",
        "cp-2-host",
    ];
    assert!(are_in_order(&ids, &order), "{ids:?}");
    assert_chain(&compiled);
}

#[test]
fn a_host_of_etcd_alone_reboots_while_the_others_can_miss_it() {
    let (ids, _) = steps("reboot_node", &run(&["etcd"]));
    // It is not a node; the other steps are those of any member (steps-reboot.txt).
    let (mut node, _) = steps("reboot_node", &run(&["etcd", "worker"]));
    node.retain(|id| !["ready", "uncordoned"].contains(&id.as_str()));
    assert_eq!(ids, node);
}

/// Together with the first host's member there would be two, neither of which could fail. So it is
/// moved away once no API server uses it any more. Until the last step the host has the role, so a
/// repeated run continues.
#[test]
fn the_first_host_gives_its_member_away_when_that_costs_nothing() {
    let mut pillar = run(&["etcd"]);
    pillar["halite"]["etcd"]["servers"] = json!(["https://10.10.0.11:2379"]);
    let (ids, compiled) = steps("add_node", &pillar);
    let order = [
        "member",
        "given",
        "bootstrap-1-members",
        "cp-2-members",
        "members",
        "given-away",
        "former-member",
        "former-role",
        "turn-ends",
    ];
    assert!(are_in_order(&ids, &order), "{ids:?}");
    assert_chain(&compiled);
    let at = |id: &str| &compiled.low.chunks[ids.iter().position(|found| found == id).unwrap()];
    assert_eq!(at("given").function(), "halite.control_plane_joined");
    assert_eq!(at("given-away").args["node"], "bootstrap-1");
    assert_eq!(
        at("former-role").args["roles"],
        json!(["bootstrap", "registry", "control-plane"])
    );
    // A run that was interrupted after that record, or after the new member was promoted.
    for servers in [json!(["https://10.10.1.12:2379"]), json!(SERVERS)] {
        pillar["halite"]["etcd"]["servers"] = servers;
        let (again, _) = steps("add_node", &pillar);
        assert_eq!(again, ids);
    }
    // A third member: then the number must not shrink.
    pillar["halite"]["etcd"]["servers"] =
        json!(["https://10.10.0.11:2379", "https://10.10.0.13:2379"]);
    let (ids, _) = steps("add_node", &pillar);
    assert!(!ids.contains(&"given".to_owned()), "{ids:?}");
    assert!(ids.contains(&"bootstrap-1-members".to_owned()), "{ids:?}");
    // It no longer has one.
    pillar["halite"]["nodes"]["bootstrap-1"]["roles"] =
        json!(["bootstrap", "registry", "control-plane"]);
    let (ids, _) = steps("add_node", &pillar);
    assert!(!ids.contains(&"given".to_owned()), "{ids:?}");
}

/// The paths that a state removes.
fn absent((pillar, grains): &(Value, Value), sls: &str) -> Vec<String> {
    let names = [sls.to_owned()];
    let compiled = sure(with(pillar, grains, |input| compile::step(input, &names)));
    let chunks = compiled.low.chunks.iter();
    let absent = chunks.filter(|chunk| chunk.function() == "file.absent");
    absent.map(|chunk| chunk.name.clone()).collect()
}

const PKI: &str = "/etc/kubernetes/pki/etcd";

/// The member's keys are removed, and without a control plane on the host so is its access to the
/// other members.
#[test]
fn a_control_plane_that_had_a_member_keeps_the_way_to_the_others() {
    let host = dedicated("worker", &["control-plane"]);
    let stays = absent(&host, "halite.leave.member");
    for file in ["ca.key", "server.key", "peer.crt", "healthcheck-client.key"] {
        assert!(stays.contains(&format!("{PKI}/{file}")), "{file}");
    }
    assert!(stays.contains(&"/var/lib/halite/etcd-member.json".to_owned()));
    for kept in [PKI, &format!("{PKI}/ca.crt")] {
        assert!(!stays.contains(&kept.to_owned()), "{kept}");
    }
    let mut goes = absent(&host, "halite.leave.etcd");
    goes.retain(|path| path != PKI);
    assert_eq!(goes, stays);
}

/// kubeadm, which renews with the key of its CA, is no longer on the host.
#[test]
fn a_member_that_had_a_control_plane_keeps_all_but_a_key() {
    let ca_key = format!("{PKI}/ca.key");
    let both = dedicated("worker", &["control-plane", "etcd", "worker"]);
    let gone = absent(&both, "halite.leave.plane");
    let of_etcd = gone.iter().filter(|path| path.starts_with(PKI));
    assert_eq!(of_etcd.collect::<Vec<_>>(), [&ca_key]);
    let client = "/etc/kubernetes/pki/apiserver-etcd-client.key";
    assert!(gone.contains(&client.to_owned()), "{gone:?}");
    // Without a member, nothing there uses etcd any more.
    let plane = dedicated("worker", &["control-plane", "worker"]);
    let gone = absent(&plane, "halite.leave.plane");
    assert!(gone.contains(&PKI.to_owned()), "{gone:?}");
}
