//! The endpoint of the API servers and the pods' network.

use halite_states::compile::Compiled;
use serde_json::{Value, json};

use crate::support::{chunk, contents, fixture, highstate, make_program, of};

/// kubeadm's probe has Kubernetes' defaults: every ten seconds, and unready after three failures.
#[test]
fn a_replica_of_the_dns_counts_at_once_and_is_lost_no_sooner_than_with_kubeadm() {
    let master = of("master");
    let documents = &chunk(&master, "kubernetes.manifest", "coredns").args["documents"];
    let mut documents = documents.as_array().unwrap().iter();
    let deployment = documents.find(|document| document["kind"] == "Deployment");
    let container = &deployment.unwrap()["spec"]["template"]["spec"]["containers"][0];
    let probe = &container["readinessProbe"];
    assert_eq!(probe["periodSeconds"], 1);
    assert_eq!(probe["failureThreshold"], 10 * 3);
}

#[test]
fn the_deployment_of_the_dns_has_its_patches() {
    let (mut pillar, grains) = fixture("master");
    let documents = |pillar: &Value| {
        let compiled = highstate(pillar, &grains);
        chunk(&compiled, "kubernetes.manifest", "coredns").args["documents"].clone()
    };
    let before = documents(&pillar);
    pillar["halite"]["dns"] = json!({"patches": [
        {"spec": {"replicas": 3}},
        {"spec": {"template": {"spec": {"containers": [
            {"name": "coredns", "resources": {"limits": {"memory": "512Mi"}}},
        ]}}}},
    ]});
    let mut wanted = before.clone();
    let all = wanted.as_array_mut().unwrap();
    let deployment = all
        .iter_mut()
        .find(|document| document["kind"] == "Deployment");
    let spec = &mut deployment.unwrap()["spec"];
    spec["replicas"] = json!(3);
    spec["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = json!("512Mi");
    assert_eq!(documents(&pillar), wanted);
}

#[test]
fn the_dns_forwards_to_the_declared_name_servers() {
    let (mut pillar, grains) = fixture("master");
    let corefile = |pillar: &Value| {
        let compiled = highstate(pillar, &grains);
        let documents =
            &chunk(&compiled, "kubernetes.manifest", "coredns-configuration").args["documents"];
        documents[0]["data"]["Corefile"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let before = corefile(&pillar);
    assert!(
        before.contains("        forward . /etc/resolv.conf {\n")
            || before.contains("    forward . /etc/resolv.conf {\n")
    );
    pillar["halite"]["dns"] = json!({
        "forwarders": ["10.0.0.53", "10.0.0.54"], "zones": {"corp.example": ["10.0.0.55"]}, "patches": [],
    });
    let after = corefile(&pillar);
    let (own, zone) = after.split_once("corp.example:53 {\n").unwrap();
    assert_eq!(
        own,
        before.replace("/etc/resolv.conf", "10.0.0.53 10.0.0.54")
    );
    assert!(zone.contains("    forward . 10.0.0.55 {\n"), "{zone}");
    assert_eq!(after.matches('{').count(), after.matches('}').count());
}

#[test]
fn a_control_plane_may_have_no_virtual_address_or_a_foreign_one() {
    let (mut pillar, grains) = fixture("bootstrap");
    pillar["halite"]["apiServer"]["keepalived"] = json!(false);
    let foreign = highstate(&pillar, &grains);
    chunk(&foreign, "service.dead", "keepalived");
    pillar["halite"]["apiServer"]["vip"] = Value::Null;
    pillar["halite"]["apiServer"]["address"] = json!("10.10.0.11");
    let none = highstate(&pillar, &grains);
    chunk(&none, "service.dead", "keepalived");
    assert_eq!(
        chunk(&none, "host.present", "api.prod.internal").args["ip"],
        json!(["10.10.0.11"])
    );
    // No certificate depends on the address of the endpoint.
    let certificates = |compiled: &Compiled| {
        compiled
            .low
            .chunks
            .iter()
            .filter(|c| c.state == "x509")
            .map(|c| c.args.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(certificates(&of("bootstrap")), certificates(&none));

    // `certSANs` may add the address: then the certificate contains it, in every mode.
    pillar["halite"]["apiServer"]["certSANs"] = json!(["10.10.0.100"]);
    let none = highstate(&pillar, &grains);
    let apiserver = chunk(
        &none,
        "x509.certificate",
        halite_states::shipped::API_SERVER_CERTIFICATE,
    );
    assert_eq!(
        apiserver.sls,
        halite_states::shipped::CONTROL_PLANE_CERTIFICATES
    );
    assert!(
        apiserver.args["sans_ip"]
            .as_array()
            .unwrap()
            .contains(&json!("10.10.0.100"))
    );
    for held in [true, false] {
        pillar["halite"]["apiServer"]["vip"] = json!("10.10.0.100");
        pillar["halite"]["apiServer"]["address"] = json!("10.10.0.100");
        pillar["halite"]["apiServer"]["keepalived"] = json!(held);
        assert_eq!(
            certificates(&highstate(&pillar, &grains)),
            certificates(&none),
            "held by us: {held}"
        );
    }
}

#[test]
fn a_node_without_a_control_plane_has_a_proxy_that_knows_those_that_joined() {
    let proxied = |role: &str| {
        let (mut pillar, grains) = fixture(role);
        let api = &mut pillar["halite"]["apiServer"];
        api["localProxy"] = json!(true);
        api["servers"] = json!({"cp-1": "10.10.0.11", "cp-3": "10.10.0.13"});
        api["address"] = json!("127.0.0.1");
        highstate(&pillar, &grains)
    };
    let worker = proxied("worker");
    let text = contents(&worker, "/etc/haproxy/haproxy.cfg");
    let servers: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("  server "))
        .collect();
    assert_eq!(
        servers,
        [
            "  server cp-1 10.10.0.11:6443",
            "  server cp-3 10.10.0.13:6443"
        ]
    );
    assert!(text.contains("bind 127.0.0.1:6443"), "{text}");
    chunk(&worker, "service.running", "haproxy");
    let packages = chunk(&worker, "pkg.installed", "host-packages");
    assert!(packages.args["pkgs"].to_string().contains("\"haproxy\""));
    // The name resolves to the proxy once that listens.
    let order = |state: &str, id: &str| {
        let found = worker
            .low
            .chunks
            .iter()
            .position(|c| c.state == state && c.id == id);
        found.unwrap_or_else(|| panic!("{state} {id}"))
    };
    assert!(order("service", "haproxy") < order("host", "api-endpoint"));
    chunk(&proxied("bootstrap"), "service.dead", "haproxy");
}

/// The container of flannel's DaemonSet.
fn flanneld(pillar: &Value, grains: &Value) -> Value {
    let master = highstate(pillar, grains);
    let documents = &chunk(&master, "kubernetes.manifest", "flannel").args["documents"];
    let mut documents = documents.as_array().unwrap().iter();
    let daemons = documents.find(|document| document["kind"] == "DaemonSet");
    daemons.unwrap()["spec"]["template"]["spec"]["containers"][0].clone()
}

/// Without a default route, and before kube-proxy runs, Services are unreachable.
#[test]
fn flannel_reaches_the_api_by_its_name_and_not_by_a_service() {
    let (mut pillar, grains) = fixture("master");
    pillar["halite"]["apiServer"]["port"] = json!(7443);
    let env = flanneld(&pillar, &grains)["env"].clone();
    for (name, value) in [
        ("KUBERNETES_SERVICE_HOST", "api.prod.internal"),
        ("KUBERNETES_SERVICE_PORT", "7443"),
    ] {
        let entry = json!({"name": name, "value": value});
        assert!(env.as_array().unwrap().contains(&entry), "{entry} in {env}");
    }
    // It has a copy of the host's names since it started.
    let worker = of("worker");
    let restart = chunk(&worker, "cmd.run", "pkill -x 'kube-proxy|flanneld'");
    assert_eq!(restart.id, "kube-proxy-hosts");
}

/// The firewalls of the other hosts accept traffic from this address only, not from others in the
/// same network.
#[test]
fn flannel_sends_from_the_address_that_halite_chose_for_the_host() {
    let (mut pillar, grains) = fixture("worker");
    pillar["halite"]["node"]["workloadPlane"] = json!("10.9.8.7");
    let worker = highstate(&pillar, &grains);
    let path = "/var/lib/halite/pod-network/address";
    assert_eq!(contents(&worker, path), "10.9.8.7\n");
    let place = |id: &str| worker.low.chunks.iter().position(|chunk| chunk.id == id);
    assert!(
        place(path) < place("kubelet"),
        "before the kubelet starts it"
    );

    let (mut pillar, grains) = fixture("master");
    pillar["halite"]["networks"]["workloadPlane"]["cidrs"] =
        json!(["10.20.0.0/24", "10.0.8.0/22", "172.16.0.0/12", "0.0.0.0/0"]);
    let container = flanneld(&pillar, &grains);
    let script = container["args"][0].as_str().unwrap();
    assert!(script.contains("set -- --iface=\"$address\""), "{script}");
    // A host without the file takes the first address of the networks.
    for pattern in [
        "^10\\.20\\.0\\.[0-9]+$",
        "^10\\.0\\.(8|9|10|11)\\.[0-9]+$",
        "^172\\.(16|17|18|19|20|21|22|23|24|25|26|27|28|29|30|31)\\.[0-9]+\\.[0-9]+$",
        "^[0-9]+\\.[0-9]+\\.[0-9]+\\.[0-9]+$",
    ] {
        let pattern = format!("'--iface-regex={pattern}'");
        assert!(script.contains(&pattern), "{pattern} in {script}");
    }
}

/// The arguments with which the script starts flannel, in a directory in place of the host's.
#[test]
fn the_script_of_flannel_prefers_the_file_of_the_host() {
    let (pillar, grains) = fixture("master");
    let container = flanneld(&pillar, &grains);
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().display().to_string();
    let script = container["args"][0].as_str().unwrap();
    let script = script
        .replace("/var/lib/halite/pod-network", &own)
        .replace("/opt/bin/flanneld", "echo");
    let started = || {
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let without = started();
    assert!(without.contains("--iface-regex=^"), "{without}");
    std::fs::write(directory.path().join("address"), "10.9.8.7\n").unwrap();
    assert_eq!(started(), "--ip-masq --kube-subnet-mgr --iface=10.9.8.7\n");
}

/// Damage that flannel itself does not detect; test programs replace those of the host.
#[test]
fn a_highstate_restarts_a_flannel_whose_file_or_routes_are_missing() {
    let worker = of("worker");
    let chunks = &worker.low.chunks;
    let repaired = chunks.iter().find(|chunk| chunk.id == "flannel-repaired");
    let [onlyif] = repaired.unwrap().controls.onlyif.as_slice() else {
        panic!("{repaired:?}");
    };
    let onlyif = onlyif.as_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path();
    let answers = |name: &str, text: &str| {
        make_program(&own.join(name), &format!("#!/bin/sh\n{text}\n"));
    };
    let subnet = own.join("subnet.env");
    let is_repaired = || {
        let condition = onlyif.replace("/run/flannel/subnet.env", &subnet.display().to_string());
        let path = format!("{}:/usr/bin:/bin", own.display());
        let mut shell = std::process::Command::new("sh");
        let status = shell.args(["-c", &condition]).env("PATH", path).status();
        status.unwrap().success()
    };
    let routes = |count: usize| {
        let lines = "echo 10.233.1.0/24;".repeat(count);
        answers(
            "ip",
            &format!("case \"$2\" in neigh) echo a; echo b;; route) {lines}; esac"),
        );
    };
    answers("ps", "echo '  4711'");
    routes(2);
    std::fs::write(&subnet, "FLANNEL_SUBNET=10.233.1.1/24\n").unwrap();
    assert!(!is_repaired(), "sound");
    routes(1);
    assert!(is_repaired(), "a route is missing");
    routes(2);
    std::fs::remove_file(&subnet).unwrap();
    assert!(is_repaired(), "the file is missing");
    answers("ps", "echo '    20'");
    assert!(!is_repaired(), "it has just started");
    answers("ps", "true");
    assert!(!is_repaired(), "it does not run");
}

/// A taint of a node's document with `NoExecute` would evict the network of pods that stay.
#[test]
fn flannel_tolerates_each_taint_as_kube_proxy_does() {
    let master = of("master");
    for set in ["flannel", "kube-proxy"] {
        let documents = &chunk(&master, "kubernetes.manifest", set).args["documents"];
        let mut documents = documents.as_array().unwrap().iter();
        let daemons = documents.find(|document| document["kind"] == "DaemonSet");
        let tolerations = &daemons.unwrap()["spec"]["template"]["spec"]["tolerations"];
        assert_eq!(tolerations, &json!([{"operator": "Exists"}]), "{set}");
    }
}

/// A reload of firewalld flushes all chains of iptables, including foreign ones, but only its own
/// table of nftables.
#[test]
fn ports_of_hosts_that_lead_to_pods_are_not_in_iptables() {
    for mode in ["nftables", "iptables"] {
        let (mut pillar, grains) = fixture("master");
        pillar["halite"]["kubeProxy"]["mode"] = json!(mode);
        let compiled = highstate(&pillar, &grains);
        let documents = &chunk(&compiled, "kubernetes.manifest", "flannel").args["documents"];
        let mut documents = documents.as_array().unwrap().iter();
        let map = documents.find(|document| document["kind"] == "ConfigMap");
        let text = map.unwrap()["data"]["cni-conf.json"].as_str().unwrap();
        let configuration: Value = serde_json::from_str(text).unwrap();
        let mut plugins = configuration["plugins"].as_array().unwrap().iter();
        let portmap = plugins.find(|plugin| plugin["type"] == "portmap").unwrap();
        assert_eq!(portmap["backend"], "nftables", "{mode}");
    }
}

#[test]
fn without_flannel_no_state_mentions_it() {
    for name in ["bootstrap", "worker", "master"] {
        let (mut pillar, grains) = fixture(name);
        pillar["halite"]["cni"]["plugin"] = json!("none");
        let mut low = highstate(&pillar, &grains).low;
        if name == "master" {
            // The removal of a previous network names its set.
            let owned = low
                .chunks
                .iter_mut()
                .find(|chunk| chunk.fun == "owned")
                .unwrap();
            assert_eq!(owned.args["sets"], json!([]));
            let among = owned.args.shift_remove("among").unwrap();
            assert!(among.as_array().unwrap().contains(&json!("flannel")));
        }
        let text = serde_json::to_string(&low).unwrap();
        assert!(
            !text.contains("flannel") && !text.contains("8472"),
            "{name}"
        );
    }
}

/// Another pod network may have used the same object names, so its objects are removed first.
#[test]
fn objects_of_another_pod_network_are_removed_before_flannel_is_applied() {
    let compiled = of("master");
    let place = |id: &str| {
        compiled
            .low
            .chunks
            .iter()
            .position(|chunk| chunk.id == id)
            .unwrap()
    };
    assert!(place("addons-owned") < place("flannel"));
    assert_eq!(
        chunk(&compiled, "kubernetes.manifest", "flannel").args["set"],
        "flannel"
    );
}
