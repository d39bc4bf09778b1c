//! Declared hardening of the control plane.

use halite_states::compile::Compiled;
use serde_json::{Value, json};

use crate::support::{chunk, contents, fixture, highstate, of};

const DIRECTORY: &str = "/etc/kubernetes/apiserver";
const KEY: &str = "halite-secret::encryption.key2-ab::";

/// The pillar of a control plane with every kind of setting.
fn hardened() -> (Value, Value) {
    let (mut pillar, grains) = fixture("bootstrap");
    let halite = &mut pillar["halite"];
    halite["profile"] = json!("hardened");
    halite["kubelet"] =
        json!({"config": {"protectKernelDefaults": true}, "servingCertificate": true});
    let api_server = &mut halite["apiServer"];
    api_server["extraArgs"] = json!({
        "audit-policy-file": format!("{DIRECTORY}/audit-policy.yaml"),
        "vmodule": ["b=2", "a=1"],
        "profiling": "false",
    });
    api_server["extraVolumes"] = json!([
        {"name": "apiserver-config", "hostPath": DIRECTORY, "mountPath": DIRECTORY, "readOnly": true, "pathType": "DirectoryOrCreate"},
        {"name": "own", "hostPath": "/srv/own", "mountPath": "/own", "readOnly": false},
    ]);
    api_server["patches"] = json!([
        {"spec": {"containers": [{"name": "kube-apiserver", "resources": {"requests": {"cpu": "500m"}}}]}},
    ]);
    api_server["files"] = json!({
        "audit-policy.yaml": {"kind": "Policy", "rules": [{"level": "Metadata"}]},
        "encryption.yaml": {"resources": [{"providers": [{"secretbox": {"keys": [{"name": "key1", "secret": KEY}]}}]}]},
    });
    halite["apiServer"]["keys"] =
        json!({"stage": 3, "names": ["key2-ab", "key3-cd"], "writer": "key2-ab"});
    halite["controllerManager"] = json!({
        "extraArgs": {"controllers": ["*", "-ttl"]},
        "extraVolumes": [{"name": "own", "hostPath": "/srv/own", "mountPath": "/own", "readOnly": true}],
        "patches": [],
    });
    (pillar, grains)
}

fn pod(compiled: &Compiled, component: &str) -> Value {
    let text = contents(
        compiled,
        &format!("/etc/kubernetes/manifests/{component}.yaml"),
    );
    halite_document::yaml::parse("pod", text).unwrap().to_json()
}

#[test]
fn the_api_servers_files_are_private_and_a_change_restarts_it() {
    let (pillar, grains) = hardened();
    let compiled = highstate(&pillar, &grains);
    let ready = &chunk(&compiled, "static_pod.running", "kube-apiserver-ready").args["reads"];
    for name in ["audit-policy.yaml", "encryption.yaml"] {
        let path = format!("{DIRECTORY}/{name}");
        let file = &chunk(&compiled, "file.managed", &path).args;
        assert_eq!(
            (&file["mode"], &file["user"]),
            (&json!(0o600), &json!("root"))
        );
        assert!(ready.as_array().unwrap().contains(&json!(path)), "{ready}");
    }
    let policy = contents(&compiled, &format!("{DIRECTORY}/audit-policy.yaml"));
    assert_eq!(policy, "kind: Policy\nrules:\n- level: Metadata");
    let keys = chunk(
        &compiled,
        "file.managed",
        &format!("{DIRECTORY}/encryption.yaml"),
    );
    assert_eq!(keys.args["show_changes"], json!(false));
    let written = keys.args["contents"].as_str().unwrap();
    assert!(written.contains(KEY), "{written}");
    assert_eq!(
        written.lines().next(),
        Some("# Stage 3 of the keys, key2-ab encrypts")
    );
    // Nothing else has the key.
    let with_key = (compiled.low.chunks.iter())
        .filter(|chunk| json!(chunk.args).to_string().contains("encryption.key2"));
    assert_eq!(with_key.count(), 1);
    let log = &chunk(&compiled, "file.directory", "/var/log/kubernetes/audit").args;
    assert_eq!(log["mode"], json!(0o700));
}

/// Returns whether the states of this pillar are refused on a host whose file has this first line.
fn is_refused(pillar: &Value, grains: &Value, first_line: &str) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("encryption.yaml");
    if !first_line.is_empty() {
        std::fs::write(&file, format!("{first_line}\nkind: x\n")).unwrap();
    }
    let compiled = highstate(pillar, grains);
    let mut chunks = compiled.low.chunks.iter();
    let refusal = chunks
        .find(|chunk| chunk.id == "kube-apiserver-keys-not-later")
        .unwrap();
    assert!(refusal.controls.failhard);
    let [Value::String(condition)] = &refusal.controls.onlyif[..] else {
        panic!("{:?}", refusal.controls.onlyif);
    };
    let condition = condition.replace(
        &format!("{DIRECTORY}/encryption.yaml"),
        &file.display().to_string(),
    );
    let run = std::process::Command::new("sh")
        .args(["-c", &condition])
        .output()
        .unwrap();
    assert!(run.stderr.is_empty(), "{condition}: {run:?}");
    run.status.success()
}

#[test]
fn a_host_with_a_later_stage_or_another_key_refuses_the_states() {
    let line = |stage: u64, writer: &str| format!("# Stage {stage} of the keys, {writer} encrypts");
    let (pillar, grains) = hardened();
    for good in [
        String::new(),
        "apiVersion: apiserver.config.k8s.io/v1".to_owned(),
        line(1, "none"),
        line(2, "key2-ab"),
        line(3, "key2-ab"),
        line(3, "key3-cd"),
    ] {
        assert!(!is_refused(&pillar, &grains, &good), "{good}");
    }
    for late in [
        line(4, "key2-ab"),
        line(10, "key3-cd"),
        // The master has lost its keys, and has made others.
        line(1, "key1-ef"),
        line(3, "key2"),
    ] {
        assert!(is_refused(&pillar, &grains, &late), "{late}");
    }
    // The master has no keys.
    let (pillar, grains) = fixture("bootstrap");
    assert!(!is_refused(&pillar, &grains, ""));
    assert!(is_refused(&pillar, &grains, &line(1, "key1-ef")));
}

/// The state comes before each change of the host.
#[test]
fn the_stage_is_compared_before_anything_is_changed() {
    let (pillar, grains) = hardened();
    let compiled = highstate(&pillar, &grains);
    let before = compiled.low.chunks.iter();
    let before = before.take_while(|chunk| chunk.id != "kube-apiserver-keys-not-later");
    let before: Vec<String> = before.map(|chunk| chunk.function()).collect();
    assert_eq!(before, ["etcd.data", "mount.refused"]);
    let worker = of("worker");
    let mut ids = worker.low.chunks.iter().map(|chunk| chunk.id.as_str());
    assert!(!ids.any(|id| id == "kube-apiserver-keys-not-later"));
}

#[test]
fn without_hardening_no_file_of_the_api_server_stays() {
    let compiled = of("bootstrap");
    for name in ["admission", "audit-policy", "authentication", "encryption"] {
        let path = format!("{DIRECTORY}/{name}.yaml");
        chunk(&compiled, "file.absent", &path);
    }
    let worker = of("worker");
    assert!(
        !worker
            .low
            .chunks
            .iter()
            .any(|chunk| chunk.name.starts_with(DIRECTORY))
    );
}

#[test]
fn a_pod_has_its_flags_volumes_and_patches() {
    let (pillar, grains) = hardened();
    let compiled = highstate(&pillar, &grains);
    let api_server = pod(&compiled, "kube-apiserver");
    let container = &api_server["spec"]["containers"][0];
    let command: Vec<&str> = (container["command"].as_array().unwrap().iter())
        .map(|word| word.as_str().unwrap())
        .collect();
    // In the declared order, as kubeadm's ArgumentsToCommand keeps it.
    let at = command
        .iter()
        .position(|word| *word == "--vmodule=b=2")
        .unwrap();
    assert_eq!(command[at + 1], "--vmodule=a=1");
    assert!(command.contains(&"--profiling=false"));
    assert_eq!(container["resources"]["requests"]["cpu"], "500m");
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert!(
        mounts.contains(
            &json!({"mountPath": DIRECTORY, "name": "apiserver-config", "readOnly": true})
        )
    );
    assert!(mounts.contains(&json!({"mountPath": "/own", "name": "own"})));
    let volumes = api_server["spec"]["volumes"].as_array().unwrap();
    assert!(
        volumes.contains(&json!({"hostPath": {"path": "/srv/own", "type": ""}, "name": "own"}))
    );
    let manager = pod(&compiled, "kube-controller-manager");
    let command = &manager["spec"]["containers"][0]["command"];
    let command = command.as_array().unwrap();
    assert!(
        command.contains(&json!("--controllers=*"))
            && command.contains(&json!("--controllers=-ttl"))
    );
    assert_eq!(
        manager["spec"]["containers"][0]["resources"]["requests"]["cpu"],
        "200m"
    );
}

/// `kubeadm upgrade` writes the same pods again.
#[test]
fn kubeadm_gets_the_flags_and_volumes() {
    let (hardened, _) = hardened();
    let (mut pillar, grains) = fixture("master");
    for component in ["apiServer", "controllerManager"] {
        pillar["halite"][component] = hardened["halite"][component].clone();
    }
    let compiled = highstate(&pillar, &grains);
    let mut chunks = compiled.low.chunks.iter();
    let written = chunks
        .find(|chunk| chunk.id == "kubeadm-configuration")
        .unwrap();
    let text = json!(written.args).to_string();
    for part in [
        r"- name: vmodule\n    value: b=2\n  - name: vmodule\n    value: a=1",
        r"- hostPath: /srv/own\n    mountPath: /own\n    name: own\n    readOnly: true",
        "value: \\\"-ttl\\\"",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn a_hardened_kubelet_has_a_private_configuration_and_a_certificate() {
    let (pillar, grains) = hardened();
    let compiled = highstate(&pillar, &grains);
    let file = chunk(&compiled, "file.managed", "/var/lib/kubelet/config.yaml");
    assert_eq!(file.args["mode"], json!(0o600));
    assert!(
        file.args["contents"]
            .as_str()
            .unwrap()
            .contains("protectKernelDefaults: true\n")
    );
    chunk(
        &compiled,
        "x509.certificate",
        "/var/lib/kubelet/pki/kubelet.crt",
    );
    let usual = of("bootstrap");
    let file = chunk(&usual, "file.managed", "/var/lib/kubelet/config.yaml");
    assert_eq!(file.args["mode"], json!(0o644));
}

/// A list gives a flag several times, in a unit too.
#[test]
fn a_member_of_etcd_has_each_value_of_a_flag() {
    let (mut pillar, grains) = fixture("bootstrap");
    pillar["halite"]["etcd"] =
        json!({"extraArgs": {"x": ["1", "2"], "listen-metrics-urls": ["http://127.0.0.1:9999"]}});
    let compiled = highstate(&pillar, &grains);
    let etcd = pod(&compiled, "etcd");
    let command = &etcd["spec"]["containers"][0]["command"];
    let command = command.as_array().unwrap();
    assert!(command.contains(&json!("--x=1")) && command.contains(&json!("--x=2")));
    assert_eq!(
        etcd["spec"]["containers"][0]["ports"][0]["containerPort"],
        9999
    );
    pillar["halite"]["etcd"]["mode"] = json!("host-service");
    let compiled = highstate(&pillar, &grains);
    let unit = contents(&compiled, "/etc/systemd/system/etcd.service");
    assert!(unit.contains("  \"--x=1\" \\\n  \"--x=2\"\n"), "{unit}");
}
