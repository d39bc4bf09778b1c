//! etcd that is not a static pod of a control plane: an external one, and a member that is a
//! service of the host.

use std::collections::BTreeSet;

use halite_secrets::reference;
use halite_states::compile;
use halite_states::compile::Compiled;
use serde_json::{Value, json};

use crate::support::{chunk, contents, fixture, highstate, sure, with};

const MANIFEST: &str = "/etc/kubernetes/manifests/etcd.yaml";
const UNIT: &str = "/etc/systemd/system/etcd.service";
const API_SERVER: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";
const ENDPOINTS: [&str; 2] = ["https://10.9.0.21:2379", "https://etcd-2.corp:2379"];

/// A fixture whose etcd is external.
fn external(name: &str) -> (Value, Value) {
    let (mut pillar, grains) = fixture(name);
    pillar["halite"]["etcd"] = json!({
        "placement": "external", "mode": "static-pod", "extraArgs": {},
        "external": {
            "endpoints": ENDPOINTS, "ca": "THE CA\n", "certificate": "THE CERTIFICATE\n",
            "key": reference::for_path("etcd.external.key"),
        },
    });
    let plain = json!(["bootstrap", "registry", "control-plane"]);
    pillar["halite"]["nodes"]["bootstrap-1"]["roles"] = plain.clone();
    if name == "bootstrap" {
        pillar["halite"]["node"]["roles"] = plain;
        let pki = pillar["halite"]["pki"]["etcd"].as_object_mut().unwrap();
        pki.remove("key");
    }
    (pillar, grains)
}

/// A fixture whose member is a unit of systemd.
fn service(name: &str) -> (Value, Value) {
    let (mut pillar, grains) = fixture(name);
    pillar["halite"]["etcd"]["placement"] = json!("stacked");
    pillar["halite"]["etcd"]["mode"] = json!("host-service");
    (pillar, grains)
}

/// `etcd` of kubeadm's ClusterConfiguration.
fn of_kubeadm((pillar, grains): &(Value, Value)) -> Value {
    let compiled = highstate(pillar, grains);
    let documents =
        &chunk(&compiled, "kubernetes.manifest", "kubeadm-configuration").args["documents"];
    let text = documents[0]["data"]["ClusterConfiguration"]
        .as_str()
        .unwrap();
    let root = halite_secrets::yaml::parse("f", text).unwrap();
    root.get("etcd").unwrap().to_json()
}

fn compile(pillar: &Value, grains: &Value, sls: &str) -> Compiled {
    let names = [sls.to_owned()];
    sure(with(pillar, grains, |input| compile::step(input, &names)))
}

fn ids(compiled: &Compiled) -> Vec<&str> {
    let chunks = compiled.low.chunks.iter();
    chunks.map(|chunk| chunk.id.as_str()).collect()
}

/// The flags and files of kubeadm with `etcd.external`.
#[test]
fn the_api_server_reaches_an_external_etcd_as_with_kubeadm() {
    let (pillar, grains) = external("bootstrap");
    let compiled = highstate(&pillar, &grains);
    let manifest = contents(&compiled, API_SERVER);
    for flag in [
        "--etcd-servers=https://10.9.0.21:2379,https://etcd-2.corp:2379",
        "--etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt",
        "--etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt",
        "--etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key",
    ] {
        assert!(manifest.contains(flag), "no {flag} in:\n{manifest}");
    }
    let pki = "/etc/kubernetes/pki/";
    assert_eq!(
        contents(&compiled, &format!("{pki}etcd/ca.crt")),
        "THE CA\n"
    );
    let certificate = contents(&compiled, &format!("{pki}apiserver-etcd-client.crt"));
    assert_eq!(certificate, "THE CERTIFICATE\n");
    let key = chunk(
        &compiled,
        "file.managed",
        &format!("{pki}apiserver-etcd-client.key"),
    );
    assert_eq!(
        (&key.args["mode"], &key.args["show_changes"]),
        (&json!(0o600), &json!(false))
    );
    assert_eq!(
        key.args["contents"],
        reference::for_path("etcd.external.key")
    );
    assert_eq!(
        of_kubeadm(&external("master")),
        json!({"external": {
            "caFile": "/etc/kubernetes/pki/etcd/ca.crt",
            "certFile": "/etc/kubernetes/pki/apiserver-etcd-client.crt",
            "endpoints": ENDPOINTS,
            "keyFile": "/etc/kubernetes/pki/apiserver-etcd-client.key",
        }})
    );
}

/// No member, no image, no certificate of one, and no opening of the firewall.
#[test]
fn no_host_has_a_part_of_an_external_etcd() {
    for name in ["bootstrap", "worker"] {
        let (pillar, grains) = external(name);
        let compiled = highstate(&pillar, &grains);
        for chunk in &compiled.low.chunks {
            let text = json!({"id": chunk.id, "sls": chunk.sls, "args": chunk.args}).to_string();
            for part in [
                "halite.base.etcd",
                "halite.base.pki.etcd",
                ":2380",
                "registry.k8s.io/etcd",
                "halite-etcd",
            ] {
                assert!(!text.contains(part), "{name}: {part} in {text}");
            }
            let is_openings = chunk.function() == "firewalld.policy";
            assert!(!(is_openings && text.contains("2379")), "{text}");
        }
    }
}

/// Before the first host changes, the master checks each endpoint; no step is about members.
#[test]
fn a_bootstrap_asks_an_external_etcd_first() {
    let (mut pillar, grains) = external("master");
    let bootstrap = compile(&pillar, &grains, "halite.orchestrate.bootstrap");
    assert_eq!(ids(&bootstrap)[..2], ["external-etcd", "host"]);
    let [asks, host] = &bootstrap.low.chunks[..2] else {
        panic!("two steps");
    };
    assert_eq!(asks.function(), "halite.etcd_answers");
    assert_eq!(host.requisites.require, [0]);
    let sls = [
        "halite.base.containerd.kept",
        "halite.base.kubelet.kept",
        "halite.host",
    ];
    assert_eq!(host.args["sls"], json!(sls));
    pillar["node"] = json!("worker-1");
    pillar["roles"] = json!(["control-plane"]);
    let add = compile(&pillar, &grains, "halite.orchestrate.add_node");
    let found: BTreeSet<&str> = ids(&add).into_iter().collect();
    for step in ["turn", "learner", "etcd", "promoted"] {
        assert!(!found.contains(step), "{step} in {found:?}");
    }
    let at = |id: &str| ids(&add).iter().position(|found| *found == id).unwrap();
    let joined = &add.low.chunks[at("joined")];
    assert_eq!(joined.function(), "halite.control_plane_joined");
    assert_eq!(joined.requisites.require, [at("control-plane")]);
    assert_eq!(
        add.low.chunks[at("node")].requisites.require,
        [at("registered")]
    );
    for id in ["api-clients", "registered"] {
        assert_eq!(
            add.low.chunks[at(id)].requisites.require,
            [at("joined")],
            "{id}"
        );
    }
    let control_plane = &add.low.chunks[at("control-plane")];
    assert_eq!(
        control_plane.args["sls"],
        json!(["halite.base.control_plane"])
    );
}

/// One source for the flags: those of the unit are those of the manifest and of the first start.
#[test]
fn a_unit_has_the_flags_of_the_static_pod() {
    let (mut pillar, grains) = service("bootstrap");
    pillar["halite"]["etcd"]["extraArgs"] =
        json!({"quota-backend-bytes": "8589934592", "experimental": "5% $of \"it\""});
    let compiled = highstate(&pillar, &grains);
    let unit = contents(&compiled, UNIT).to_owned();
    // Another image with the same tag contains another program.
    let image = pillar["halite"]["images"]["etcd"].as_str().unwrap();
    let (_, digits) = image.split_once("3.6.8-0@sha256:").unwrap();
    let line = format!(
        "ExecStart=/usr/local/lib/halite/etcd/3.6.8-0-{}/etcd \\\n",
        &digits[..12]
    );
    let (_, command) = unit.split_once(&line).unwrap_or_else(|| panic!("{unit}"));
    let (command, rest) = command.split_once("\nRestart=always\n").unwrap();
    assert!(
        rest.contains("[Install]\nWantedBy=multi-user.target"),
        "{rest}"
    );
    let flags: Vec<String> = command
        .split(" \\\n")
        .map(|word| serde_json::from_str::<String>(word.trim()).unwrap())
        .map(|flag| flag.replace("%%", "%").replace("$$", "$"))
        .collect();
    let founded = chunk(
        &compiled,
        "etcd.founded",
        "/var/lib/halite/etcd-member.json",
    );
    let words = founded.args["command"].as_array().unwrap();
    let words: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(words[0], "etcd");
    assert_eq!(flags, words[1..]);
    assert!(flags.contains(&"--quota-backend-bytes=8589934592".to_owned()));
    assert!(flags.contains(&"--experimental=5% $of \"it\"".to_owned()));
    pillar["halite"]["etcd"]["mode"] = json!("static-pod");
    let pod = highstate(&pillar, &grains);
    let manifest = contents(&pod, MANIFEST);
    for flag in &flags {
        assert!(
            manifest.contains(&format!("    - {}\n", json!(flag))),
            "{flag}"
        );
    }
}

/// States that wait for the pod also wait for the unit, including when the last member is created
/// alone.
#[test]
fn a_highstate_waits_for_the_unit() {
    let (pillar, grains) = service("bootstrap");
    let compiled = highstate(&pillar, &grains);
    let ready = chunk(&compiled, "unit.ready", "etcd");
    assert!(ready.controls.failhard);
    assert_eq!(ready.args["ready"], "http://127.0.0.1:2381/readyz");
    assert_eq!(
        ready.args["reads"],
        json!(["/etc/kubernetes/pki/etcd/ca.crt"])
    );
    chunk(&compiled, "file.absent", MANIFEST);
    chunk(&compiled, "service.running", "etcd");
    let at = |id: &str| {
        ids(&compiled)
            .iter()
            .position(|found| *found == id)
            .unwrap()
    };
    assert!(
        at("etcd-founded") < at(UNIT) && at("etcd-program") < at(UNIT) && at(UNIT) < at("etcd")
    );
    assert!(at("etcd") < at("etcd-ready") && at("etcd-ready") < at("etcd-other-programs"));
    // The bootstrap continues while it starts.
    let member = compile(&pillar, &grains, "halite.base.etcd.member");
    assert!(!ids(&member).contains(&"etcd-ready"));
    let alone = compile(&pillar, &grains, "halite.base.etcd.alone");
    assert_eq!(ids(&alone), [UNIT, "etcd", "etcd-alone"]);
    assert!(contents(&alone, UNIT).contains("  \"--force-new-cluster=true\"\nRestart=always\n"));
    chunk(&alone, "unit.ready", "etcd");
}

/// kubeadm would write a manifest next to the unit of a local etcd.
#[test]
fn to_kubeadm_a_member_that_is_a_unit_is_external() {
    let etcd = of_kubeadm(&service("master"));
    assert_eq!(
        etcd["external"]["endpoints"],
        json!(["https://10.10.0.11:2379"])
    );
    assert_eq!(etcd["local"], Value::Null);
    let pod = of_kubeadm(&fixture("master"));
    assert_eq!(pod, json!({"local": {"dataDir": "/var/lib/etcd"}}));
}

/// Both use the same data, so the running one stops before the other starts.
#[test]
fn a_change_of_the_mode_stops_the_other_first() {
    let (pillar, grains) = fixture("bootstrap");
    let pod = highstate(&pillar, &grains);
    let ended = chunk(
        &pod,
        "cmd.run",
        "systemctl disable --now etcd.service && rm -rf /usr/local/lib/halite/etcd && { rmdir /usr/local/lib/halite 2>/dev/null || true; } && rm -f /etc/systemd/system/etcd.service && systemctl daemon-reload",
    );
    assert!(
        json!(ended.controls)
            .to_string()
            .contains("Written by Halite")
    );
    let at = |compiled: &Compiled, id: &str| {
        ids(compiled).iter().position(|found| *found == id).unwrap()
    };
    assert!(at(&pod, "etcd-unit-ended") < at(&pod, MANIFEST));
    let (pillar, grains) = service("bootstrap");
    let unit = highstate(&pillar, &grains);
    assert!(at(&unit, MANIFEST) < at(&unit, "etcd-pod-ended"));
    assert!(at(&unit, "etcd-pod-ended") < at(&unit, UNIT));
}
