//! The version of the declaration that a job is compiled from.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use halite_core::names::minion;
use serde_json::{Value, json};

use super::fixture::{ScriptedMinion, Site};

const TREE: &[(&str, &str)] = &[("top.sls", "base: {}\n")];

/// Writes a version of the operator's own state; a reader finds the old or the new one.
fn write(custom: &Path, version: usize) {
    let new = custom.join("new");
    let text = format!("version:\n  test.nop:\n    - name: version {version}\n");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, custom.join("v.sls")).unwrap();
}

#[test]
fn all_hosts_of_a_job_get_the_same_version_of_own_states() {
    let site = Site::new(TREE);
    let custom = site.path().join("etc/custom");
    std::fs::create_dir_all(&custom).unwrap();
    write(&custom, 0);
    let life = site.live();
    for host in ["bootstrap-1", "worker-1"] {
        life.connect(&ScriptedMinion::new(host));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, written) = (Arc::clone(&stop), custom.clone());
    let editor = std::thread::spawn(move || {
        let mut version = 1;
        while !stopped.load(Ordering::Relaxed) {
            write(&written, version);
            version += 1;
        }
    });
    for _ in 0..20 {
        life.run("state.apply", "*", json!({"sls": ["custom.v"]}), true);
    }
    stop.store(true, Ordering::Relaxed);
    editor.join().unwrap();
    life.runtime.block_on(async {
        let jobs = life.store.jobs(99).await.unwrap();
        assert_eq!(jobs.len(), 20);
        for job in jobs {
            let mut versions = Vec::new();
            for host in ["bootstrap-1", "worker-1"] {
                let row = life.store.row(&job.job_id, &minion(host)).await.unwrap();
                let low: Value = serde_json::from_str(&row.unwrap().low_json.unwrap()).unwrap();
                versions.push(low["chunks"][0]["name"].clone());
            }
            assert_eq!(versions[0], versions[1], "{}", job.job_id);
        }
    });
}
