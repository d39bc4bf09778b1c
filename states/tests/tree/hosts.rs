//! A host's own services and files.

use halite_states::compile;
use halite_states::low::Chunk;
use serde_json::json;

use crate::support::{chunk, contents, fixture, highstate, make_program, of, sure, with};

/// `creates` would never renew the operator's certificate.
#[test]
fn the_masters_files_are_made_again_when_they_are_missing_or_due() {
    let compiled = of("bootstrap");
    let init = &chunk(
        &compiled,
        "cmd.run",
        "/usr/local/bin/halite-master init --config /etc/halite/master.yaml",
    )
    .controls;
    assert!(init.creates.is_empty());
    let calls = |fun: &str| {
        let of_fun = init.unless.iter().filter(|call| call["fun"] == fun);
        of_fun
            .map(|call| call["path"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        calls("x509.current"),
        [
            "/var/lib/halite/master/identity.crt",
            "/etc/halite/operator/operator.crt"
        ]
    );
    let kept = calls("file.file_exists");
    for path in [
        "ca/halite.crt",
        "ca/kubernetes.key",
        "ca/site.crt",
        "sa.key",
        "sa.pub",
    ] {
        assert!(
            kept.contains(&format!("/var/lib/halite/master/{path}")),
            "{path} is not among {kept:?}"
        );
    }
    let compared = init
        .unless
        .iter()
        .filter_map(serde_json::Value::as_str)
        .collect::<Vec<_>>();
    assert!(
        matches!(compared[..], [line] if line.contains("/etc/halite/operator/ca.crt")),
        "{compared:?}"
    );
}

/// The exit code of a line, run with fakes of `systemctl` and `ctr`.
fn shell(line: &str, unit: &str, plugins: &str) -> Option<i32> {
    let directory = tempfile::tempdir().unwrap();
    let programs = directory.path();
    for (program, text) in [
        (
            "systemctl",
            format!("echo {unit}; exit {}", if unit == "active" { 0 } else { 3 }),
        ),
        ("ctr", format!("printf '{plugins}'")),
        ("sleep", "exit 0".to_owned()),
    ] {
        make_program(&programs.join(program), &format!("#!/bin/sh\n{text}\n"));
    }
    let path = format!("{}:/usr/bin:/bin", programs.display());
    let output = std::process::Command::new("/bin/sh")
        .args(["-c", line])
        .env("PATH", path)
        .output()
        .unwrap();
    output.status.code()
}

#[test]
fn containerd_without_its_cri_is_not_a_runtime() {
    for target in ["bootstrap", "worker"] {
        let compiled = of(target);
        let wait = compiled
            .low
            .chunks
            .iter()
            .find(|chunk| chunk.id == "containerd-answers")
            .unwrap();
        let unless = wait.controls.unless[0].as_str().unwrap();
        let line = |status: &str| {
            format!(
                "TYPE    ID    PLATFORMS    STATUS\\nio.containerd.grpc.v1    cri    -    {status}    \\n"
            )
        };
        let good = line("ok");
        let bad = line("error").replace(
            "STATUS",
            "STATUS    \\nio.containerd.grpc.v1    images    -    ok",
        );
        assert_eq!(
            shell(unless, "inactive", ""),
            Some(0),
            "not started: nothing can be checked"
        );
        assert_eq!(
            shell(unless, "activating", ""),
            Some(1),
            "it has ended after its start"
        );
        assert_eq!(
            shell(unless, "active", &good),
            Some(0),
            "it answers: no change"
        );
        assert_eq!(shell(unless, "active", &bad), Some(1));
        assert_eq!(shell(&wait.name, "active", &good), Some(0));
        assert_eq!(
            shell(&wait.name, "active", &bad),
            Some(1),
            "it reports that after a while"
        );
        let kubelet = chunk(&compiled, "service.running", "kubelet");
        let place = compiled
            .low
            .chunks
            .iter()
            .position(|chunk| chunk.id == "containerd-answers")
            .unwrap();
        assert!(
            kubelet.requisites.require.contains(&place),
            "the kubelet waits for it"
        );
    }
}

#[test]
fn the_enrolment_script_writes_the_files_that_the_states_declare() {
    let worker = of("worker");
    let script_owner = of("bootstrap");
    let script = contents(&script_owner, "/srv/halite/enrol.sh");
    let unit = contents(&worker, "/etc/systemd/system/halite-minion.service");
    let heredoc = |marker: &str| {
        let start = script.find(&format!("<<{marker}\n")).unwrap() + marker.len() + 3;
        let end = script[start..]
            .find(&format!("\n{}\n", marker.trim_matches('\'')))
            .unwrap();
        format!("{}\n", &script[start..start + end])
    };
    assert_eq!(heredoc("'UNIT'"), unit);
    // Equal to the last byte; otherwise the first highstate of a new node would restart its minion.
    let managed = chunk(
        &worker,
        "file.managed",
        "/etc/systemd/system/halite-minion.service",
    );
    assert!(unit.ends_with('\n') && managed.args["contents_newline"] == json!(true));
    let configuration = contents(&worker, "/etc/halite/minion.yaml");
    let master = "10.10.0.11:4550";
    assert!(script.contains(&format!("master='{master}'")));
    assert_eq!(
        heredoc("CONFIGURATION")
            .replace("$name", "worker-1")
            .replace("$master", master),
        configuration
    );
}

#[test]
fn the_operators_settings_reach_their_files() {
    let (mut pillar, grains) = fixture("bootstrap");
    pillar["halite"]["kubelet"]["config"] = json!({"failCgroupV1": false, "maxPods": 60});
    pillar["halite"]["containerd"] = json!({
        "restrictOomScoreAdj": true,
        "registries": {},
        "config": {"plugins": {"io.containerd.cri.v1.runtime": {"cni": {"bin_dirs": ["/opt/cni/bin", "/x"]}}}},
    });
    pillar["halite"]["apiServer"]["certSANs"] = json!(["k8s.example.com", "192.0.2.7"]);
    pillar["halite"]["apiServer"]["extraArgs"] =
        json!({"audit-log-maxage": "30", "etcd-servers": "https://a:1,https://b:1"});
    pillar["halite"]["host"] = json!({
        "sysctls": {"net.ipv4.ip_forward": null, "vm.max_map_count": "262144"},
        "kernelModules": [], "manageSwap": false, "manageFirewall": false, "manageTime": false, "packages": ["tmux"],
    });
    let compiled = highstate(&pillar, &grains);
    let kubelet = contents(&compiled, "/var/lib/kubelet/config.yaml");
    assert!(
        kubelet.contains("failCgroupV1: false\n") && kubelet.contains("maxPods: 60\n"),
        "{kubelet}"
    );
    let containerd = contents(&compiled, "/etc/containerd/config.toml");
    assert!(
        containerd.contains("\"restrict_oom_score_adj\" = true\n"),
        "{containerd}"
    );
    assert!(
        containerd.contains("\"cni\".\"bin_dirs\" = [\"/opt/cni/bin\", \"/x\"]\n"),
        "{containerd}"
    );
    let apiserver = chunk(
        &compiled,
        "x509.certificate",
        "/etc/kubernetes/pki/apiserver.crt",
    );
    let sans = |key: &str, san: &str| {
        apiserver.args[key]
            .as_array()
            .unwrap()
            .contains(&json!(san))
    };
    assert!(sans("sans_dns", "k8s.example.com") && sans("sans_ip", "192.0.2.7"));
    let pod = contents(&compiled, "/etc/kubernetes/manifests/kube-apiserver.yaml");
    assert!(pod.contains("- \"--audit-log-maxage=30\"\n"), "{pod}");
    assert!(
        pod.contains("- \"--etcd-servers=https://a:1,https://b:1\"\n"),
        "{pod}"
    );
    assert!(
        !compiled
            .low
            .chunks
            .iter()
            .any(|c| c.name == "net.ipv4.ip_forward" || c.state == "firewalld")
    );
    assert!(
        !compiled
            .low
            .chunks
            .iter()
            .any(|c| c.state == "swap" || c.state == "kmod")
    );
    chunk(&compiled, "sysctl.present", "vm.max_map_count");
    let packages = &chunk(&compiled, "pkg.installed", "host-packages").args["pkgs"];
    assert!(
        packages.as_array().unwrap().contains(&json!("tmux")),
        "{packages}"
    );
}

/// Runs the program that is started at boot, with a file in place of `/etc/hosts`.
fn restored(program: &str, hosts: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hosts");
    std::fs::write(&file, hosts).unwrap();
    let program = program
        .replace("hosts=/etc/hosts", &format!("hosts={}", file.display()))
        .replace("/sbin/restorecon", "/nowhere");
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", &program])
        .status();
    assert!(status.unwrap().success(), "{program}");
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    std::fs::read_to_string(&file).unwrap()
}

/// cloud-init with `manage_etc_hosts` writes the first of these texts.
#[test]
fn the_names_of_the_cluster_are_back_when_something_has_written_the_hosts_file() {
    let worker = of("worker");
    let program = contents(&worker, "/var/lib/halite/restore-names.sh");
    let present = worker
        .low
        .chunks
        .iter()
        .filter(|chunk| chunk.function() == "host.present");
    let names: Vec<(String, String)> = present
        .map(|chunk| {
            let ip = &chunk.args["ip"];
            let ip = ip.as_str().or_else(|| ip[0].as_str()).unwrap();
            (chunk.name.clone(), ip.to_owned())
        })
        .collect();
    assert!(names.iter().any(|(name, _)| name == "api.prod.internal"));
    // One line for each address.
    let mut lines: Vec<(&str, String)> = Vec::new();
    for (name, ip) in &names {
        match lines.iter_mut().find(|(address, _)| address == ip) {
            Some((_, line)) => *line += &format!(" {name}"),
            None => lines.push((ip, format!("{ip}\t{name}"))),
        }
    }
    let own: String = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
    let written = "127.0.1.1 worker-1.example.net worker-1\n127.0.0.1 localhost\n";
    let kept = "127.0.1.1 worker-1.example.net\n127.0.0.1 localhost\n";
    assert_eq!(restored(program, written), format!("{kept}{own}"));
    assert_eq!(restored(program, ""), own);
    // Existing entries stay unchanged, in any form.
    let mut lines = String::from("# of the operator\n\n192.0.2.7  other # here\n");
    for (name, ip) in &names {
        lines += &format!("{ip}   also-{name} {name}  # {name}\n");
    }
    assert_eq!(restored(program, &lines), lines);
    let elsewhere = "10.9.9.9 api.prod.internal # old\n10.9.9.9 mine api.prod.internal # old\n";
    let dropped = "# old\n10.9.9.9 mine # old\n";
    assert_eq!(restored(program, elsewhere), format!("{dropped}{own}"));
}

/// Debian writes `127.0.1.1 worker-1.example.net worker-1`. The grains follow from the line with
/// both.
#[test]
fn the_full_name_of_a_host_stays_on_the_line_of_its_short_name() {
    let (pillar, mut grains) = fixture("worker");
    grains["fqdn"] = json!("worker-1.example.net");
    let compiled = sure(with(&pillar, &grains, compile::highstate));
    let present = |chunk: &&Chunk| chunk.function() == "host.present";
    let names: Vec<&str> = (compiled.low.chunks.iter().filter(present))
        .map(|chunk| chunk.name.as_str())
        .collect();
    assert_eq!(names[..2], ["worker-1.example.net", "worker-1"]);
    let program = contents(&compiled, "/var/lib/halite/restore-names.sh");
    let written = restored(
        program,
        "127.0.1.1 worker-1.example.net worker-1\n127.0.0.1 localhost\n",
    );
    let own = written.lines().find(|line| line.ends_with(" worker-1"));
    let own = own.unwrap_or_else(|| panic!("{written}"));
    assert!(
        own.ends_with("\tworker-1.example.net worker-1"),
        "{written}"
    );
    assert!(!written.contains("127.0.1.1"), "{written}");
    // The short name alone is not a full name of another host.
    grains["fqdn"] = json!("other.example.net");
    let compiled = sure(with(&pillar, &grains, compile::highstate));
    let has_other = |chunk: &Chunk| chunk.name == "other.example.net";
    assert!(!compiled.low.chunks.iter().any(has_other));
}

/// The configuration is TOML, whose tables in lists have another form than JSON's.
#[test]
fn lists_of_tables_in_the_configuration_of_containerd_are_toml() {
    let (mut pillar, grains) = fixture("worker");
    pillar["halite"]["containerd"]["config"] = json!({"plugins": {
        "io.containerd.transfer.v1.local": {
            "unpack_config": [{"platform": "linux/amd64", "snapshotter": "overlayfs"}, {"limits": {"a": [1, 2]}}],
        },
        "io.containerd.cri.v1.runtime": {"containerd": {"runtimes": {"kata": {}}}},
    }});
    let compiled = sure(with(&pillar, &grains, compile::highstate));
    let text = contents(&compiled, "/etc/containerd/config.toml");
    let list = "\"unpack_config\" = [{ \"platform\" = \"linux/amd64\", \"snapshotter\" = \"overlayfs\" }, \
                { \"limits\" = { \"a\" = [1, 2] } }]\n";
    assert!(text.contains(list), "{text}");
    assert!(
        text.contains("\"kata\" = {}\n") || text.contains("\"kata\" = { }\n"),
        "{text}"
    );
}

/// systemd starts swap at boot through this target.
#[test]
fn no_swap_returns_at_boot_unless_the_operator_manages_it() {
    let (mut pillar, grains) = fixture("worker");
    let path = "/etc/systemd/system/swap.target";
    let compiled = sure(with(&pillar, &grains, compile::highstate));
    assert_eq!(
        chunk(&compiled, "file.symlink", path).args["target"],
        "/dev/null"
    );
    let mark = "/var/lib/halite/swap-masked";
    chunk(&compiled, "file.managed", mark);
    // A link of the operator, without the mark, stays.
    pillar["halite"]["host"]["manageSwap"] = json!(false);
    let compiled = sure(with(&pillar, &grains, compile::highstate));
    let of_target = |chunk: &&Chunk| chunk.name == path;
    let all: Vec<&Chunk> = compiled.low.chunks.iter().filter(of_target).collect();
    let [removal] = all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(removal.function(), "file.absent");
    assert_eq!(removal.controls.onlyif, [json!(format!("test -e {mark}"))]);
    chunk(&compiled, "file.absent", mark);
}

/// A kubelet that starts earlier cannot find the API.
#[test]
fn the_names_are_restored_before_programs_that_need_them_start() {
    let worker = of("worker");
    let unit = contents(&worker, "/etc/systemd/system/halite-names.service");
    let of_kind = |kind: &str| {
        let mut lines = unit.lines();
        lines.find_map(|line| line.strip_prefix(kind)).unwrap()
    };
    for later in [
        "kubelet.service",
        "containerd.service",
        "halite-minion.service",
    ] {
        assert!(of_kind("Before=").split(' ').any(|unit| unit == later));
    }
    assert!(
        of_kind("After=")
            .split(' ')
            .any(|unit| unit == "cloud-init.service")
    );
    assert!(unit.contains("WantedBy=multi-user.target\n"));
    chunk(&worker, "service.running", "halite-names");
}

/// A host sends its own grains: they are values, whatever they contain.
#[test]
fn the_full_name_that_a_host_sends_adds_no_state() {
    let (pillar, mut grains) = fixture("worker");
    let name =
        "worker-1.x\n    - ip: 10.0.0.21\n\nadded:\n  x509.certificate:\n    - name: /tmp/a.crt";
    grains["fqdn"] = json!(name);
    let compiled = sure(with(&pillar, &grains, compile::highstate));
    let states = compiled.low.chunks.iter().map(|chunk| chunk.id.as_str());
    assert_eq!(states.filter(|id| *id == "added").count(), 0);
    assert_eq!(chunk(&compiled, "host.present", name).id, "node-full-name");
}
