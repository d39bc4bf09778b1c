//! The destruction of a cluster: the steps, and the files that are never removed.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use halite_states::compile;
use halite_states::compile::Compiled;
use halite_states::shipped::DESTROY;
use serde_json::{Value, json};

use crate::support::{contents, fixture, sure, with};

fn destroy(pillar: &Value, grains: &Value) -> Compiled {
    sure(with(pillar, grains, |i| {
        compile::step(i, &[DESTROY.to_owned()])
    }))
}

/// An SLS of `halite.leave`, as a host gets it.
fn leave(fixture_name: &str, sls: &str) -> Compiled {
    let (pillar, grains) = fixture(fixture_name);
    let sls = [format!("halite.leave.{sls}")];
    sure(with(&pillar, &grains, |i| compile::step(i, &sls)))
}

#[test]
fn workers_leave_first_and_the_masters_host_last() {
    let (mut pillar, grains) = fixture("master");
    pillar["force"] = json!(true);
    pillar["cluster"] = json!("prod");
    let mut plane = pillar["halite"]["nodes"]["worker-1"].clone();
    plane["roles"] = json!(["control-plane", "etcd"]);
    pillar["halite"]["nodes"]["cp-2"] = plane;
    let compiled = destroy(&pillar, &grains);
    let chunks = &compiled.low.chunks;
    let steps: Vec<(&str, &Value)> = (chunks.iter())
        .map(|chunk| {
            (
                chunk.id.as_str(),
                chunk.args.get("nodes").unwrap_or(&Value::Null),
            )
        })
        .collect();
    let (worker, plane, first) = (json!(["worker-1"]), json!(["cp-2"]), json!(["bootstrap-1"]));
    let all = json!(["worker-1", "cp-2", "bootstrap-1"]);
    let wanted = [
        ("turn", &Value::Null),
        ("allowed", &Value::Null),
        ("mounts", &all),
        ("workers", &worker),
        ("workers-gone", &worker),
        ("control-planes", &plane),
        ("control-planes-gone", &plane),
        ("last", &first),
        ("last-gone", &first),
    ];
    assert_eq!(steps, wanted);
    for (index, chunk) in chunks.iter().enumerate().skip(1) {
        assert_eq!(chunk.requisites.require, [index - 1], "{}", chunk.id);
    }
    let host = json!(["halite.leave.host"]);
    assert_eq!(chunks[3].args["sls"], host);
    assert_eq!(chunks[3].args["offline"], "fail");

    pillar["halite"]["nodes"]
        .as_object_mut()
        .unwrap()
        .remove("cp-2");
    pillar["wipe_data"] = json!(true);
    pillar["packages"] = json!(true);
    pillar["skip_offline"] = json!(true);
    let compiled = destroy(&pillar, &grains);
    let chunks = &compiled.low.chunks;
    assert_eq!(chunks.len(), 7);
    assert_eq!(
        chunks[2].args["sls"],
        json!(["halite.leave.mounts", "halite.leave.data_mounts"])
    );
    let sls = [
        "halite.leave.address",
        "halite.leave.host",
        "halite.leave.data",
        "halite.leave.packages",
    ];
    assert_eq!(chunks[5].args["sls"], json!(sls));
    assert_eq!(chunks[3].args["offline"], "skip");
}

/// The master compiles from its bundle until it stops.
#[test]
fn the_bundle_stays_on_the_masters_host() {
    let removed = |name: &str| {
        let compiled = leave(name, "host");
        let mut chunks = compiled.low.chunks.iter();
        chunks.any(|chunk| chunk.name == "/var/lib/halite/bundles")
    };
    assert!(removed("worker") && !removed("bootstrap"));
}

/// Runs the check of a state with these mount points; returns its success and output.
fn checked(line: &str, mounts: &[&str]) -> (bool, String) {
    let directory = tempfile::tempdir().unwrap();
    let table = directory.path().join("mountinfo");
    let lines = mounts.iter().enumerate().map(|(index, place)| {
        format!("{index} 1 0:{index} / {place} rw,relatime shared:1 - tmpfs none rw\n")
    });
    fs::write(&table, lines.collect::<String>()).unwrap();
    let line = line.replace("/proc/self/mountinfo", table.to_str().unwrap());
    let output = Command::new("/bin/sh")
        .args(["-c", &line])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.success(), said)
}

#[test]
fn a_file_system_below_a_removed_directory_is_refused_by_name() {
    let line = |name: &str| {
        let compiled = leave(name, "mounts");
        compiled.low.chunks[0].name.clone()
    };
    let elsewhere = [
        "/",
        "/proc",
        "/var/lib/halite",
        "/etc/halite",
        "/var/lib/halite-other/x",
        "/var/lib/kubelet/pods/1/volumes/x",
        "/var/lib/halite/registry",
        "/var/lib/halite/backup/on\\040a\\040stick",
    ];
    for name in ["bootstrap", "worker"] {
        assert_eq!(checked(&line(name), &elsewhere), (true, String::new()));
        for place in [
            "/var/lib/halite/master",
            "/etc/halite/custom/a\\040b",
            "/etc/kubernetes/pki",
            "/var/lib/halite/backups",
        ] {
            let (passed, said) = checked(&line(name), &[&elsewhere[..], &[place]].concat());
            assert!(!passed, "{place}");
            assert!(
                said.contains(&format!("a file system is mounted at {place}\n"))
                    && said.contains("unmount it"),
                "{said}"
            );
        }
    }
    // An ISO that the master reads is unmounted at the end.
    let bundle = ["/var/lib/halite/bundles/1.0"];
    assert!(checked(&line("bootstrap"), &bundle).0 && !checked(&line("worker"), &bundle).0);
}

#[test]
fn data_directories_may_be_disks_and_nothing_below_them_is() {
    let compiled = leave("bootstrap", "data_mounts");
    let line = &compiled.low.chunks[0].name;
    assert!(
        checked(
            line,
            &[
                "/var/lib/etcd",
                "/var/lib/containerd",
                "/var/lib/containerd/tmpmounts/x"
            ]
        )
        .0
    );
    for place in [
        "/var/lib/etcd/member",
        "/var/log/pods/x",
        "/var/lib/halite/backup",
        "/var/lib/halite/registry/docker",
    ] {
        let (passed, said) = checked(line, &[place]);
        assert!(!passed && said.contains("--wipe-data"), "{place}: {said}");
    }
    // The same check runs before each directory is emptied.
    let compiled = leave("bootstrap", "data");
    for (directory, mounts, passes) in [
        ("/var/lib/etcd", ["/var/lib/etcd"], true),
        ("/var/lib/etcd", ["/var/lib/etcd/member"], false),
        ("/var/lib/halite/backup", ["/var/lib/halite/backup"], false),
    ] {
        let mut chunks = compiled.low.chunks.iter();
        let emptying = chunks.find(|chunk| chunk.id == directory).unwrap();
        let (check, emptied) = emptying.name.split_once(" && ").unwrap();
        assert_eq!(
            emptied,
            format!("find {directory} -xdev -mindepth 1 -delete")
        );
        assert_eq!(checked(check, &mounts).0, passes, "{mounts:?}");
    }
}

/// The commands of the unit that runs last, as systemd runs them.
fn unit(fixture_name: &str) -> Vec<String> {
    let compiled = leave(fixture_name, "minion");
    let unit = contents(&compiled, "/etc/systemd/system/halite-leave.service").to_owned();
    let lines = unit
        .lines()
        .filter_map(|line| line.strip_prefix("ExecStart="));
    let lines = lines.map(|line| line.trim_start_matches('-').replace("$$", "$"));
    lines.collect()
}

fn run_below(root: &Path, line: &str) -> Output {
    let mut line = line.to_owned();
    for place in ["/var/lib/halite", "/etc/", "/usr/local/", "/srv/"] {
        line = line.replace(place, &format!("{}{place}", root.display()));
    }
    Command::new("/bin/sh")
        .args(["-c", &line])
        .output()
        .unwrap()
}

#[test]
fn the_unit_that_runs_last_leaves_only_the_sites_data() {
    for name in ["bootstrap", "worker"] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let files = [
            "etc/halite/cluster.yaml",
            "etc/systemd/system/halite-leave.service",
            "etc/systemd/system/halite-minion.service",
            "etc/systemd/system/multi-user.target.wants/halite-leave.service",
            "etc/systemd/system/other.service",
            "srv/halite/enrol.sh",
            "usr/local/bin/ctl",
            "usr/local/bin/halite-minion",
            "usr/local/bin/other",
            "usr/local/share/bash-completion/completions/ctl",
            "usr/local/share/man/man1/ctl-node-add.1",
            "usr/local/share/man/man1/ctl.1",
            "usr/local/share/man/man1/ctlx.1",
            "usr/local/share/man/man5/halite-minion.yaml.5",
            "usr/local/share/man/man8/halite-master.8",
            "usr/local/share/man/man8/halite-minion-enrol.8",
            "var/lib/halite/backup/a",
            "var/lib/halite/master/store.db",
            "var/lib/halite/minion/journal/1",
            "var/lib/halite/registry/docker/x",
        ];
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let lines = unit(name);
        // As long as it exists, a host that stays removes the pages again.
        let pages = lines.iter().find(|line| line.contains("/ctl.fish"));
        assert!(
            pages
                .unwrap()
                .ends_with(" /usr/local/share/man/man1/ctl.1\"")
        );
        let awk = lines.iter().find(|line| line.starts_with("/usr/bin/awk"));
        let awk = awk.unwrap();
        assert!(checked(awk, &["/var/lib/halite", "/var/lib/halite/backup"]).0);
        assert!(!checked(awk, &["/var/lib/halite/bundles/1.0"]).0);
        let removing = |line: &&String| !line.contains("systemctl") && !line.contains("mountinfo");
        // If it is killed at any command, it starts again at the first.
        for _ in 0..2 {
            for line in lines.iter().filter(removing) {
                let output = run_below(root, line);
                let may_fail = line.contains("rmdir");
                assert!(output.status.success() || may_fail, "{line}: {output:?}");
            }
        }
        let stays = [
            "etc/systemd/system/other.service",
            "srv/halite/enrol.sh",
            "usr/local/bin/other",
            "usr/local/share/man/man1/ctlx.1",
            "var/lib/halite/backup/a",
            "var/lib/halite/registry/docker/x",
        ];
        for file in files {
            assert_eq!(
                root.join(file).exists(),
                stays.contains(&file),
                "{name}: {file}"
            );
        }
        fs::remove_dir_all(root.join("var/lib/halite/backup")).unwrap();
        fs::remove_dir_all(root.join("var/lib/halite/registry")).unwrap();
        fs::remove_file(root.join("srv/halite/enrol.sh")).unwrap();
        for line in lines.iter().filter(removing) {
            run_below(root, line);
        }
        assert!(!root.join("var/lib/halite").exists() && !root.join("srv/halite").exists());
    }
}
