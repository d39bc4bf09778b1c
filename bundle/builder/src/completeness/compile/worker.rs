//! The compiler for the hosts of sets of options, one after the other, and the collector of the
//! artifacts that they name.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use anyhow::Context as _;
use halite_document::Problem;
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::node::Node;
use halite_pillar::option_sets::{Set, Target};
use halite_pillar::role::Role;
use halite_pillar::view;
use halite_pillar::view::{MASTER, Pki};
use halite_states::compile::{Call, Compiler, Input};
use halite_states::shipped;
use halite_states::tree::{Tree, sha256, to_bundle_path};
use serde_json::{Value, json};

use super::BUNDLE;
use crate::completeness::{Collector, CompiledState, Rendering, Requirements};

/// An operating system on which the state tree installs packages, as the hosts' grains name it:
/// family and system.
type System = (&'static str, &'static str);

/// Debian: every bundle has packages for it.
pub(super) const DEBIAN: System = ("Debian", "Debian");

/// An RPM distribution: not every bundle has packages for it.
const RED_HAT: System = ("RedHat", "Rocky");

fn systems(facts: &BundleFacts) -> impl Iterator<Item = System> + use<> {
    std::iter::once(DEBIAN).chain((!facts.rpms.is_empty()).then_some(RED_HAT))
}

/// One compiler and its results so far.
pub(super) struct Worker<'a> {
    tree: &'a dyn Tree,
    facts: &'a BundleFacts,
    compiler: Compiler,
    /// The paths of files of the bundle named by calls, by the hashes that replace them in the
    /// calls.
    named: RefCell<BTreeMap<String, String>>,
    /// The states of calls. The key is the call's address, which is unique while the call is stored
    /// here.
    states: HashMap<*const Call, (Rc<Call>, Rc<CompiledState>)>,
    /// Lists of SLS files that an orchestration or `ctl` applies and that were already compiled.
    applied: BTreeSet<Vec<String>>,
    collector: Collector,
}

impl<'a> Worker<'a> {
    pub(super) fn new(tree: &'a dyn Tree, facts: &'a BundleFacts) -> Self {
        Self {
            tree,
            facts,
            compiler: Compiler::new(tree),
            named: RefCell::default(),
            states: HashMap::new(),
            applied: BTreeSet::new(),
            collector: Collector::default(),
        }
    }

    /// Returns `true` if everything so far compiles.
    pub(super) fn compiles(&self) -> bool {
        self.collector.compiles()
    }

    pub(super) fn needs(self) -> Requirements {
        self.collector.needs()
    }

    /// Compiles for the hosts of a set, up to the first that does not compile.
    pub(super) fn hosts(&mut self, set: &Set) -> anyhow::Result<()> {
        for target in &set.targets {
            if !self.compiles() {
                break;
            }
            self.host(set, &target.minion)?;
        }
        Ok(())
    }

    /// Compiles for one host of a set, if the set has it.
    pub(super) fn host(&mut self, set: &Set, minion: &str) -> anyhow::Result<()> {
        let Some(target) = set.targets.iter().find(|target| target.minion == minion) else {
            return Ok(());
        };
        let pillar = self.view(set, minion)?;
        for system in systems(self.facts) {
            let grains = grains(target, &pillar, system);
            let rendering = if system == DEBIAN {
                self.render(set, target, &pillar, &grains, None)
            } else {
                let what = format!("{} of {}", target.what, system.1);
                let target = Target {
                    minion: target.minion.clone(),
                    what,
                };
                let rendering = self.render(set, &target, &pillar, &grains, None);
                Rendering {
                    rpm: true,
                    ..rendering
                }
            };
            self.collector.add(&rendering);
        }
        Ok(())
    }

    /// Compiles the orchestrations, and once each list of SLS files that they or `ctl bootstrap`
    /// apply.
    pub(super) fn orchestrations(&mut self, set: &Set) -> anyhow::Result<()> {
        let mut pillar = self.view(set, MASTER)?;
        pillar["bundle"] = json!(self.facts.version);
        // Data that is only removed on request.
        pillar["wipe_data"] = json!(true);
        pillar["packages"] = json!(true);
        pillar["ca"] = json!("kubernetes");
        let nodes = &set.declaration.nodes;
        let last = nodes.keys().next_back().context("a set without hosts")?;
        let is_plane = |node: &Node| node.has(Role::ControlPlane) && !node.has(Role::Bootstrap);
        let plane = nodes.iter().find(|(_, node)| is_plane(node));
        let of_host = [
            shipped::ADD_NODE,
            shipped::REMOVE_NODE,
            shipped::REBOOT_NODE,
        ];
        let of_planes = of_host.into_iter().filter_map(|sls| Some((sls, plane?.0)));
        // A host with only an etcd member, to which the first host hands over its own.
        let is_member = |node: &Node| node.has(Role::Etcd) && !node.has(Role::ControlPlane);
        let member = nodes.iter().find(|(_, node)| is_member(node));
        let of_members = of_host.into_iter().filter_map(|sls| Some((sls, member?.0)));
        // A host that serves bundles also has its own steps, in which its clients are informed.
        let is_server = |node: &Node| node.has(Role::Registry) && !node.has(Role::Bootstrap);
        let server = nodes.iter().find(|(_, node)| is_server(node));
        let of_servers = [shipped::ADD_NODE, shipped::REMOVE_NODE]
            .into_iter()
            .filter_map(|sls| Some((sls, server?.0)));
        let all = shipped::ORCHESTRATIONS.into_iter().map(|sls| (sls, last));
        let all = all.chain(of_planes).chain(of_members).chain(of_servers);
        // A control plane that stays as a worker has its own steps.
        let stays = plane.map(|(name, _)| (shipped::ADD_NODE, name));
        let all = all.map(|(sls, name)| (sls, name, json!({})));
        let stays = stays.map(|(sls, name)| (sls, name, json!({"roles": ["worker"]})));
        // The last worker has its own steps, too: its pods move to the control planes.
        let worker = nodes.iter().find(|(_, node)| node.roles == [Role::Worker]);
        let worker = worker.map(|(name, _)| {
            let mut halite = pillar["halite"].clone();
            make_only_worker(&mut halite, name);
            (shipped::REMOVE_NODE, name, json!({"halite": halite}))
        });
        let others = ["etcd", "front-proxy", "sa", "halite", "site"].into_iter();
        let others = others.map(|ca| (shipped::ROTATE_CA, last, json!({"ca": ca})));
        for (sls, name, more) in all.chain(stays).chain(worker).chain(others) {
            let mut pillar = pillar.clone();
            pillar["node"] = json!(name);
            if let (Some(pillar), Value::Object(more)) = (pillar.as_object_mut(), more) {
                pillar.extend(more);
            }
            let target = Target {
                minion: MASTER.to_owned(),
                what: format!("the orchestration {sls}"),
            };
            let grains = json!({"id": MASTER});
            let rendering = self.render(set, &target, &pillar, &grains, Some(&[sls.to_owned()]));
            let steps = rendering.states.iter().filter(|state| {
                ["halite.state", "halite.hosts_leave"].contains(&state.function.as_str())
            });
            for step in steps {
                let to = step
                    .args
                    .get("tgt")
                    .and_then(Value::as_str)
                    .filter(|to| *to == MASTER);
                let host = set
                    .targets
                    .iter()
                    .find(|target| (target.minion == MASTER) == to.is_some());
                let named = step
                    .args
                    .get("sls")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten();
                let named: Vec<String> =
                    named.filter_map(Value::as_str).map(str::to_owned).collect();
                if let Some(host) = host.filter(|_| !named.is_empty()) {
                    self.applied(set, host, &format!("by {}:{}", step.file, step.line), named)?;
                }
            }
            self.collector.add(&rendering);
        }
        let first = set.targets.iter().find(|target| target.minion != MASTER);
        if let Some(first) = first {
            let named = [
                shipped::RESTART_MASTER,
                shipped::RESTART_MINION,
                shipped::VIP_ASIDE,
            ]
            .map(str::to_owned)
            .to_vec();
            self.applied(set, first, "by ctl bootstrap", named)?;
        }
        Ok(())
    }

    /// Compiles SLS files that an orchestration or `ctl` applies on a host.
    fn applied(
        &mut self,
        set: &Set,
        host: &Target,
        who: &str,
        named: Vec<String>,
    ) -> anyhow::Result<()> {
        if self.applied.contains(&named) {
            return Ok(());
        }
        let pillar = self.view(set, &host.minion)?;
        let grains = grains(host, &pillar, DEBIAN);
        let host = Target {
            minion: host.minion.clone(),
            what: format!("{}, {who}", host.what),
        };
        let rendering = self.render(set, &host, &pillar, &grains, Some(&named));
        self.collector.add(&rendering);
        self.applied.insert(named);
        Ok(())
    }

    pub(super) fn view(&self, set: &Set, minion: &str) -> anyhow::Result<Value> {
        Ok(view::view(
            &set.declaration,
            self.facts,
            &Pki::default(),
            minion,
        )?)
    }

    /// Compiles the highstate, or the named SLS files.
    pub(super) fn render(
        &mut self,
        set: &Set,
        target: &Target,
        pillar: &Value,
        grains: &Value,
        sls: Option<&[String]>,
    ) -> Rendering {
        let named = &self.named;
        // The file's existence is checked later, together with all other possibly missing items.
        let bundle = |path: &str| {
            let hash = sha256(path.as_bytes());
            named
                .borrow_mut()
                .insert(format!("blob:{hash}"), format!("bundle://{path}"));
            Some(hash)
        };
        let input = Input {
            tree: self.tree,
            minion: &target.minion,
            pillar,
            grains,
            bundle: &bundle,
        };
        let mut rendering = Rendering {
            options: format!("{}, {}", target.what, set.name),
            files: vec!["states/top.sls".to_owned()],
            ..Rendering::default()
        };
        match self.compiler.calls(&input, sls) {
            Ok(calls) => rendering.states = calls.iter().map(|call| self.state(call)).collect(),
            Err(problems) => {
                let problems = problems.iter().map(|problem| placed(problem, target));
                rendering.problems = problems.collect();
            }
        }
        rendering
    }

    fn state(&mut self, call: &Rc<Call>) -> Rc<CompiledState> {
        let named = self.named.borrow();
        let (_, state) = self
            .states
            .entry(Rc::as_ptr(call))
            .or_insert_with(|| (call.clone(), Rc::new(state(call, &named))));
        state.clone()
    }
}

/// Makes a host the only worker in the view of a pillar, and lets the taints of the control planes
/// depend on it. No set of options declares that: it does not change the required content of a
/// bundle.
fn make_only_worker(halite: &mut Value, name: &str) {
    let Some(nodes) = halite["nodes"].as_object_mut() else {
        return;
    };
    let has = |node: &Value, role: Role| {
        let roles = node["roles"].as_array();
        roles.is_some_and(|roles| roles.contains(&json!(role.as_str())))
    };
    nodes.retain(|node, its| node == name || !has(its, Role::Worker));
    for node in nodes.values_mut() {
        node["taintFollowsWorkers"] = json!(has(node, Role::ControlPlane));
    }
}

/// A problem with its place; a problem without a place names the target that needs the missing
/// part.
fn placed(problem: &Problem, target: &Target) -> String {
    if problem.file.is_empty() {
        format!("{problem}\n  needed by {}", target.what)
    } else {
        problem.to_string()
    }
}

/// The grains that a host would report, as far as the state tree reads them.
pub(super) fn grains(target: &Target, pillar: &Value, (family, system): System) -> Value {
    if target.minion == MASTER {
        return json!({"id": MASTER});
    }
    let address = &pillar["halite"]["node"]["controlPlane"];
    json!({
        "id": target.minion, "host": target.minion, "nodename": target.minion, "os_family": family, "os": system,
        "ip4_interfaces": {"eth0": [address]},
    })
}

fn state(call: &Call, named: &BTreeMap<String, String>) -> CompiledState {
    let chunk = call.chunk();
    let mut args = Value::Object(chunk.args.clone());
    put_back(&mut args, call, named);
    CompiledState {
        file: chunk.source.file.clone(),
        line: chunk.source.line,
        function: chunk.function(),
        name: chunk.name.clone(),
        args: args.as_object().cloned().unwrap_or_default(),
        files: call
            .provenance()
            .files
            .iter()
            .map(|path| to_bundle_path(path))
            .collect(),
    }
}

/// Replaces hashes with the contents to which they refer, and placeholder paths with paths of the
/// bundle's files, both in the call's references and in texts.
fn put_back(value: &mut Value, call: &Call, named: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => {
            let hash = text.strip_prefix("blob:").unwrap_or(text);
            if let Some(path) = named.get(text) {
                text.clone_from(path);
            } else if let Some(content) = call.blobs().get(hash) {
                *text = String::from_utf8_lossy(content).into_owned();
            } else if text.contains(BUNDLE) {
                *text = text.replace(&format!("{BUNDLE}/"), "bundle://");
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| put_back(item, call, named)),
        Value::Object(map) => map
            .values_mut()
            .for_each(|item| put_back(item, call, named)),
        _ => {}
    }
}
