//! Several bundles on a site: the one that counts, a change of it, and its absence.

use halite_core::names::minion;
use halite_core::refusal::RefusalKind;
use halite_fleet::files;
use halite_proto::v1;
use serde_json::{Value, json};

use super::fixture::{Life, ScriptedMinion, Site};

/// A state tree whose content names its bundle.
fn tree(says: &str) -> Vec<(&'static str, String)> {
    vec![
        ("top.sls", "base:\n  '*':\n    - host\n".to_owned()),
        (
            "host.sls",
            format!(
                "{says}:\n  file.managed:\n    - name: /opt/payload\n    - source: bundle://files/payload\n\
                 {says}-others:\n  test.nop:\n    - name: {{{{ pillar.halite.bundles | map(attribute='version') | join(',') }}}}\n"
            ),
        ),
    ]
}

fn put(site: &Site, place: &str, version: &str) {
    let tree = tree(&format!("from-{version}"));
    let tree: Vec<(&str, &str)> = tree
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    site.bundle(place, version, &tree);
}

/// Records the bundle in use, as `ctl bundle use` does.
fn record(site: &Site, version: &str) {
    let path = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.split("resolved:").next().unwrap();
    std::fs::write(
        &path,
        format!("{text}resolved:\n  kubernetes: v1.36.3\n  bundle: \"{version}\"\n"),
    )
    .unwrap();
}

/// The ids and names of the states that a highstate of the worker applies.
fn applied(life: &Life, minion: &ScriptedMinion) -> Vec<(String, String)> {
    life.run("state.highstate", "worker-1", json!({}), false);
    let journal = minion.journal.lock().unwrap();
    let low: Value = serde_json::from_str(&journal.received.last().unwrap().low_json).unwrap();
    let text = |chunk: &Value, key: &str| chunk[key].as_str().unwrap().to_owned();
    low["chunks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|chunk| (text(chunk, "id"), text(chunk, "name")))
        .collect()
}

fn refusal(life: &Life, function: &str) -> halite_core::refusal::Refusal {
    let request = v1::RunRequest {
        target: "worker-1".into(),
        function: function.into(),
        args_json: json!({"sls": ["host"]}).to_string(),
        ..v1::RunRequest::default()
    };
    life.runtime
        .block_on(life.backend.run("root", request))
        .map(|_| ())
        .unwrap_err()
}

#[test]
fn the_recorded_bundle_counts_and_may_change_while_the_master_runs() {
    let site = Site::new(&[]);
    put(&site, "bundles/0.2.0", "0.2.0");
    put(&site, "bundles/0.3.0", "0.3.0");
    record(&site, "0.2.0");
    let life = site.live();
    let worker = ScriptedMinion::new("worker-1");
    life.connect(&worker);
    let states = applied(&life, &worker);
    assert_eq!(states[0].0, "from-0.2.0");
    assert_eq!(
        states[1].1, "0.2.0,0.3.0",
        "the configured one is not one of the site's"
    );

    // An added bundle is offered to the next job but not used.
    put(&site, "bundles/0.4.0", "0.4.0");
    let states = applied(&life, &worker);
    assert_eq!(
        (states[0].0.as_str(), states[1].1.as_str()),
        ("from-0.2.0", "0.2.0,0.3.0,0.4.0")
    );
    std::fs::remove_dir_all(site.path().join("bundles/0.4.0")).unwrap();
    assert_eq!(applied(&life, &worker)[1].1, "0.2.0,0.3.0");

    // A job made before another bundle came into use gets the files that it names.
    life.accept("bootstrap-1");
    life.runtime.block_on(async {
        let request = v1::RunRequest {
            target: "bootstrap-1".into(),
            function: "state.apply".into(),
            args_json: json!({"sls": ["host"]}).to_string(),
            ..v1::RunRequest::default()
        };
        let _watched = life.backend.run("root", request).await.unwrap();
        let job_id = life.store.jobs(1).await.unwrap()[0].job_id.clone();
        let digest = halite_proto::pki::sha256_hex(b"a file of the bundle 0.2.0\n");
        record(&site, "0.3.0");
        let snapshot = life.backend.jobs().declarations().load().await.unwrap();
        assert_eq!(snapshot.bundle().unwrap().version, "0.3.0");
        files::fetch(
            &life.app,
            &snapshot,
            &minion("bootstrap-1"),
            &job_id,
            &digest,
        )
        .await
        .map(|_| ())
        .unwrap();
    });
    // The last successful highstate tells which host has which bundle.
    let worker_of = |status: Value| {
        let nodes = status["nodes"].as_array().unwrap().clone();
        let problems = status["problems"].as_array().unwrap().len();
        let bundle = nodes
            .into_iter()
            .find(|node| node["name"] == "worker-1")
            .unwrap()["bundle"]
            .clone();
        (bundle, problems)
    };
    let status = || halite_api::to_value(&life.runtime.block_on(life.backend.status()).unwrap());
    let said = status()["problems"][0].as_str().unwrap().to_owned();
    assert!(
        said.contains("worker-1: still in the state of bundle 0.2.0, but 0.3.0 is in use"),
        "{said}"
    );
    worker
        .journal
        .lock()
        .unwrap()
        .failing
        .insert("from-0.3.0".to_owned());
    assert_eq!(applied(&life, &worker)[0].0, "from-0.3.0");
    assert_eq!(worker_of(status()), (json!("0.2.0"), 1), "that one failed");
    let of = |name: &str| {
        let nodes = status()["nodes"].as_array().unwrap().clone();
        nodes.into_iter().find(|node| node["name"] == name).unwrap()["bundles"].clone()
    };
    assert_eq!(
        of("worker-1"),
        json!(["0.2.0", "0.3.0"]),
        "half of one, half of the other"
    );
    assert_eq!(of("bootstrap-1"), json!(["0.2.0"]), "its job waits for it");
    // However many jobs followed, and whether or not its own job is still stored.
    let gone = life
        .runtime
        .block_on(life.store.prune_jobs(i64::MAX, 1, 1, 999))
        .unwrap();
    assert!(gone > 0, "the previous jobs still exist");
    assert_eq!(worker_of(status()), (json!("0.2.0"), 1));
    worker.journal.lock().unwrap().failing.clear();
    applied(&life, &worker);
    assert_eq!(worker_of(status()), (json!("0.3.0"), 0));
    assert_eq!(of("worker-1"), json!(["0.3.0"]));
    life.kill();
}

#[test]
fn a_bundle_that_is_gone_is_told_and_holds_up_only_what_needs_it() {
    let site = Site::new(&[]);
    put(&site, "media", "0.2.0");
    std::fs::create_dir(site.path().join("bundles")).unwrap();
    let disk = site.path().join("media");
    std::os::unix::fs::symlink(&disk, site.path().join("bundles/0.2.0")).unwrap();
    record(&site, "0.2.0");
    let life = site.live();
    let worker = ScriptedMinion::new("worker-1");
    life.connect(&worker);
    assert_eq!(applied(&life, &worker)[0].0, "from-0.2.0");
    let status = || halite_api::to_value(&life.runtime.block_on(life.backend.status()).unwrap());
    assert_eq!(status()["bundle"]["version"], "0.2.0");
    assert_eq!(status()["problems"], json!([]));

    let away = site.path().join("away");
    std::fs::rename(&disk, &away).unwrap();
    for function in ["state.highstate", "state.apply"] {
        let refusal = refusal(&life, function);
        // With `Unavailable`, ctl would retry for a minute before it reports anything.
        assert_eq!(refusal.kind, RefusalKind::Conflict, "{refusal}");
        for wanted in [
            "bundle 0.2.0",
            "bundles/0.2.0",
            disk.to_str().unwrap(),
            "mount the disk or ISO",
            "ctl bundle add",
        ] {
            assert!(refusal.message.contains(wanted), "{wanted}: {refusal}");
        }
        assert_eq!(
            refusal.message.matches("mount the disk or ISO").count(),
            1,
            "once, not for each minion: {refusal}"
        );
    }
    let said = status();
    assert_eq!(said["bundle"], Value::Null);
    assert!(
        said["problems"][0]
            .as_str()
            .unwrap()
            .contains("mount the disk or ISO"),
        "{said}"
    );
    assert_eq!(
        said["nodes"].as_array().unwrap().len(),
        2,
        "all else is there"
    );
    assert_eq!(
        said["api"],
        json!({"answers": true}),
        "the API needs no bundle"
    );
    let known = v1::AddNodeRequest {
        nodes: vec![v1::NewNode {
            name: "worker-1".into(),
            address: String::new(),
            ..v1::NewNode::default()
        }],
        ..v1::AddNodeRequest::default()
    };
    let refused = life
        .runtime
        .block_on(life.backend.add_node("root", &known))
        .unwrap_err();
    assert!(
        refused.message.contains("mount the disk or ISO"),
        "{refused}"
    );
    let events = life.run("test.ping", "worker-1", json!({}), false);
    assert_eq!(events.last().unwrap().retcode, 0);
    life.kill();

    // A master that starts without it comes up, and needs no restart when the bundle is back.
    let life = site.live();
    let worker = ScriptedMinion::new("worker-1");
    life.connect(&worker);
    assert_eq!(
        refusal(&life, "state.highstate").kind,
        RefusalKind::Conflict
    );
    std::fs::rename(&away, &disk).unwrap();
    assert_eq!(applied(&life, &worker)[0].0, "from-0.2.0");
    life.kill();
}

#[test]
fn what_is_compiled_is_what_the_manifest_says() {
    let site = Site::new(&[]);
    put(&site, "media", "0.2.0");
    std::fs::create_dir(site.path().join("bundles")).unwrap();
    std::os::unix::fs::symlink(site.path().join("media"), site.path().join("bundles/0.2.0"))
        .unwrap();
    record(&site, "0.2.0");
    let life = site.live();
    let worker = ScriptedMinion::new("worker-1");
    life.connect(&worker);
    assert_eq!(applied(&life, &worker)[0].0, "from-0.2.0");

    // The owner of the directory changes a state and nothing else.
    let states = site.path().join("media/states/host.sls");
    let (was, changed) = (
        tree("from-0.2.0").remove(1).1,
        tree("from-9.9.9").remove(1).1,
    );
    std::fs::write(&states, &changed).unwrap();
    std::fs::write(
        site.path().join("media/states/more.sls"),
        "more:\n  test.nop: []\n",
    )
    .unwrap();
    assert_eq!(
        applied(&life, &worker)[0].0,
        "from-0.2.0",
        "it has what it had checked"
    );
    life.kill();
    let life = site.live();
    let worker = ScriptedMinion::new("worker-1");
    life.connect(&worker);
    let refused = refusal(&life, "state.highstate");
    assert_eq!(refused.kind, RefusalKind::Conflict, "{refused}");
    for wanted in [
        "bundle 0.2.0",
        "states/host.sls",
        "was changed",
        "ctl bundle add",
    ] {
        assert!(refused.message.contains(wanted), "{wanted}: {refused}");
    }
    std::fs::remove_file(&states).unwrap();
    let mkfifo = std::process::Command::new("mkfifo")
        .arg(&states)
        .status()
        .unwrap();
    assert!(mkfifo.success());
    assert!(
        refusal(&life, "state.apply")
            .message
            .contains("states/host.sls"),
        "a pipe is not a file"
    );
    std::fs::remove_file(&states).unwrap();
    std::fs::write(&states, &was).unwrap();
    let states = applied(&life, &worker);
    assert_eq!(
        states[0].0, "from-0.2.0",
        "when it is as it was, no restart is needed"
    );
    assert!(states.iter().all(|(id, _)| id != "more"));
    life.kill();
}

#[test]
fn what_can_be_no_bundle_is_told() {
    let site = Site::new(&[]);
    let life = site.live();
    life.accept("worker-1");
    record(&site, "../bundle");
    let refusal = refusal(&life, "state.highstate");
    assert!(
        refusal.message.contains("resolved.bundle")
            && refusal.message.contains("/var/lib/halite/bundles"),
        "{refusal}"
    );
    life.kill();
}

#[test]
fn a_disk_that_hangs_under_the_bundle_stops_no_ping() {
    let site = Site::new(&[(
        "top.sls",
        "base:
  '*': []
",
    )]);
    let life = site.live();
    let worker = ScriptedMinion::new("worker-1");
    life.connect(&worker);
    // A pipe that no process writes to: the master blocks when it reads the manifest.
    let manifest = site.path().join("bundle/manifest.json");
    std::fs::remove_file(&manifest).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&manifest).status();
    assert!(made.unwrap().success());
    // A job that needs the bundle fails and names the place.
    let refused = life.runtime.block_on(async {
        let request = v1::RunRequest {
            target: "worker-1".into(),
            function: "state.highstate".into(),
            ..v1::RunRequest::default()
        };
        let refused = life.backend.run("root", request).await;
        refused.map(|_| ()).unwrap_err()
    });
    assert!(
        refused
            .message
            .contains("/bundle: the file system has not answered"),
        "{refused}"
    );
    let ping = |life: &Life| {
        let events = life.run("test.ping", "*", json!({}), false);
        assert_eq!(events.last().unwrap().retcode, 0);
    };
    ping(&life);
    life.kill();
    // It does not stop a master that starts now, either.
    let life = site.live();
    life.connect(&worker);
    ping(&life);
    life.kill();
}
