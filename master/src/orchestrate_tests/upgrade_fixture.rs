//! A site in the middle of its life: the cluster has one bundle, and another one is there. The
//! orchestration of the upgrade is the shipped one.

use std::fs;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halite_api::{UpgradePlan, UpgradeStatus, from_text};
use halite_etcd::fake::FakeCluster;
use halite_proto::v1;
use halite_states::shipped::UPGRADE;
use serde_json::{Value, json};

use super::fixture::{ready_node, request};
use crate::backend::fixture::{Life, ScriptedMinion, Site, WATCHDOG};

/// The bundle in use, and the next one.
pub(crate) const OLD: &str = "0.2.0";
pub(crate) const NEXT: &str = "0.3.0";

/// The state of the last step of an upgrade.
pub(crate) const SERVERS: &str = "servers";

/// A state of each host, which names its bundle and shows a value of its document, and a state in
/// place of each shipped one.
pub(crate) fn tree(version: &str) -> Vec<(&'static str, String)> {
    let stubs = [
        "halite/services/bundle_server.sls",
        "halite/images/ahead.sls",
        "halite/base/etcd.sls",
        "halite/base/control_plane/running.sls",
        "halite/base/kubeadm_objects/ahead.sls",
        "halite/base/kubelet.sls",
    ];
    let stub = |path: &'static str| (path, "stub:\n  test.nop: []\n".to_owned());
    let own = [
        (
            "top.sls",
            "base:\n  '* and not master':\n    - match: compound\n    - host\n    - motd\n  'master':\n    - objects\n"
                .to_owned(),
        ),
        ("host.sls", format!("from-{version}:\n  test.nop: []\n")),
        (
            "motd.sls",
            "{% if pillar.get('custom', {}).get('motd') == 'broken' %}{% include 'missing.sls' %}{% endif %}\n\
             /etc/motd:\n  file.managed:\n    - contents: {{ pillar.get('custom', {}).get('motd', 'none') | json }}\n"
                .to_owned(),
        ),
        ("objects.sls", "objects:\n  test.nop: []\n".to_owned()),
        (
            "halite/base/containerd/servers.sls",
            format!("{SERVERS}:\n  test.nop: []\n"),
        ),
        (
            "halite/orchestrate/upgrade.sls",
            include_str!("../../../states/tree/halite/orchestrate/upgrade.sls").to_owned(),
        ),
        (
            "halite/orchestrate/hooks.jinja",
            include_str!("../../../states/tree/halite/orchestrate/hooks.jinja").to_owned(),
        ),
    ];
    own.into_iter().chain(stubs.map(stub)).collect()
}

/// The site: `bootstrap-1` and `worker-1`, both Ready.
pub(crate) fn site() -> Site {
    let mut site = Site::new(&[]);
    for version in [OLD, NEXT] {
        let tree = tree(version);
        let tree: Vec<(&str, &str)> = tree
            .iter()
            .map(|(path, text)| (*path, text.as_str()))
            .collect();
        site.bundle(&format!("bundles/{version}"), version, &tree);
    }
    let path = site.path().join("etc/cluster.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let resolved = format!("resolved: {{kubernetes: v1.36.3, bundle: \"{OLD}\"}}\n");
    fs::write(&path, format!("{text}{resolved}")).unwrap();
    let path = site.path().join("etc/nodes/worker-1.yaml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}custom: {{motd: one}}\n")).unwrap();
    let members = Arc::new(FakeCluster::new(&["bootstrap-1"]));
    site.etcd = Some((members, Duration::from_secs(1)));
    site.servers = vec!["bootstrap-1"];
    site.api.put(ready_node("bootstrap-1"));
    site.api.put(ready_node("worker-1"));
    site
}

/// Changes a value in the worker's document; `broken` is one with which its states do not compile.
pub(crate) fn change_document(site: &Site, value: &str) {
    let path = site.path().join("etc/nodes/worker-1.yaml");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("motd: one"), "{text}");
    fs::write(&path, text.replace("motd: one", &format!("motd: {value}"))).unwrap();
}

/// A control plane that stops in the middle of its upgrade until the test releases it.
pub(crate) struct Held {
    pub(crate) minion: ScriptedMinion,
    arrived: Receiver<()>,
    release: Sender<()>,
}

impl Held {
    pub(crate) fn new() -> Self {
        Self::at(&format!("from-{NEXT}"))
    }

    /// The same, but at the first job with this text in its states.
    pub(crate) fn at(text: &str) -> Self {
        let text = text.to_owned();
        let (arrives, arrived) = channel();
        let (release, released) = channel::<()>();
        let (arrives, released) = (Mutex::new(arrives), Mutex::new(released));
        let minion = ScriptedMinion::new("bootstrap-1").on(move |job| {
            if job.low_json.contains(&text) {
                let _ = arrives.lock().unwrap().send(());
                let _ = released.lock().unwrap().recv_timeout(WATCHDOG);
            }
            None
        });
        Self {
            minion,
            arrived,
            release,
        }
    }

    /// Waits until the host has its part of the upgrade.
    pub(crate) fn wait(&self) {
        self.arrived
            .recv_timeout(WATCHDOG)
            .expect("it must get its part");
    }

    pub(crate) fn release(&self) {
        self.release.send(()).unwrap();
    }
}

/// The options of an upgrade without a backup and without drains.
pub(crate) fn options() -> Value {
    json!({"bundle": NEXT, "batch": "25%", "backup": false})
}

/// The plan of an upgrade with these options, which name its bundle.
pub(crate) fn plan(life: &Life, options: &Value) -> UpgradePlan {
    let request = v1::ShowRequest {
        what: "upgrade".into(),
        target: options["bundle"].as_str().unwrap().into(),
        pillar_json: options.to_string(),
        ..v1::ShowRequest::default()
    };
    let shown = life.runtime.block_on(life.backend.show(request)).unwrap();
    from_text(&shown.json).unwrap()
}

/// The request of an upgrade with its plan, as `ctl upgrade` makes it.
pub(crate) fn upgrade(life: &Life, options: &Value) -> v1::OrchestrateRequest {
    confirmed(&plan(life, options), options)
}

/// The request of an upgrade with this plan.
pub(crate) fn confirmed(plan: &UpgradePlan, options: &Value) -> v1::OrchestrateRequest {
    let mut pillar = options.clone();
    pillar["plan"] = json!({"id": plan.id, "planned_by": plan.planned_by, "states": plan.states});
    request(UPGRADE, &pillar)
}

/// The progress of the last upgrade.
pub(crate) fn progress(life: &Life) -> UpgradeStatus {
    let request = v1::ShowRequest {
        what: "upgrade-status".into(),
        ..v1::ShowRequest::default()
    };
    let shown = life.runtime.block_on(life.backend.show(request)).unwrap();
    from_text(&shown.json).unwrap()
}

/// The problems in `ctl status`.
pub(crate) fn problems(life: &Life) -> String {
    let status = life.runtime.block_on(life.backend.status()).unwrap();
    status.problems.join("\n")
}
