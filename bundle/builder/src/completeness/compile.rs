//! The requirements of a bundle: its state tree, compiled for every cluster that the bundle is for.

mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, anyhow};
use halite_manifest::Manifest;
use halite_pillar::bundle_facts;
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::option_sets;
use halite_pillar::option_sets::{Coverage, Set};
use halite_states::tree::{DirTree, Tree, from_bundle_path, sha256};
use worker::Worker;

use crate::completeness::{Artifact, Inventory, Requirements, stand_in};
use crate::error::Error;
use crate::recipe::BINARIES;

/// The path of the bundle in templates. Nothing else has this path, so each mention of a file of
/// the bundle is recognised.
const BUNDLE: &str = "/halite-bundle";

/// The smallest host that a bundle is built on has two processors.
const WORKERS: usize = 2;

/// The number of hosts in a set with only the master and a first host.
const FEW: usize = 2;

/// The requirements of the bundle in a directory, for a build.
///
/// # Errors
/// As for [`needs`].
pub fn requirements(
    directory: &Path,
    manifest: &Manifest,
    coverage: Coverage,
) -> Result<Requirements, Error> {
    needs(directory, manifest, coverage).map_err(|error| Error::Incomplete(format!("{error:#}")))
}

/// Compiles the state tree of the bundle in a directory for every set of options and collects the
/// requirements.
///
/// # Errors
/// A set of options is refused, which is a mistake in this program. A tree that does not
/// compile is not an error; it is recorded in the requirements.
pub fn needs(
    directory: &Path,
    manifest: &Manifest,
    coverage: Coverage,
) -> anyhow::Result<Requirements> {
    let facts = facts(manifest)?;
    let sets = sets(manifest, coverage)?;
    let tree = Kept::new(&DirTree::new().bundle(directory));
    // A missing component hides everything else that the same state requires.
    let filled = with_stand_ins(&facts, &tree);
    if filled == facts {
        return gather(&tree, &facts, &sets, Until::End);
    }
    let needs = gather(&tree, &facts, &sets, Until::Problem)?;
    if needs.compiles() {
        Ok(needs)
    } else {
        gather(&tree, &filled, &sets, Until::End)
    }
}

/// The facts about a bundle that templates see.
fn facts(manifest: &Manifest) -> Result<BundleFacts, serde_json::Error> {
    BundleFacts::from_value(&serde_json::to_value(manifest)?, BUNDLE)
}

/// Returns the facts with a stand-in for each image and program that the tree may refer to and that
/// they lack.
fn with_stand_ins(facts: &BundleFacts, tree: &Kept) -> BundleFacts {
    let mut filled = facts.clone();
    let texts = tree
        .files
        .values()
        .filter_map(|content| std::str::from_utf8(content).ok());
    let always = bundle_facts::components().map(|name| -> &str { name });
    for component in texts.flat_map(components).chain(always) {
        filled
            .images
            .entry(component.to_owned())
            .or_insert_with(|| stand_in(component));
    }
    for program in BINARIES {
        filled
            .programs
            .entry((*program).to_owned())
            .or_insert_with(|| sha256(b""));
    }
    filled
}

/// The path of the bundle's images in the pillar.
const IMAGES: &str = "pillar.halite.images";

/// The components whose images a template names: `pillar.halite.images.NAME` and
/// `pillar.halite.images['NAME']`.
fn components(text: &str) -> impl Iterator<Item = &str> {
    text.split(IMAGES).skip(1).filter_map(|rest| {
        let rest = rest
            .strip_prefix('.')
            .or_else(|| rest.strip_prefix("['"))
            .or_else(|| rest.strip_prefix("[\""))?;
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || "_-".contains(c)))
            .unwrap_or(rest.len());
        // A call of a method of the map: `pillar.halite.images.get('NAME')`.
        let call = rest[end..]
            .strip_prefix('(')
            .map(|rest| rest.trim_start_matches(['\'', '"']));
        let name = call.map_or(&rest[..end], |rest| {
            rest.split(['\'', '"']).next().unwrap_or_default()
        });
        Some(name).filter(|name| !name.is_empty())
    })
}

/// The point at which [`gather`] stops compiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// After every host of every set.
    End,
    /// At the first host that does not compile: the requirements are then useless.
    Problem,
}

fn gather(
    tree: &Kept,
    facts: &BundleFacts,
    sets: &[Set],
    until: Until,
) -> anyhow::Result<Requirements> {
    let next = AtomicUsize::new(0);
    // One part per host: a template sees mostly its own host, and a compiler caches the templates
    // that it rendered for this host.
    let hosts: BTreeSet<&str> = sets
        .iter()
        .flat_map(|set| &set.targets)
        .map(|target| target.minion.as_str())
        .collect();
    let parts: Vec<Option<&str>> = hosts.into_iter().map(Some).chain([None]).collect();
    let work = || {
        let mut worker = Worker::new(tree, facts);
        'parts: while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            for set in sets {
                if until == Until::Problem && !worker.compiles() {
                    next.store(parts.len(), Ordering::Relaxed);
                    break 'parts;
                }
                match part {
                    Some(host) => worker.host(set, host)?,
                    // Orchestrations depend on which hosts exist.
                    None if set.targets.len() > FEW => worker.orchestrations(set)?,
                    None => {}
                }
            }
        }
        anyhow::Ok(worker.needs())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        let mut needs = Requirements::default();
        for worker in workers {
            needs.merge(
                worker
                    .join()
                    .map_err(|_| anyhow!("compiling ended abnormally"))??,
            );
        }
        Ok(needs)
    })
}

/// Lists each artifact of the bundle with problems that its absence would cause; the list is empty
/// for an artifact that nothing needs. For a file of the state tree, it has only the problems of
/// the first host that does not compile.
///
/// # Errors
/// As for [`needs`].
pub fn without_each(
    directory: &Path,
    manifest: &Manifest,
    needs: &Requirements,
    stock: &Inventory,
) -> anyhow::Result<Vec<(Artifact, Vec<String>)>> {
    let facts = facts(manifest)?;
    let sets = sets(manifest, Coverage::Covering)?;
    let set = sets.first().context("there is no set of options")?;
    let mut tree = Kept::new(&DirTree::new().bundle(directory));
    let mut all = Vec::new();
    for (artifact, missing) in needs.without_each(stock) {
        let mut said: Vec<String> = missing.iter().map(ToString::to_string).collect();
        // A file that only includes others defines no state. Its absence is noticed only when the
        // tree is compiled without it.
        if said.is_empty()
            && let Artifact::File { path } = &artifact
            && let Some(path) = from_bundle_path(path)
            && let Some(content) = tree.files.remove(path)
        {
            let mut worker = Worker::new(&tree, &facts);
            worker.hosts(set)?;
            if worker.compiles() {
                worker.orchestrations(set)?;
            }
            let without = worker.needs();
            tree.files.insert(path.to_owned(), content);
            said.extend(without.problems().map(str::to_owned));
        }
        all.push((artifact, said));
    }
    Ok(all)
}

fn sets(manifest: &Manifest, coverage: Coverage) -> anyhow::Result<Vec<Set>> {
    let sets = option_sets::sets(&manifest.kubernetes, &manifest.options, coverage);
    let mut sets = sets.map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow!("the options of the recipe:\n{}", lines.join("\n"))
    })?;
    // No chart excludes another, so one declaration with all charts is enough for each set.
    for set in &mut sets {
        set.declaration.cluster.value.charts = manifest.charts.keys().cloned().collect();
    }
    Ok(sets)
}

/// A state tree in memory, because it is read a thousand times.
struct Kept {
    files: BTreeMap<String, Vec<u8>>,
}

impl Kept {
    fn new(tree: &DirTree) -> Self {
        let read = |path: String| tree.read(&path).map(|content| (path, content));
        Self {
            files: tree.list().into_iter().filter_map(read).collect(),
        }
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

#[cfg(test)]
mod tests;
