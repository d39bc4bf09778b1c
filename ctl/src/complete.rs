//! What every cluster that a bundle is for would ask of it: its state tree, compiled for each of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, anyhow};
use halite_bundle::Manifest;
use halite_bundle::complete::{Artifact, Needs, Rendering, State, Stock, stand_in};
use halite_bundle::recipe::{BINARIES, COMPONENTS};
use halite_pillar::bundle::BundleFacts;
use halite_pillar::options::{self, Set, Target};
use halite_pillar::view::{self, MASTER, Pki};
use halite_states::compile::{Compiled, Compiler, Input};
use halite_states::low::Chunk;
use halite_states::problem::Problem;
use halite_states::tree::{CHARTS, DirTree, Tree, sha256};
use serde_json::{Value, json};

use crate::compile::facts;

/// Where the bundle stands for the templates: a path that nothing else has, so that each mention of a file of the bundle
/// is seen.
const BUNDLE: &str = "/halite-bundle";

/// The orchestrations that this program starts.
const ORCHESTRATIONS: [&str; 2] = [crate::bootstrap::ORCHESTRATION, crate::commands::ADD_NODE];

/// The smallest host that a bundle is built on has two processors.
const WORKERS: usize = 2;

/// The master and a first host.
const FEW: usize = 2;

/// Operating systems that the state tree installs packages on, as their hosts' grains name them: family and system.
type System = (&'static str, &'static str);

/// Every bundle has packages for it.
const DEBIAN: System = ("Debian", "Debian");

/// Not every bundle has packages for it.
const RED_HAT: System = ("RedHat", "Rocky");

fn systems(facts: &BundleFacts) -> impl Iterator<Item = System> + use<> {
    std::iter::once(DEBIAN).chain((!facts.rpms.is_empty()).then_some(RED_HAT))
}

/// Compiles the state tree of the bundle in a directory for every set of options and gathers what comes out.
///
/// # Errors
/// A set of options is refused, which is a mistake in this program. What does not compile is among the needs.
pub fn needs(directory: &Path, manifest: &Manifest) -> anyhow::Result<Needs> {
    let facts = facts(manifest, BUNDLE);
    let sets = sets(manifest)?;
    let tree = Kept::new(&DirTree::new().bundle(directory));
    let needs = gather(&tree, &facts, &sets)?;
    if needs.compiles() {
        return Ok(needs);
    }
    // Where a component is missing, nothing else that the same state asks for would be seen.
    let filled = with_stand_ins(&facts, &tree);
    if filled == facts { Ok(needs) } else { gather(&tree, &filled, &sets) }
}

/// The facts with something in the place of each image and program that they lack and that the tree could mean.
fn with_stand_ins(facts: &BundleFacts, tree: &Kept) -> BundleFacts {
    let mut filled = facts.clone();
    let texts = tree.files.values().filter_map(|content| std::str::from_utf8(content).ok());
    let named = texts.flat_map(components).chain(COMPONENTS.iter().copied());
    for component in named {
        filled.images.entry(component.to_owned()).or_insert_with(|| stand_in(component));
    }
    for program in BINARIES {
        filled.programs.entry((*program).to_owned()).or_insert_with(|| sha256(b""));
    }
    filled
}

/// The components whose images a template names: `pillar.images.NAME` and `pillar.images['NAME']`.
fn components(text: &str) -> impl Iterator<Item = &str> {
    text.split("pillar.images").skip(1).filter_map(|rest| {
        let rest = rest
            .strip_prefix('.')
            .or_else(|| rest.strip_prefix("['"))
            .or_else(|| rest.strip_prefix("[\""))?;
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_-".contains(c))).unwrap_or(rest.len());
        // A method of the map: `pillar.images.get('NAME')`.
        let call = rest[end..].strip_prefix('(').map(|rest| rest.trim_start_matches(['\'', '"']));
        let name = call.map_or(&rest[..end], |rest| rest.split(['\'', '"']).next().unwrap_or_default());
        Some(name).filter(|name| !name.is_empty())
    })
}

fn gather(tree: &Kept, facts: &BundleFacts, sets: &[Set]) -> anyhow::Result<Needs> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut needs = Needs::default();
        let mut applied = BTreeSet::new();
        let mut compiler = Compiler::new(tree);
        while let Some(set) = sets.get(next.fetch_add(1, Ordering::Relaxed)) {
            let site = Site { tree, facts, set };
            site.hosts(&mut compiler, &mut needs)?;
            // They differ by the hosts that there are.
            if set.targets.len() > FEW {
                site.orchestrations(&mut compiler, &mut applied, &mut needs)?;
            }
        }
        anyhow::Ok(needs)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        let mut needs = Needs::default();
        for worker in workers {
            needs.merge(worker.join().map_err(|_| anyhow!("compiling ended abnormally"))??);
        }
        Ok(needs)
    })
}

/// What would be said if each artifact of the bundle in turn were taken out of it. Of what nobody would miss that is
/// nothing.
///
/// # Errors
/// As [`needs`].
pub fn without_each(
    directory: &Path,
    manifest: &Manifest,
    needs: &Needs,
    stock: &Stock,
) -> anyhow::Result<Vec<(Artifact, Vec<String>)>> {
    let facts = facts(manifest, BUNDLE);
    let sets = sets(manifest)?;
    let set = sets.first().context("there is no set of options")?;
    let mut tree = Kept::new(&DirTree::new().bundle(directory));
    let mut all = Vec::new();
    for (artifact, missing) in needs.without_each(stock) {
        let mut said: Vec<String> = missing.iter().map(ToString::to_string).collect();
        // A file that only includes others makes no state; it is missed when the tree is compiled without it.
        if said.is_empty()
            && let Artifact::File { path } = &artifact
            && let Some(path) = path.strip_prefix("states/")
            && let Some(content) = tree.files.remove(path)
        {
            let mut without = Needs::default();
            let site = Site { tree: &tree, facts: &facts, set };
            let mut compiler = Compiler::new(&tree);
            site.hosts(&mut compiler, &mut without)?;
            site.orchestrations(&mut compiler, &mut BTreeSet::new(), &mut without)?;
            tree.files.insert(path.to_owned(), content);
            said.extend(without.problems().map(str::to_owned));
        }
        all.push((artifact, said));
    }
    Ok(all)
}

fn sets(manifest: &Manifest) -> anyhow::Result<Vec<Set>> {
    let mut sets = options::sets(&manifest.kubernetes, &manifest.options)
        .map_err(|problems| anyhow!("the options of the recipe: {}", crate::compile::report(&problems)))?;
    // None excludes another, so no set needs more than one in which all are installed.
    for set in &mut sets {
        set.declaration.cluster.value.charts = manifest.charts.keys().cloned().collect();
    }
    Ok(sets)
}

/// A state tree in memory: it is read a thousand times.
struct Kept {
    files: BTreeMap<String, Vec<u8>>,
}

impl Kept {
    fn new(tree: &DirTree) -> Self {
        let read = |path: String| tree.read(&path).map(|content| (path, content));
        Self { files: tree.list().into_iter().filter_map(read).collect() }
    }
}

impl Tree for Kept {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.files.get(path).cloned()
    }

    fn list(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }
}

/// One set of options.
struct Site<'a> {
    tree: &'a Kept,
    facts: &'a BundleFacts,
    set: &'a Set,
}

impl Site<'_> {
    fn hosts(&self, compiler: &mut Compiler, needs: &mut Needs) -> anyhow::Result<()> {
        for target in &self.set.targets {
            let pillar = self.view(&target.minion)?;
            for system in systems(self.facts) {
                let grains = grains(target, &pillar, system);
                if system == DEBIAN {
                    needs.add(&self.render(compiler, target, &pillar, &grains, None));
                } else {
                    let what = format!("{} of {}", target.what, system.1);
                    let target = Target { minion: target.minion.clone(), what };
                    let rendering = self.render(compiler, &target, &pillar, &grains, None);
                    needs.add(&Rendering { rpm: true, ..rendering });
                }
            }
        }
        Ok(())
    }

    /// The orchestrations themselves, and once each list of SLS files that they, or `ctl bootstrap` by itself, apply.
    fn orchestrations(
        &self,
        compiler: &mut Compiler,
        applied: &mut BTreeSet<Vec<String>>,
        needs: &mut Needs,
    ) -> anyhow::Result<()> {
        let mut pillar = self.view(MASTER)?;
        let name = self.set.declaration.nodes.keys().next_back().context("a set without hosts")?;
        pillar["node"] = json!(name);
        for sls in ORCHESTRATIONS {
            let target = Target { minion: MASTER.to_owned(), what: format!("the orchestration {sls}") };
            let rendering =
                self.render(compiler, &target, &pillar, &json!({"id": MASTER}), Some(&[sls.to_owned()]));
            let steps = rendering.states.iter().filter(|state| state.function == "halite.state");
            for step in steps {
                let to = step.args.get("tgt").and_then(Value::as_str).filter(|to| *to == MASTER);
                let host = self.set.targets.iter().find(|target| (target.minion == MASTER) == to.is_some());
                let named = step.args.get("sls").and_then(Value::as_array).into_iter().flatten();
                let named: Vec<String> = named.filter_map(Value::as_str).map(str::to_owned).collect();
                if let Some(host) = host.filter(|_| !named.is_empty() && applied.insert(named.clone())) {
                    let who = format!("by {}:{}", step.file, step.line);
                    needs.add(&self.applied(compiler, host, &who, &named)?);
                }
            }
            needs.add(&rendering);
        }
        let named = crate::bootstrap::BY_ITSELF.map(str::to_owned).to_vec();
        let first = self.set.targets.iter().find(|target| target.minion != MASTER);
        if let Some(first) = first.filter(|_| applied.insert(named.clone())) {
            needs.add(&self.applied(compiler, first, "by ctl bootstrap", &named)?);
        }
        Ok(())
    }

    /// SLS files that somebody applies on a host.
    fn applied(
        &self,
        compiler: &mut Compiler,
        host: &Target,
        who: &str,
        named: &[String],
    ) -> anyhow::Result<Rendering> {
        let pillar = self.view(&host.minion)?;
        let grains = grains(host, &pillar, DEBIAN);
        let host = Target { minion: host.minion.clone(), what: format!("{}, {who}", host.what) };
        Ok(self.render(compiler, &host, &pillar, &grains, Some(named)))
    }

    fn view(&self, minion: &str) -> anyhow::Result<Value> {
        Ok(view::view(&self.set.declaration, self.facts, &Pki::default(), minion)?)
    }

    /// Compiles the highstate, or the named SLS files.
    fn render(
        &self,
        compiler: &mut Compiler,
        target: &Target,
        pillar: &Value,
        grains: &Value,
        sls: Option<&[String]>,
    ) -> Rendering {
        let options = format!("{}, {}", target.what, self.set.name);
        // Whether a file of the bundle is there is looked at later, with everything else that is missing.
        let named: RefCell<BTreeMap<String, String>> = RefCell::default();
        let bundle = |path: &str| {
            let hash = sha256(path.as_bytes());
            named.borrow_mut().insert(format!("blob:{hash}"), format!("bundle://{path}"));
            Some(hash)
        };
        let input = Input { tree: self.tree, minion: &target.minion, pillar, grains, bundle: &bundle };
        let compiled = match sls {
            None => compiler.highstate(&input),
            Some(names) => compiler.sls(&input, names),
        };
        let mut rendering =
            Rendering { options, files: vec!["states/top.sls".to_owned()], ..Rendering::default() };
        match compiled {
            Ok(compiled) => {
                let named = named.borrow();
                let states = compiled.low.chunks.iter().map(|chunk| state(chunk, &compiled, &named));
                rendering.states = states.collect();
                let read: BTreeSet<&String> =
                    compiled.provenance.iter().flat_map(|provenance| &provenance.files).collect();
                rendering.files.extend(read.into_iter().map(|path| in_bundle(path)));
            }
            Err(problems) => rendering.problems = problems.iter().map(Problem::to_string).collect(),
        }
        rendering
    }
}

/// Where the bundle has a file of the tree.
fn in_bundle(path: &str) -> String {
    let is_chart = path.strip_prefix(CHARTS).is_some_and(|rest| rest.starts_with('/'));
    if is_chart { path.to_owned() } else { format!("states/{path}") }
}

/// What a host would report of itself, as far as the state tree asks.
fn grains(target: &Target, pillar: &Value, (family, system): System) -> Value {
    if target.minion == MASTER {
        return json!({"id": MASTER});
    }
    let address = &pillar["node"]["controlPlane"];
    json!({
        "id": target.minion, "host": target.minion, "nodename": target.minion, "os_family": family, "os": system,
        "ip4_interfaces": {"eth0": [address]},
    })
}

fn state(chunk: &Chunk, compiled: &Compiled, named: &BTreeMap<String, String>) -> State {
    let mut args = Value::Object(chunk.args.clone());
    put_back(&mut args, compiled, named);
    State {
        file: chunk.source.file.clone(),
        line: chunk.source.line,
        function: chunk.function(),
        name: chunk.name.clone(),
        args: args.as_object().cloned().unwrap_or_default(),
    }
}

/// Contents in place of the hashes that stand for them, and paths in place of those of the bundle's files: both where
/// the low state refers to them by hash, and where a text has a path of the bundle.
fn put_back(value: &mut Value, compiled: &Compiled, named: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => {
            let hash = text.strip_prefix("blob:").unwrap_or(text);
            if let Some(path) = named.get(text) {
                text.clone_from(path);
            } else if let Some(content) = compiled.blobs.get(hash) {
                *text = String::from_utf8_lossy(content).into_owned();
            } else if text.contains(BUNDLE) {
                *text = text.replace(&format!("{BUNDLE}/"), "bundle://");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| put_back(item, compiled, named)),
        Value::Object(map) => map.values_mut().for_each(|item| put_back(item, compiled, named)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
