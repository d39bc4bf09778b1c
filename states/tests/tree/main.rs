//! The shipped tree compiles for every kind of target, secrets go only where they belong, and what the states are, and in
//! which order they run, stands in goldens. `HALITE_UPDATE_GOLDENS=1 cargo test -p halite-states --test tree` writes the goldens.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

use std::fs;
use std::path::{Path, PathBuf};

use halite_states::compile::{self, Compiled, Input};
use halite_states::low::Chunk;
use halite_states::tree::DirTree;
use serde_json::{Value, json};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Pillar and grains of one target.
fn fixture(name: &str) -> (Value, Value) {
    let text = fs::read_to_string(here().join(format!("tests/tree/{name}.json"))).unwrap();
    let mut fixture: Value = serde_json::from_str(&text).unwrap();
    (fixture["pillar"].take(), fixture["grains"].take())
}

fn bundle(path: &str) -> Option<String> {
    ["bin/ctl", "bin/halite-master", "bin/halite-minion", "apt/halite.gpg", "rpm/halite.asc"]
        .contains(&path)
        .then(|| halite_states::tree::sha256(path.as_bytes()))
}

fn with<R>(pillar: &Value, grains: &Value, run: impl FnOnce(&Input) -> R) -> R {
    let tree = DirTree::new().root(here().join("tree"));
    let minion = grains["id"].as_str().unwrap();
    run(&Input { tree: &tree, minion, pillar, grains, bundle: &bundle })
}

fn sure(compiled: Result<Compiled, Vec<halite_states::problem::Problem>>) -> Compiled {
    compiled.unwrap_or_else(|problems| {
        panic!("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })
}

fn highstate(pillar: &Value, grains: &Value) -> Compiled {
    sure(with(pillar, grains, compile::highstate))
}

fn of(name: &str) -> Compiled {
    let (pillar, grains) = fixture(name);
    highstate(&pillar, &grains)
}

fn chunk<'a>(compiled: &'a Compiled, fun: &str, name: &str) -> &'a Chunk {
    let found = compiled.low.chunks.iter().find(|chunk| chunk.function() == fun && chunk.name == name);
    found.unwrap_or_else(|| panic!("no {fun} {name}"))
}

fn contents<'a>(compiled: &'a Compiled, name: &str) -> &'a str {
    chunk(compiled, "file.managed", name).args["contents"].as_str().unwrap()
}

/// Compares with a golden file, or writes it.
fn golden(name: &str, actual: &str) {
    let path: PathBuf = here().join("tests/tree").join(name);
    if std::env::var_os("HALITE_UPDATE_GOLDENS").is_some() {
        fs::write(&path, actual).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), actual, "{}", path.display());
}

fn listing(compiled: &Compiled) -> String {
    compiled
        .low
        .chunks
        .iter()
        .map(|chunk| {
            let name = if chunk.name == chunk.id { String::new() } else { format!(" ({})", chunk.name) };
            format!("{:<24} {:<28} {}{name}\n", chunk.sls, chunk.function(), chunk.id)
        })
        .collect()
}

#[test]
fn every_target_has_its_states_in_order() {
    for name in ["bootstrap", "worker", "master"] {
        golden(&format!("{name}.txt"), &listing(&of(name)));
    }
}

/// `creates` would never renew the operator's certificate.
#[test]
fn the_masters_files_are_made_again_when_they_are_missing_or_due() {
    let compiled = of("bootstrap");
    let init =
        &chunk(&compiled, "cmd.run", "/usr/local/bin/halite-master init --config /etc/halite/master.yaml")
            .controls;
    assert!(init.creates.is_empty());
    let calls = |fun: &str| {
        let of_fun = init.unless.iter().filter(|call| call["fun"] == fun);
        of_fun.map(|call| call["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        calls("x509.current"),
        ["/var/lib/halite/master/identity.crt", "/etc/halite/operator/operator.crt"]
    );
    let kept = calls("file.file_exists");
    for path in ["ca/halite.crt", "ca/kubernetes.key", "ca/site.crt", "sa.key", "sa.pub"] {
        assert!(kept.contains(&format!("/var/lib/halite/master/{path}")), "{path} is not among {kept:?}");
    }
    let compared = init.unless.iter().filter_map(serde_json::Value::as_str).collect::<Vec<_>>();
    assert!(matches!(compared[..], [line] if line.contains("/etc/halite/operator/ca.crt")), "{compared:?}");
}

/// Runs a line with `systemctl` and `ctr` that answer as given; the exit code.
fn shell(line: &str, name: &str, active: bool, plugins: &str) -> Option<i32> {
    let programs = std::env::temp_dir().join(format!("halite-tree-{}-{name}", std::process::id()));
    fs::create_dir_all(&programs).unwrap();
    for (program, text) in [
        ("systemctl", format!("exit {}", if active { 0 } else { 3 })),
        ("ctr", format!("printf '{plugins}'")),
        ("sleep", "exit 0".to_owned()),
    ] {
        let path = programs.join(program);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).unwrap();
    }
    let path = format!("{}:/usr/bin:/bin", programs.display());
    let output = std::process::Command::new("/bin/sh").args(["-c", line]).env("PATH", path).output().unwrap();
    fs::remove_dir_all(programs).unwrap();
    output.status.code()
}

#[test]
fn a_containerd_without_its_cri_is_no_runtime() {
    for target in ["bootstrap", "worker"] {
        let compiled = of(target);
        let wait = compiled.low.chunks.iter().find(|chunk| chunk.id == "containerd-answers").unwrap();
        let unless = wait.controls.unless[0].as_str().unwrap();
        let line = |status: &str| {
            format!(
                "TYPE    ID    PLATFORMS    STATUS\\nio.containerd.grpc.v1    cri    -    {status}    \\n"
            )
        };
        let good = line("ok");
        let bad = line("error").replace("STATUS", "STATUS    \\nio.containerd.grpc.v1    images    -    ok");
        assert_eq!(shell(unless, target, false, ""), Some(0), "not started: nothing can be said");
        assert_eq!(shell(unless, target, true, &good), Some(0), "it answers: no change");
        assert_eq!(shell(unless, target, true, &bad), Some(1));
        assert_eq!(shell(&wait.name, target, true, &good), Some(0));
        assert_eq!(shell(&wait.name, target, true, &bad), Some(1), "it says so after a while");
        let kubelet = chunk(&compiled, "service.running", "kubelet");
        let place = compiled.low.chunks.iter().position(|chunk| chunk.id == "containerd-answers").unwrap();
        assert!(kubelet.requisites.require.contains(&place), "the kubelet waits for it");
    }
}

/// The pillar of a site with a registry of its own on a host, as another or that one sees it.
fn site_registry(target: &str, host: &str) -> (Value, Value) {
    let (mut pillar, grains) = fixture(target);
    let registry = &mut pillar["siteRegistry"];
    registry["enabled"] = json!(true);
    registry["node"] = json!(host);
    registry["address"] = json!("10.10.0.11");
    registry["pull"] = json!("halite-secret::siteRegistry.pull::");
    if grains["id"] == host {
        registry["htpasswd"] = json!("halite-secret::siteRegistry.htpasswd::");
    }
    (pillar, grains)
}

#[test]
fn a_registry_of_the_sites_own_runs_on_its_host_and_is_known_to_all() {
    let (pillar, grains) = site_registry("bootstrap", "bootstrap-1");
    let here = highstate(&pillar, &grains);
    golden("site-registry.txt", &listing(&here));
    let users = chunk(&here, "file.managed", "/etc/halite/registry/htpasswd");
    assert_eq!(users.args["mode"], 0o640);
    let unit = contents(&here, "/etc/systemd/system/halite-registry-backup.service");
    assert!(
        unit.contains("backup --data /var/lib/halite/registry --to /var/backups/halite/registry --keep 7"),
        "{unit}"
    );
    let timer = contents(&here, "/etc/systemd/system/halite-registry-backup.timer");
    assert!(timer.contains("OnCalendar=*-*-* 02:30:00"), "{timer}");
    let rules = chunk(&here, "firewalld.policy", "halite-host").args["rich_rules"].to_string();
    assert!(rules.contains("port=\\\"4552\\\""), "{rules}");
    let packages = &chunk(&here, "pkg.installed", "host-packages").args["pkgs"];
    assert!(packages.to_string().contains("distribution-registry"), "{packages}");

    let (pillar, grains) = site_registry("worker", "bootstrap-1");
    let other = highstate(&pillar, &grains);
    for compiled in [&here, &other] {
        let place = "/etc/containerd/certs.d/registry.prod.internal:4552/hosts.toml";
        let pulls = chunk(compiled, "file.managed", place);
        assert_eq!(pulls.args["mode"], 0o600);
        let text = pulls.args["contents"].as_str().unwrap();
        assert!(text.contains("Authorization = \"Basic halite-secret::siteRegistry.pull::\""), "{text}");
        assert!(
            text.starts_with("# Written") && text.contains("server = \"https://10.10.0.11:4552\""),
            "{text}"
        );
        chunk(compiled, "host.present", "registry.prod.internal");
    }
    let rules = chunk(&other, "firewalld.policy", "halite-host").args["rich_rules"].to_string();
    assert!(!rules.contains("4552"), "{rules}");
    assert!(!listing(&other).contains("/etc/halite/registry/htpasswd"));
    // What is kept there stays, whoever runs it next.
    for compiled in [&other, &of("bootstrap")] {
        for chunk in compiled.low.chunks.iter().filter(|chunk| chunk.function() == "file.absent") {
            assert!(!chunk.name.starts_with("/var/") || !chunk.name.contains("registry"), "{}", chunk.name);
        }
        chunk(compiled, "service.dead", "halite-registry");
    }
}

/// The pillar of a site with a second host that serves, and two bundles; as `target` sees it.
fn two_servers(target: &str) -> (Value, Value) {
    let (mut pillar, mut grains) = fixture(if target == "bootstrap-1" { "bootstrap" } else { "worker" });
    let url = |host: &str| format!("https://{host}:4551/bundles/0.1.0");
    pillar["bundle"]["servers"] = json!([url("10.10.0.11"), url("10.10.0.13")]);
    let further = json!({"version": "0.2.0", "kubernetes": "v1.37.0", "path": "/mnt/next", "manifest": "ee"});
    pillar["bundles"].as_array_mut().unwrap().push(further);
    let mut second = pillar["nodes"]["worker-1"].clone();
    second["roles"] = json!(["registry"]);
    second["controlPlane"] = json!("10.10.0.13");
    pillar["nodes"]["registry-2"] = second.clone();
    if target == "registry-2" {
        second["name"] = json!(target);
        pillar["node"] = second;
        grains["id"] = json!(target);
    }
    (pillar, grains)
}

#[test]
fn a_second_host_that_serves_copies_what_the_first_one_has() {
    let (pillar, grains) = two_servers("registry-2");
    let compiled = highstate(&pillar, &grains);
    golden("registry.txt", &listing(&compiled));
    let nginx = contents(&compiled, "/etc/nginx/conf.d/halite.conf");
    for part in [
        "listen 10.10.0.13:4551 ssl;",
        "\"0.1.0\" \"/var/lib/halite/bundles/0.1.0\";",
        "\"0.2.0\" \"/var/lib/halite/bundles/0.2.0\";",
        "include /var/lib/halite/bundles/0.2.0/nginx/manifests.map*;",
        "include /var/lib/halite/bundles/0.1.0/nginx/registry.conf*;",
        "rewrite ^ /bundles/0.1.0$uri last;",
    ] {
        assert!(nginx.contains(part), "{part} in {nginx}");
    }
    assert!(!nginx.contains("/media/halite") && !nginx.contains("/mnt/next"), "{nginx}");
    let packages = &chunk(&compiled, "pkg.installed", "host-packages").args["pkgs"];
    assert!(packages.as_array().unwrap().contains(&json!("nginx-light")), "{packages}");
    let rules = chunk(&compiled, "firewalld.policy", "halite-host").args["rich_rules"].to_string();
    assert!(rules.contains("4551") && !rules.contains("4550"), "{rules}");
    let certificate = chunk(&compiled, "x509.certificate", "/etc/halite/pki/server.crt");
    assert_eq!(certificate.args["sans_ip"], json!(["10.10.0.13", "127.0.0.1"]));
    // The bootstrap host serves each bundle from where it stands.
    let (pillar, grains) = two_servers("bootstrap-1");
    let first = highstate(&pillar, &grains);
    let nginx = contents(&first, "/etc/nginx/conf.d/halite.conf");
    assert!(nginx.contains("include /media/halite/nginx/registry.conf*;"), "{nginx}");
    assert!(nginx.contains("\"0.2.0\" \"/mnt/next\";"), "{nginx}");
    assert!(!first.low.chunks.iter().any(|chunk| chunk.name.contains("bundle copy")));
}

#[test]
fn every_client_asks_one_server_after_the_other_itself_first() {
    let first = "https://10.10.0.11:4551/bundles/0.1.0";
    let second = "https://10.10.0.13:4551/bundles/0.1.0";
    let hosts = "/etc/containerd/certs.d/_default/hosts.toml";
    let mirrors = "/etc/apt/halite/0.1.0.mirrors";
    let (mut pillar, grains) = two_servers("worker-1");
    let worker = highstate(&pillar, &grains);
    assert_eq!(
        contents(&worker, hosts),
        format!(
            "# Written by Halite. Every registry's name leads to the bundle, and nowhere else. A host that does not answer \
             within\n# `dial_timeout` is passed over, and what broke off is taken up at the next one.\n\
             server = \"{second}/v2\"\ncapabilities = [\"pull\", \"resolve\"]\n\
             ca = \"/etc/halite/pki/site-ca.crt\"\noverride_path = true\ndial_timeout = \"2s\"\n\n\
             [host.\"{first}/v2\"]\n  capabilities = [\"pull\", \"resolve\"]\n  \
             ca = \"/etc/halite/pki/site-ca.crt\"\n  override_path = true\n  dial_timeout = \"2s\"\n"
        )
    );
    assert_eq!(contents(&worker, mirrors), format!("{first}/apt\tpriority:1\n{second}/apt\tpriority:2\n"));
    let apt = contents(&worker, "/etc/apt/apt.conf.d/60halite");
    for host in ["10.10.0.11", "10.10.0.13"] {
        assert!(
            apt.contains(&format!("Acquire::https::{host}::CaInfo \"/etc/halite/pki/site-ca.crt\";")),
            "{apt}"
        );
    }
    // One that serves and runs pods asks itself first.
    pillar["node"]["controlPlane"] = json!("10.10.0.13");
    pillar["node"]["roles"] = json!(["worker", "registry"]);
    let both = highstate(&pillar, &grains);
    assert!(contents(&both, hosts).contains(&format!("server = \"{first}/v2\"")));
    assert!(contents(&both, hosts).contains(&format!("[host.\"{second}/v2\"]")));
    assert!(contents(&both, mirrors).starts_with(second));
}

#[test]
fn red_hats_hosts_ask_the_yum_repository_for_what_they_call_so() {
    let (mut pillar, mut grains) = two_servers("worker-1");
    grains["os_family"] = json!("RedHat");
    pillar["rpms"] = json!({"kubelet": "1.36.3-2"});
    let worker = highstate(&pillar, &grains);
    let repository = &chunk(&worker, "pkgrepo.managed", "halite").args;
    let servers = ["10.10.0.11", "10.10.0.13"];
    let servers = servers.map(|host| format!("https://{host}:4551/bundles/0.1.0/rpm"));
    assert_eq!(repository["uris"], json!(servers));
    assert_eq!(repository["signed_by"], "/etc/pki/rpm-gpg/RPM-GPG-KEY-halite");
    assert_eq!((&repository["signed_index"], &repository["proxy"]), (&json!(true), &json!("_none_")));
    assert_eq!(repository["sslcacert"], "/etc/halite/pki/site-ca.crt");
    chunk(&worker, "file.managed", "/etc/pki/rpm-gpg/RPM-GPG-KEY-halite");
    assert!(!worker.low.chunks.iter().any(|chunk| chunk.name.starts_with("/etc/apt")));
    let packages = &chunk(&worker, "pkg.installed", "host-packages").args["pkgs"];
    for wanted in [json!("conntrack-tools"), json!("iptables-nft"), json!({"kubelet": "1.36.3-2"})] {
        assert!(packages.as_array().unwrap().contains(&wanted), "{wanted}: {packages}");
    }
    // The first host has the bundle itself.
    let (mut pillar, mut grains) = fixture("bootstrap");
    grains["os_family"] = json!("RedHat");
    pillar["rpms"] = json!({});
    let first = highstate(&pillar, &grains);
    let path = pillar["bundle"]["path"].as_str().unwrap();
    let uris = &chunk(&first, "pkgrepo.managed", "halite").args["uris"];
    assert_eq!(uris, &json!([format!("file://{path}/rpm")]));
}

#[test]
fn orchestrations_compile() {
    let (pillar, grains) = fixture("master");
    let bootstrap = sure(with(&pillar, &grains, |i| compile::sls(i, &["orchestrate.bootstrap".to_owned()])));
    let steps = |compiled: &Compiled| compiled.low.chunks.iter().map(|c| c.id.clone()).collect::<Vec<_>>();
    assert_eq!(
        steps(&bootstrap),
        ["host", "images", "containerd", "etcd", "control-plane", "network", "ready", "custom"]
    );
    let mut pillar = pillar;
    pillar["node"] = json!("worker-1");
    let add = sure(with(&pillar, &grains, |i| compile::sls(i, &["orchestrate.add_node".to_owned()])));
    assert_eq!(
        steps(&add),
        ["enrolled", "peers", "host", "containerd", "kubelet", "node", "ready", "custom"]
    );
    assert_eq!(add.low.chunks[2].args["tgt"], "worker-1");
    for (roles, wanted) in [
        (
            json!(["worker", "registry"]),
            &[
                "enrolled",
                "peers",
                "host",
                "registry",
                "containerd",
                "kubelet",
                "node",
                "ready",
                "custom",
                "clients",
            ][..],
        ),
        (json!(["registry"]), &["enrolled", "peers", "host", "registry", "custom", "clients"]),
        (json!(["frontend"]), &["enrolled", "peers", "host", "custom"]),
    ] {
        pillar["nodes"]["worker-1"]["roles"] = roles;
        let add = sure(with(&pillar, &grains, |i| compile::sls(i, &["orchestrate.add_node".to_owned()])));
        assert_eq!(steps(&add), wanted);
    }
}

/// Every SLS that a step names can be applied alone.
#[test]
fn every_step_compiles_alone() {
    let steps: [(&str, &[&str]); 3] = [
        (
            "bootstrap",
            &[
                "host",
                "halite.bundle_server",
                "halite.master",
                "halite.minion",
                "base.containerd",
                "images",
                "base.kubelet",
                "base.etcd",
                "base.control_plane",
            ],
        ),
        (
            "worker",
            &[
                "host",
                "host.hosts",
                "host.firewall",
                "host.repository",
                "base.containerd",
                "base.containerd.servers",
                "images",
                "base.kubelet",
            ],
        ),
        (
            "master",
            &["base.nodes", "base.network", "base.kube_proxy", "base.coredns", "addons", "addons.owned"],
        ),
    ];
    for (name, slss) in steps {
        let (pillar, grains) = fixture(name);
        for sls in slss {
            let compiled = sure(with(&pillar, &grains, |i| compile::sls(i, &[(*sls).to_owned()])));
            assert!(!compiled.low.chunks.is_empty(), "{name} {sls}");
        }
    }
}

#[test]
fn secrets_are_in_key_files_and_nowhere_else() {
    let holding = |compiled: &Compiled| {
        let mut names = Vec::new();
        for chunk in &compiled.low.chunks {
            let holds = serde_json::to_string(chunk).unwrap().contains("halite-secret::");
            assert_eq!(chunk.sensitive, holds, "{}", chunk.id);
            if holds {
                assert_eq!(chunk.args["mode"], json!(0o600), "{}", chunk.id);
                names.push(chunk.name.clone());
            }
        }
        names
    };
    let mut keys = holding(&of("bootstrap"));
    keys.sort();
    let pki = "/etc/kubernetes/pki";
    assert_eq!(
        keys,
        [
            format!("{pki}/ca.key"),
            format!("{pki}/etcd/ca.key"),
            format!("{pki}/front-proxy-ca.key"),
            format!("{pki}/sa.key")
        ]
    );
    assert!(holding(&of("worker")).is_empty());
    assert!(holding(&of("master")).is_empty());
}

#[test]
fn what_the_enrolment_script_writes_is_what_the_states_want() {
    let worker = of("worker");
    let script_owner = of("bootstrap");
    let script = contents(&script_owner, "/srv/halite/enrol.sh");
    let unit = contents(&worker, "/etc/systemd/system/halite-minion.service");
    let heredoc = |marker: &str| {
        let start = script.find(&format!("<<{marker}\n")).unwrap() + marker.len() + 3;
        let end = script[start..].find(&format!("\n{}\n", marker.trim_matches('\''))).unwrap();
        format!("{}\n", &script[start..start + end])
    };
    assert_eq!(heredoc("'UNIT'"), unit);
    // Also in the last byte: otherwise the first highstate of a new node would restart its minion.
    let managed = chunk(&worker, "file.managed", "/etc/systemd/system/halite-minion.service");
    assert!(unit.ends_with('\n') && managed.args["contents_newline"] == json!(true));
    let configuration = contents(&worker, "/etc/halite/minion.yaml");
    let master = "10.10.0.11:4550";
    assert!(script.contains(&format!("master='{master}'")));
    assert_eq!(
        heredoc("CONFIGURATION").replace("$name", "worker-1").replace("$master", master),
        configuration
    );
}

#[test]
fn a_control_plane_may_have_no_virtual_address_or_a_foreign_one() {
    let (mut pillar, grains) = fixture("bootstrap");
    pillar["apiServer"]["keepalived"] = json!(false);
    let foreign = highstate(&pillar, &grains);
    chunk(&foreign, "service.dead", "keepalived");
    pillar["apiServer"]["vip"] = Value::Null;
    pillar["apiServer"]["address"] = json!("10.10.0.11");
    let none = highstate(&pillar, &grains);
    chunk(&none, "service.dead", "keepalived");
    assert_eq!(chunk(&none, "host.present", "api.prod.internal").args["ip"], json!(["10.10.0.11"]));
    // No certificate depends on the address of the endpoint.
    let certificates = |compiled: &Compiled| {
        compiled.low.chunks.iter().filter(|c| c.state == "x509").map(|c| c.args.clone()).collect::<Vec<_>>()
    };
    assert_eq!(certificates(&of("bootstrap")), certificates(&none));

    // It may all the same be called by its address: then the certificate holds it, in every mode.
    pillar["apiServer"]["certSANs"] = json!(["10.10.0.100"]);
    let none = highstate(&pillar, &grains);
    let apiserver = chunk(&none, "x509.certificate", "/etc/kubernetes/pki/apiserver.crt");
    assert!(apiserver.args["sans_ip"].as_array().unwrap().contains(&json!("10.10.0.100")));
    for held in [true, false] {
        pillar["apiServer"]["vip"] = json!("10.10.0.100");
        pillar["apiServer"]["address"] = json!("10.10.0.100");
        pillar["apiServer"]["keepalived"] = json!(held);
        assert_eq!(certificates(&highstate(&pillar, &grains)), certificates(&none), "held by us: {held}");
    }
}

#[test]
fn the_operators_settings_reach_their_files() {
    let (mut pillar, grains) = fixture("bootstrap");
    pillar["kubelet"]["config"] = json!({"failCgroupV1": false, "maxPods": 60});
    pillar["containerd"] = json!({
        "restrictOomScoreAdj": true,
        "config": {"plugins": {"io.containerd.cri.v1.runtime": {"cni": {"bin_dirs": ["/opt/cni/bin", "/x"]}}}},
    });
    pillar["apiServer"]["certSANs"] = json!(["k8s.example.com", "192.0.2.7"]);
    pillar["apiServer"]["extraArgs"] =
        json!({"audit-log-maxage": "30", "etcd-servers": "https://a:1,https://b:1"});
    pillar["host"] = json!({
        "sysctls": {"net.ipv4.ip_forward": null, "vm.max_map_count": "262144"},
        "kernelModules": [], "manageSwap": false, "manageFirewall": false, "packages": ["chrony"],
    });
    let compiled = highstate(&pillar, &grains);
    let kubelet = contents(&compiled, "/var/lib/kubelet/config.yaml");
    assert!(kubelet.contains("failCgroupV1: false\n") && kubelet.contains("maxPods: 60\n"), "{kubelet}");
    let containerd = contents(&compiled, "/etc/containerd/config.toml");
    assert!(containerd.contains("\"restrict_oom_score_adj\" = true\n"), "{containerd}");
    assert!(containerd.contains("\"cni\".\"bin_dirs\" = [\"/opt/cni/bin\", \"/x\"]\n"), "{containerd}");
    let apiserver = chunk(&compiled, "x509.certificate", "/etc/kubernetes/pki/apiserver.crt");
    let sans = |key: &str, san: &str| apiserver.args[key].as_array().unwrap().contains(&json!(san));
    assert!(sans("sans_dns", "k8s.example.com") && sans("sans_ip", "192.0.2.7"));
    let pod = contents(&compiled, "/etc/kubernetes/manifests/kube-apiserver.yaml");
    assert!(pod.contains("- \"--audit-log-maxage=30\"\n"), "{pod}");
    assert!(pod.contains("- \"--etcd-servers=https://a:1,https://b:1\"\n"), "{pod}");
    assert!(!compiled.low.chunks.iter().any(|c| c.name == "net.ipv4.ip_forward" || c.state == "firewalld"));
    assert!(!compiled.low.chunks.iter().any(|c| c.state == "swap" || c.state == "kmod"));
    chunk(&compiled, "sysctl.present", "vm.max_map_count");
    let packages = &chunk(&compiled, "pkg.installed", "host-packages").args["pkgs"];
    assert!(packages.as_array().unwrap().contains(&json!("chrony")), "{packages}");
}

#[test]
fn flannel_finds_its_interface_by_the_workload_network() {
    let (mut pillar, grains) = fixture("master");
    pillar["networks"]["workloadPlane"]["cidrs"] =
        json!(["10.20.0.0/24", "10.0.8.0/22", "172.16.0.0/12", "0.0.0.0/0"]);
    let text =
        serde_json::to_string(&chunk(&highstate(&pillar, &grains), "kubernetes.manifest", "flannel").args)
            .unwrap();
    for pattern in [
        "^10\\.20\\.0\\.[0-9]+$",
        "^10\\.0\\.(8|9|10|11)\\.[0-9]+$",
        "^172\\.(16|17|18|19|20|21|22|23|24|25|26|27|28|29|30|31)\\.[0-9]+\\.[0-9]+$",
        "^[0-9]+\\.[0-9]+\\.[0-9]+\\.[0-9]+$",
    ] {
        assert!(
            text.contains(&serde_json::to_string(&format!("--iface-regex={pattern}")).unwrap()),
            "{pattern} in {text}"
        );
    }
}

#[test]
fn without_a_pod_network_of_ours_nothing_of_it_is_left() {
    for name in ["bootstrap", "worker", "master"] {
        let (mut pillar, grains) = fixture(name);
        pillar["cni"]["plugin"] = json!("none");
        let text = serde_json::to_string(&highstate(&pillar, &grains).low).unwrap();
        assert!(!text.contains("flannel") && !text.contains("8472"), "{name}");
    }
}

#[test]
fn addons_are_sets_and_what_is_off_is_none() {
    let (mut pillar, grains) = fixture("master");
    let owned = |pillar: &Value| {
        chunk(&highstate(pillar, &grains), "kubernetes.owned", "addons-owned").args["sets"].clone()
    };
    assert_eq!(owned(&pillar), json!([]));
    pillar["addons"] = json!({"metricsServer": true, "localPath": true});
    pillar["images"]["metrics-server"] = json!("r.example/metrics-server:1");
    pillar["images"]["local-path-provisioner"] = json!("r.example/provisioner:1");
    pillar["images"]["local-path-helper"] = json!("r.example/shell:1");
    assert_eq!(owned(&pillar), json!(["metrics-server", "local-path"]));
    let compiled = highstate(&pillar, &grains);
    for (set, kinds, images) in [
        ("metrics-server", ["APIService", "Deployment"], &["r.example/metrics-server:1"][..]),
        ("local-path", ["StorageClass", "Namespace"], &["r.example/provisioner:1", "r.example/shell:1"]),
    ] {
        let args = &chunk(&compiled, "kubernetes.manifest", set).args;
        assert_eq!(args["set"], set);
        let documents = args["documents"].as_array().unwrap();
        for kind in kinds {
            assert!(documents.iter().any(|document| document["kind"] == kind), "{set}: {kind}");
        }
        let text = args["documents"].to_string();
        for image in images {
            assert!(text.contains(image), "{set}: {image}");
        }
    }
    let place = |id: &str| compiled.low.chunks.iter().position(|chunk| chunk.id == id).unwrap();
    assert!(place("addons-owned") < place("metrics-server"), "what goes, goes first");

    pillar["images"].as_object_mut().unwrap().remove("local-path-helper");
    let problems = with(&pillar, &grains, compile::highstate).unwrap_err();
    assert!(problems[0].to_string().contains("no image `local-path-helper`"), "{}", problems[0]);
}

#[test]
fn charts_come_from_the_bundle_and_an_unknown_one_is_named() {
    let (mut pillar, grains) = fixture("master");
    pillar["bundle"]["charts"] = json!({"demo": "1.0.0", "logs": "2.0.0"});
    pillar["charts"] = json!(["demo"]);
    let bundle_dir = std::env::temp_dir().join(format!("halite-tree-charts-{}", std::process::id()));
    fs::create_dir_all(bundle_dir.join("charts")).unwrap();
    let text = "kind: Service\napiVersion: v1\nmetadata: {name: demo}\n---\nkind: Role\napiVersion: rbac.authorization.k8s.io/v1\nmetadata: {name: demo}\n";
    fs::write(bundle_dir.join("charts/demo.yaml"), text).unwrap();
    let tree = DirTree::new().bundle(&bundle_dir).root(here().join("tree"));
    let compile = |pillar: &Value| {
        compile::highstate(&Input { tree: &tree, minion: "master", pillar, grains: &grains, bundle: &bundle })
    };
    let compiled = sure(compile(&pillar));
    let args = &chunk(&compiled, "kubernetes.manifest", "chart-demo").args;
    assert_eq!((args["set"].as_str(), args["documents"].as_array().unwrap().len()), (Some("chart-demo"), 2));
    assert_eq!(chunk(&compiled, "kubernetes.owned", "addons-owned").args["sets"], json!(["chart-demo"]));
    pillar["charts"] = json!(["dmeo"]);
    let problems = compile(&pillar).unwrap_err();
    assert!(problems[0].to_string().contains("no chart `dmeo`; it has demo, logs"), "{}", problems[0]);
    fs::remove_dir_all(bundle_dir).unwrap();
}

/// Who asks a kubelet for numbers gets through to it, and knows it; nobody else, and not without the addon.
#[test]
fn metrics_server_reaches_every_kubelet() {
    let rule = |text: &str| {
        format!("rule family=\"ipv4\" source address=\"{text}\" port port=\"10250\" protocol=\"tcp\" accept")
    };
    for (name, other, own) in
        [("bootstrap", "10.10.1.12", "10.10.0.11"), ("worker", "10.10.0.11", "10.10.1.12")]
    {
        let (mut pillar, grains) = fixture(name);
        let is_open = |compiled: &Compiled, source: &str| {
            let rules = &chunk(compiled, "firewalld.policy", "halite-host").args["rich_rules"];
            rules.as_array().unwrap().contains(&json!(rule(source)))
        };
        let crt = "/var/lib/kubelet/pki/kubelet.crt";
        let off = highstate(&pillar, &grains);
        assert!(!is_open(&off, "10.233.0.0/16"));
        assert!(!off.low.chunks.iter().any(|chunk| chunk.name == crt));
        pillar["addons"]["metricsServer"] = json!(true);
        let on = highstate(&pillar, &grains);
        for source in ["10.233.0.0/16", other] {
            assert!(is_open(&on, source), "{name}: {source}");
        }
        let certificate = &chunk(&on, "x509.certificate", crt).args;
        assert_eq!((&certificate["sans_ip"], &certificate["server_auth"]), (&json!([own]), &json!(true)));
        assert!(!certificate.contains_key("client_auth"));
    }
}

/// What only the test machines need must come through pillar keys that any operator can set.
#[test]
fn the_tree_knows_nothing_of_the_lab() {
    for file in halite_states::tree::Tree::list(&DirTree::new().root(here().join("tree"))) {
        let text = fs::read_to_string(here().join("tree").join(&file)).unwrap();
        for word in ["failCgroupV1", "10.10.", "10.20.", "bootstrap-1", "worker-1", "nspawn"] {
            assert!(!text.contains(word), "{file}: {word}");
        }
    }
}

/// The checksum tells kubeadm whether somebody changed its defaults; this one is made by kubeadm v1.36.3 for the same
/// cluster domain and DNS address.
#[test]
fn without_settings_of_the_operator_the_kubelets_configuration_is_kubeadms_own_text() {
    let (mut pillar, grains) = fixture("master");
    let hash = |pillar: &Value| {
        let compiled = highstate(pillar, &grains);
        let documents = &chunk(&compiled, "kubernetes.manifest", "kubeadm-configuration").args["documents"];
        documents[1]["metadata"]["annotations"]["kubeadm.kubernetes.io/component-config.hash"].clone()
    };
    assert_eq!(hash(&pillar), "sha256:26488e9fc7c5cb5fdda9996cda2e6651a9af5febce07ea02de11bd3ef3f49e9c");
    pillar["kubelet"]["config"] = json!({"maxPods": 60});
    assert_eq!(hash(&pillar), Value::Null);
}

/// kubeadm's differences between the minor versions of Kubernetes that the tree knows; the lab's suite `versions: …` holds
/// them against the real ones.
#[test]
fn each_release_gets_what_its_kubeadm_makes() {
    let (bootstrap, grains) = fixture("bootstrap");
    let (master, of_master) = fixture("master");
    for (version, older) in [("v1.35.4", true), ("1.35", true), ("v1.36.3", false)] {
        let (mut bootstrap, mut master) = (bootstrap.clone(), master.clone());
        for pillar in [&mut bootstrap, &mut master] {
            pillar["kubernetes"]["version"] = json!(version);
        }
        let host = highstate(&bootstrap, &grains);
        let client =
            chunk(&host, "x509.certificate", "/etc/kubernetes/pki/apiserver-kubelet-client.crt").args.clone();
        let groups = if older { json!(["kubeadm:cluster-admins"]) } else { Value::Null };
        assert_eq!(client.get("organization").unwrap_or(&Value::Null), &groups, "{version}");
        let controllers = contents(&host, "/etc/kubernetes/manifests/kube-controller-manager.yaml");
        assert_eq!(controllers.matches("flexvolume-dir").count(), if older { 2 } else { 0 }, "{version}");
        let objects = highstate(&master, &of_master);
        let rights = &chunk(&objects, "kubernetes.manifest", "kubeadm-rbac").args["documents"];
        let names: Vec<&str> = rights
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|object| object["metadata"]["name"].as_str())
            .collect();
        assert_eq!(names.contains(&"kubeadm:apiserver-kubelet-client"), !older, "{version}: {names:?}");
        assert_eq!(names.len(), if older { 12 } else { 13 }, "{version}: {names:?}");
    }
}

#[test]
fn a_kubernetes_that_the_tree_does_not_know_is_refused() {
    for name in ["bootstrap", "worker", "master"] {
        let (mut pillar, grains) = fixture(name);
        pillar["kubernetes"]["version"] = json!("v1.34.4");
        let problems = with(&pillar, &grains, compile::highstate).unwrap_err();
        let told = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(told.contains("the state tree knows Kubernetes 1.35, 1.36, not v1.34.4"), "{name}: {told}");
    }
}
