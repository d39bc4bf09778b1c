//! A site with encrypted objects and control planes whose hosts keep the file of the keys, and
//! judge it as the shipped states do. Whatever a test does, no API server may write what another
//! one cannot read.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};

use halite_core::roster::FollowState;
use halite_pillar::encryption_keys::{EncryptionKeys, KEYS_FILE, KeyNames};
use halite_proto::v1;
use halite_states::low::{Chunk, LowState};
use serde_json::{Value, json};

use super::fixture::{orchestrate, request};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

pub(super) const ROTATE: &str = "halite.orchestrate.rotate_encryption";
pub(super) const ENCRYPTED: &str = "apiServer: {encryption: {}}";
/// The file of the keys on a control plane.
const FILE: &str = "/etc/kubernetes/apiserver/encryption.yaml";
/// The state that refuses earlier keys.
const GUARD: &str = "kube-apiserver-keys-not-later";

/// The limit of a wait for standbys in the shipped orchestration, and in these tests.
pub(super) const WAIT: (&str, &str) = ("- timeout: 60\n", "- timeout: 3\n");

/// The tree: shipped files, and a file of an API server in the form of the shipped one.
fn tree() -> Vec<(&'static str, String)> {
    let shipped = [
        (
            "halite/orchestrate/rotate_encryption.sls",
            include_str!("../../../states/tree/halite/orchestrate/rotate_encryption.sls"),
        ),
        (
            "halite/base/control_plane/key_stage.sls",
            include_str!("../../../states/tree/halite/base/control_plane/key_stage.sls"),
        ),
        (
            "halite/base/control_plane/keys.jinja",
            include_str!("../../../states/tree/halite/base/control_plane/keys.jinja"),
        ),
        (
            "halite/map.jinja",
            include_str!("../../../states/tree/halite/map.jinja"),
        ),
        ("top.sls", "base:\n  '*': []\n"),
        (
            "halite/base/control_plane/running.sls",
            "{%- from 'halite/base/control_plane/keys.jinja' import first_line with context %}\n\
             include:\n  - halite.base.control_plane.key_stage\n\
             /etc/kubernetes/apiserver/encryption.yaml:\n  file.managed:\n    \
             - contents: {{ (first_line ~ '\\n' ~ pillar.halite.apiServer.files['encryption.yaml'] | json) | json }}\n",
        ),
    ];
    let shipped = shipped.map(|(path, text)| (path, text.replace(WAIT.0, WAIT.1)));
    shipped.into_iter().collect()
}

/// A site with `bootstrap-1` and these further control planes, which have joined.
pub(super) fn site(more: &[&str]) -> Site {
    let tree = tree();
    let tree: Vec<(&str, &str)> = (tree.iter())
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    let site = Site::new(&tree);
    for (number, name) in (12..).zip(more) {
        let address = format!("10.10.0.{number}");
        let resolved = format!(
            "resolved:\n  controlPlane: {address}\n  workloadPlane: {address}\n  \
             etcd:\n    member: {name}\n    initialCluster: \"{name}=https://{address}:2380\"\n"
        );
        declare_node(&site, name, &address, &resolved);
    }
    site.api.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "default"}}));
    site
}

/// Writes the document of a control plane.
pub(super) fn declare_node(site: &Site, name: &str, address: &str, resolved: &str) {
    let path = site.path().join(format!("etc/nodes/{name}.yaml"));
    let text = format!(
        "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [control-plane, etcd]\naddress: {address}\n{resolved}"
    );
    std::fs::write(path, text).unwrap();
}

/// Writes the cluster document with this section.
pub(super) fn declare(site: &Site, section: &str) {
    let path = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, format!("{text}{section}\n")).unwrap();
}

/// The master's keys.
pub(super) fn keys(site: &Site) -> Option<EncryptionKeys> {
    let path = site.path().join("state").join(KEYS_FILE);
    let text = std::fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

/// The names of the master's keys.
pub(super) fn names(site: &Site) -> KeyNames {
    keys(site).unwrap().names()
}

/// Reads the documents: the names of the keys, or the refusal.
pub(super) fn load(life: &Life) -> String {
    let declarations = life.backend.jobs().declarations();
    match life.runtime.block_on(declarations.load()) {
        Ok(snapshot) => format!("{:?}", snapshot.encryption_keys()),
        Err(refusal) => refusal.message,
    }
}

/// Runs a rotation to its end.
pub(super) fn rotate(life: &Life) -> (i32, String) {
    orchestrate(life, request(ROTATE, &json!({})))
}

/// Applies the states of these hosts, as a highstate does.
pub(super) fn apply(life: &Life, names: &[&str]) -> Vec<i32> {
    let states = json!({"sls": ["halite.base.control_plane.running"]});
    let run = |name: &&str| {
        let events = life.run("state.apply", name, states.clone(), false);
        events.last().unwrap().retcode
    };
    names.iter().map(run).collect()
}

/// Makes standbys of the master follow it, or leave it.
pub(super) fn standbys(life: &Life, names: &[&str], state: FollowState) {
    for name in names {
        let number = life.app.standbys.enter(name, Arc::default(), 1);
        life.app.standbys.set(name, number, state, "", 2);
    }
}

/// The keys of one host's API server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostKeys {
    first_line: String,
    /// The keys with which it decrypts, with their values.
    decrypts: BTreeMap<String, String>,
    writer: Option<String>,
}

impl HostKeys {
    fn read(text: &str) -> Self {
        let (first_line, configuration) = text.split_once('\n').unwrap();
        let configuration: Value = serde_json::from_str(configuration).unwrap();
        let providers = configuration["resources"][0]["providers"]
            .as_array()
            .unwrap();
        let keys = |provider: &Value| provider["secretbox"]["keys"].as_array().cloned();
        let text = |key: &Value, field: &str| key[field].as_str().unwrap().to_owned();
        let first = keys(&providers[0]);
        Self {
            first_line: first_line.to_owned(),
            decrypts: (providers.iter().filter_map(keys).flatten())
                .map(|key| (text(&key, "name"), text(&key, "secret")))
                .collect(),
            writer: first.map(|keys| text(&keys[0], "name")),
        }
    }
}

/// The control planes' hosts.
#[derive(Clone, Default)]
pub(super) struct Planes {
    hosts: Arc<Mutex<BTreeMap<String, HostKeys>>>,
    /// The first lines in the order in which hosts got them, and everything that was wrong.
    pub(super) history: Arc<Mutex<Vec<String>>>,
    pub(super) faults: Arc<Mutex<Vec<String>>>,
    /// A host, and the stage whose states fail there.
    failing: Arc<Mutex<Option<(String, u64)>>>,
    minions: Arc<Mutex<BTreeMap<String, ScriptedMinion>>>,
}

impl Planes {
    /// The minion of a host. Its journal outlives each master.
    pub(super) fn minion(&self, name: &str) -> ScriptedMinion {
        let mut minions = self.minions.lock().unwrap();
        let known = minions.entry(name.to_owned());
        known.or_insert_with(|| self.new_minion(name)).clone()
    }

    fn new_minion(&self, name: &str) -> ScriptedMinion {
        let planes = self.clone();
        let minion = ScriptedMinion::new(name);
        let (host, journal) = (name.to_owned(), Arc::clone(&minion.journal));
        minion.on(move |job| {
            if job.function == "state.apply" && !job.test {
                let refused = planes.apply(&host, job);
                let mut journal = journal.lock().unwrap();
                journal.failing.clear();
                journal.failing.extend(refused.map(str::to_owned));
            }
            None
        })
    }

    /// Connects the minions of these hosts.
    pub(super) fn connect(&self, life: &Life, names: &[&str]) {
        let minions = names.iter().map(|name| self.minion(name));
        minions.for_each(|minion| life.connect(&minion));
    }

    /// Makes the states of one stage fail on a host, or no longer.
    pub(super) fn fail_at(&self, host: &str, stage: Option<u64>) {
        *self.failing.lock().unwrap() = stage.map(|stage| (host.to_owned(), stage));
    }

    /// Applies a job's states; returns the one that fails.
    fn apply(&self, host: &str, job: &v1::Job) -> Option<&'static str> {
        let low: LowState = serde_json::from_str(&job.low_json).unwrap();
        let refused = low
            .chunks
            .iter()
            .any(|chunk| chunk.id == GUARD && self.refuses(host, chunk));
        if refused {
            return Some(GUARD);
        }
        for chunk in low.chunks.iter().filter(|chunk| chunk.name == FILE) {
            let text = chunk.args["contents"].as_str().unwrap();
            let fails = self.failing.lock().unwrap().clone();
            let fails = fails.is_some_and(|(name, stage)| {
                name == host && text.starts_with(&format!("# Stage {stage} "))
            });
            if fails {
                return Some(FILE);
            }
            self.put(host, HostKeys::read(text));
        }
        None
    }

    /// Runs the shipped condition on the host's file.
    fn refuses(&self, host: &str, guard: &Chunk) -> bool {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("encryption.yaml");
        if let Some(keys) = self.hosts.lock().unwrap().get(host) {
            std::fs::write(&file, format!("{}\n", keys.first_line)).unwrap();
        }
        let condition = guard.controls.onlyif[0].as_str().unwrap();
        let condition = condition.replace(FILE, &file.display().to_string());
        let run = Command::new("sh").args(["-c", &condition]).status();
        run.unwrap().success()
    }

    /// An API server with these keys runs. Each must decrypt what any other one writes.
    fn put(&self, host: &str, keys: HostKeys) {
        let mut hosts = self.hosts.lock().unwrap();
        let line = format!("{host}: {}", keys.first_line);
        hosts.insert(host.to_owned(), keys);
        for (writing, its) in hosts.iter() {
            let Some(writer) = &its.writer else { continue };
            for (reading, other) in hosts.iter() {
                if other.decrypts.get(writer) != its.decrypts.get(writer) {
                    let fault =
                        format!("after {line}: {reading} cannot read what {writing} writes");
                    self.faults.lock().unwrap().push(fault);
                }
            }
        }
        drop(hosts);
        let mut history = self.history.lock().unwrap();
        if history.last() != Some(&line) {
            history.push(line);
        }
    }

    /// A host that is gone for good.
    pub(super) fn forget(&self, host: &str) {
        self.hosts.lock().unwrap().remove(host);
    }

    /// The first line of a host's file.
    pub(super) fn first_line(&self, host: &str) -> String {
        let hosts = self.hosts.lock().unwrap();
        hosts
            .get(host)
            .map(|keys| keys.first_line.clone())
            .unwrap_or_default()
    }

    /// Asserts that these are the only hosts, that all have these keys, and that no API server ever
    /// wrote what another one could not read.
    pub(super) fn assert_all_have(&self, names: &[&str], keys: &EncryptionKeys, case: &str) {
        let faults = self.faults.lock().unwrap();
        assert!(faults.is_empty(), "{case}: {faults:#?}");
        let known = keys.names();
        let hosts = self.hosts.lock().unwrap();
        let own: Vec<&str> = hosts.keys().map(String::as_str).collect();
        assert_eq!(own, names, "{case}");
        for (host, its) in hosts.iter() {
            let has: Vec<&String> = its.decrypts.keys().collect();
            assert_eq!(
                has,
                known.names.iter().collect::<Vec<_>>(),
                "{case}: {host}"
            );
            assert_eq!(its.writer, known.writer, "{case}: {host}");
            let stage = format!("# Stage {} ", known.stage);
            assert!(
                its.first_line.starts_with(&stage),
                "{case}: {host}: {}",
                its.first_line
            );
        }
    }
}
