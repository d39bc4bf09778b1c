//! The API server of a host: it does not go back to an older minor version, and ends with its etcd.

use std::fs;
use std::process::{Child, Command};

use halite_states::compile::Compiled;
use halite_states::low::Chunk;
use serde_json::json;

use crate::support::{chunk, contents, fixture, highstate, make_program};

const MANIFEST: &str = "/etc/kubernetes/manifests/kube-apiserver.yaml";

fn of_version(kubernetes: &str, image: &str) -> Compiled {
    let (mut pillar, grains) = fixture("bootstrap");
    pillar["halite"]["kubernetes"]["version"] = json!(kubernetes);
    pillar["halite"]["images"]["kube-apiserver"] = json!(image);
    highstate(&pillar, &grains)
}

/// Returns whether a host with that manifest is refused.
fn is_refused(compiled: &Compiled, manifest: Option<&str>) -> bool {
    let refusal = chunk(
        compiled,
        "test.fail_without_changes",
        "kube-apiserver-not-newer",
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kube-apiserver.yaml");
    if let Some(text) = manifest {
        fs::write(&file, text).unwrap();
    }
    let [condition] = &refusal.controls.onlyif[..] else {
        panic!("{:?}", refusal.controls.onlyif);
    };
    let condition = condition.as_str().unwrap();
    let line = condition.replace(MANIFEST, file.to_str().unwrap());
    assert_ne!(line, condition);
    let status = Command::new("/bin/sh").args(["-c", &line]).status();
    status.unwrap().success()
}

#[test]
fn a_newer_api_server_of_an_upgrade_that_has_not_ended_is_never_replaced_by_an_older_one() {
    let image = |version: &str| format!("registry.k8s.io/kube-apiserver:{version}@sha256:00");
    let older = of_version("v1.35.4", &image("v1.35.4"));
    let newer = of_version("v1.36.3", &image("v1.36.3"));
    let later = of_version("v1.35.9", &image("v1.35.9"));
    assert!(is_refused(&older, Some(contents(&newer, MANIFEST))));
    for (compiled, manifest) in [
        (&older, None),
        (&older, Some("")),
        (&older, Some(contents(&older, MANIFEST))),
        (&older, Some(contents(&later, MANIFEST))),
        (&newer, Some(contents(&older, MANIFEST))),
        (&newer, Some(contents(&newer, MANIFEST))),
    ] {
        assert!(!is_refused(compiled, manifest), "{manifest:?}");
    }
    // Before anything changes, and then nothing else runs.
    let before = |chunk: &&Chunk| chunk.id != "kube-apiserver-not-newer";
    let first = older.low.chunks.iter().take_while(before);
    let first: Vec<String> = first.map(Chunk::function).collect();
    assert_eq!(
        first,
        ["etcd.data", "mount.refused", "test.fail_without_changes"]
    );
    assert!(older.low.chunks[first.len()].controls.failhard);
}

/// The file with a line for each call of `sleep`.
const SLEPT: &str = "slept";

fn sleeping() -> Child {
    Command::new("sleep").arg("60").spawn().unwrap()
}

/// Runs a line with fakes of `ss`, which shows the API server, of `pgrep`, which finds etcd, and of
/// `sleep`, which records its calls.
fn start(line: &str, server: &Child, etcd: Option<&Child>) -> (Child, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let listener = format!(
        "LISTEN 0 4096 *:6443 *:* users:((\"kube-apiserver\",pid={},fd=3))",
        server.id()
    );
    let found = etcd.map_or_else(|| "exit 1".to_owned(), |etcd| format!("echo {}", etcd.id()));
    let slept = directory.path().join(SLEPT);
    let sleep = format!("echo >>{}; exec /bin/sleep \"$@\"", slept.display());
    let listener = format!("echo '{listener}'");
    for (program, text) in [("ss", listener), ("pgrep", found), ("sleep", sleep)] {
        let path = directory.path().join(program);
        make_program(&path, &format!("#!/bin/sh\n{text}\n"));
    }
    let path = format!("{}:/usr/bin:/bin", directory.path().display());
    let mut command = Command::new("/bin/sh");
    let running = command.args(["-c", line]).env("PATH", path).spawn();
    (running.unwrap(), directory)
}

#[test]
fn the_api_server_ends_when_its_etcd_has_ended() {
    let (pillar, grains) = fixture("bootstrap");
    let compiled = highstate(&pillar, &grains);
    let found = compiled.low.chunks.iter().enumerate();
    let mut found = found.filter(|(_, chunk)| chunk.id == "kube-apiserver-follows-etcd");
    let (at, follows) = found.next().unwrap();
    assert!(!follows.requisites.onchanges.is_empty());
    let ready = compiled.low.chunks.iter().skip(at);
    assert!(ready.into_iter().any(|chunk| chunk.id == "etcd-ready"));

    for runs in [true, false] {
        let (mut server, mut etcd) = (sleeping(), sleeping());
        let (mut line, programs) = start(&follows.name, &server, runs.then_some(&etcd));
        if runs {
            // It looks at etcd, then sleeps, and then looks again.
            let slept = || std::fs::read_to_string(programs.path().join(SLEPT));
            while slept().unwrap_or_default().lines().count() < 3 {
                assert!(line.try_wait().unwrap().is_none(), "etcd still runs");
                std::thread::yield_now();
            }
            assert!(server.try_wait().unwrap().is_none(), "etcd still runs");
            etcd.kill().unwrap();
            etcd.wait().unwrap();
        }
        assert!(line.wait().unwrap().success());
        assert!(!server.wait().unwrap().success(), "it was ended");
        if !runs {
            etcd.kill().unwrap();
            etcd.wait().unwrap();
        }
    }
}

/// API servers of a cluster with dedicated members use all of them.
#[test]
fn an_api_server_with_other_members_stays() {
    let (mut pillar, grains) = fixture("bootstrap");
    pillar["halite"]["etcd"] = json!({
        "placement": "dedicated", "mode": "static-pod", "extraArgs": {}, "servers": ["https://10.10.0.13:2379"],
    });
    let compiled = highstate(&pillar, &grains);
    let mut chunks = compiled.low.chunks.iter();
    assert!(!chunks.any(|chunk| chunk.id == "kube-apiserver-follows-etcd"));
}
