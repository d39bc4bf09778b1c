//! What every cluster that a bundle is for would ask of it: its state tree, compiled for each of
//! them.

mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, anyhow};
use halite_manifest::Manifest;
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::option_sets;
use halite_pillar::option_sets::Set;
use halite_states::tree::{DirTree, Tree, of_bundle, sha256};
use worker::Worker;

use crate::completeness::{Artifact, Inventory, Requirements, stand_in};
use crate::error::Error;
use crate::recipe::{BINARIES, COMPONENTS};

/// Where the bundle stands for the templates: a path that nothing else has, so that each mention of
/// a file of the bundle is seen.
const BUNDLE: &str = "/halite-bundle";

/// The smallest host that a bundle is built on has two processors.
const WORKERS: usize = 2;

/// The master and a first host.
const FEW: usize = 2;

/// The requirements of the bundle in a directory, for a build.
///
/// # Errors
/// As [`needs`].
pub fn requirements(directory: &Path, manifest: &Manifest) -> Result<Requirements, Error> {
    needs(directory, manifest).map_err(|error| Error::Incomplete(format!("{error:#}")))
}

/// Compiles the state tree of the bundle in a directory for every set of options and collects the
/// requirements.
///
/// # Errors
/// A set of options is refused, which is a mistake in this program. What does not compile is among
/// the needs.
pub fn needs(directory: &Path, manifest: &Manifest) -> anyhow::Result<Requirements> {
    let facts = facts(manifest);
    let sets = sets(manifest)?;
    let tree = Kept::new(&DirTree::new().bundle(directory));
    let needs = gather(&tree, &facts, &sets)?;
    if needs.compiles() {
        return Ok(needs);
    }
    // Where a component is missing, nothing else that the same state asks for would be seen.
    let filled = with_stand_ins(&facts, &tree);
    if filled == facts {
        Ok(needs)
    } else {
        gather(&tree, &filled, &sets)
    }
}

/// The facts that templates see of a bundle.
fn facts(manifest: &Manifest) -> BundleFacts {
    let program = |path: &str| path.strip_prefix("bin/").map(str::to_owned);
    let programs = manifest.files.iter();
    BundleFacts {
        path: BUNDLE.to_owned(),
        // Only further hosts that serve the bundle ask for it, and for those the master compiles.
        manifest: String::new(),
        version: manifest.version.clone(),
        kubernetes: manifest.kubernetes.clone(),
        components: manifest.components.clone(),
        images: manifest.images.clone(),
        packages: manifest.packages.clone(),
        rpms: manifest.rpms.clone(),
        charts: manifest.charts.clone(),
        options: manifest.options.clone(),
        programs: programs
            .filter_map(|(path, entry)| Some((program(path)?, entry.sha256.clone())))
            .collect(),
        site: Vec::new(),
    }
}

/// The facts with something in the place of each image and program that they lack and that the tree
/// could mean.
fn with_stand_ins(facts: &BundleFacts, tree: &Kept) -> BundleFacts {
    let mut filled = facts.clone();
    let texts = tree
        .files
        .values()
        .filter_map(|content| std::str::from_utf8(content).ok());
    let named = texts.flat_map(components).chain(COMPONENTS.iter().copied());
    for component in named {
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

/// The images of the bundle in the pillar of a template.
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
        // A method of the map: `pillar.halite.images.get('NAME')`.
        let call = rest[end..]
            .strip_prefix('(')
            .map(|rest| rest.trim_start_matches(['\'', '"']));
        let name = call.map_or(&rest[..end], |rest| {
            rest.split(['\'', '"']).next().unwrap_or_default()
        });
        Some(name).filter(|name| !name.is_empty())
    })
}

fn gather(tree: &Kept, facts: &BundleFacts, sets: &[Set]) -> anyhow::Result<Requirements> {
    let next = AtomicUsize::new(0);
    // By host: most that a template sees is of its own host, and what was rendered for it is in one
    // compiler.
    let hosts: BTreeSet<&str> = sets
        .iter()
        .flat_map(|set| &set.targets)
        .map(|target| target.minion.as_str())
        .collect();
    let parts: Vec<Option<&str>> = hosts.into_iter().map(Some).chain([None]).collect();
    let work = || {
        let mut worker = Worker::new(tree, facts);
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            for set in sets {
                match part {
                    Some(host) => worker.host(set, host)?,
                    // They differ by the hosts that there are.
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

/// What would be said if each artifact of the bundle in turn were taken out of it. Of what nobody
/// would miss that is nothing.
///
/// # Errors
/// As [`needs`].
pub fn without_each(
    directory: &Path,
    manifest: &Manifest,
    needs: &Requirements,
    stock: &Inventory,
) -> anyhow::Result<Vec<(Artifact, Vec<String>)>> {
    let facts = facts(manifest);
    let sets = sets(manifest)?;
    let set = sets.first().context("there is no set of options")?;
    let mut tree = Kept::new(&DirTree::new().bundle(directory));
    let mut all = Vec::new();
    for (artifact, missing) in needs.without_each(stock) {
        let mut said: Vec<String> = missing.iter().map(ToString::to_string).collect();
        // A file that only includes others makes no state; it is missed when the tree is compiled
        // without it.
        if said.is_empty()
            && let Artifact::File { path } = &artifact
            && let Some(path) = of_bundle(path)
            && let Some(content) = tree.files.remove(path)
        {
            let mut worker = Worker::new(&tree, &facts);
            worker.hosts(set)?;
            worker.orchestrations(set)?;
            let without = worker.needs();
            tree.files.insert(path.to_owned(), content);
            said.extend(without.problems().map(str::to_owned));
        }
        all.push((artifact, said));
    }
    Ok(all)
}

fn sets(manifest: &Manifest) -> anyhow::Result<Vec<Set>> {
    let mut sets =
        option_sets::sets(&manifest.kubernetes, &manifest.options).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            anyhow!("the options of the recipe:\n{}", lines.join("\n"))
        })?;
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
