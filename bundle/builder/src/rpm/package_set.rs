//! All packages that could be on a host: the installed ones and the packages of the repositories,
//! indexed by the names that they provide.

use std::collections::HashMap;

use halite_fetch::yum::{Need, Package, Version};

use super::base::Base;
use super::dependency::matches;

/// The index of a package in [`PackageSet`].
pub type Id = usize;

/// The parts of a package on which dependencies depend.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    pub name: &'a str,
    pub version: &'a Version,
    pub architecture: &'a str,
    pub provides: &'a [Need],
    pub requires: &'a [Need],
    pub conflicts: &'a [Need],
    pub obsoletes: &'a [Need],
    files: &'a [String],
    /// Its package in a repository; `None` for an installed one.
    pub package: Option<&'a Package>,
}

/// Makes a node: installed packages and repository packages have different types with the same
/// fields.
macro_rules! node {
    ($of:expr, $package:expr) => {
        Node {
            name: &$of.name,
            version: &$of.version,
            architecture: &$of.architecture,
            provides: &$of.provides,
            requires: &$of.requires,
            conflicts: &$of.conflicts,
            obsoletes: &$of.obsoletes,
            files: &$of.files,
            package: $package,
        }
    };
}

/// All packages, with indexes.
pub struct PackageSet<'a> {
    nodes: Vec<Node<'a>>,
    /// The number of installed packages, which come first.
    installed: usize,
    provided: HashMap<&'a str, Vec<(Id, &'a Need)>>,
    files: HashMap<&'a str, Vec<Id>>,
    /// The packages that obsolete a name.
    obsoleting: HashMap<&'a str, Vec<(Id, &'a Need)>>,
}

/// Names of packages of which dnf installs several versions at the same time (its option
/// `installonlypkgs`).
const BESIDE_OLDER: &[&str] = &[
    "kernel",
    "kernel-PAE",
    "installonlypkg(kernel)",
    "installonlypkg(kernel-module)",
    "installonlypkg(vm)",
    "multiversion(kernel)",
];

/// The mark of packages of module streams, which are only for hosts that enable the stream.
const MODULE: &str = ".module";

impl<'a> PackageSet<'a> {
    /// Indexes packages. A package that several repositories have in the same version is taken from
    /// the first one.
    pub fn new(base: &'a Base, packages: impl IntoIterator<Item = &'a Package>) -> Self {
        let mut nodes: Vec<_> = base
            .packages
            .iter()
            .map(|package| node!(package, None))
            .collect();
        let installed = nodes.len();
        let plain = packages
            .into_iter()
            .filter(|package| !package.version.release.contains(MODULE));
        nodes.extend(plain.map(|package| node!(package, Some(package))));
        let mut all = Self {
            nodes: Vec::new(),
            installed,
            provided: HashMap::new(),
            files: HashMap::new(),
            obsoleting: HashMap::new(),
        };
        for (id, node) in nodes.iter().enumerate() {
            for need in node.provides {
                all.provided.entry(&need.name).or_default().push((id, need));
            }
            for file in node.files {
                all.files.entry(file).or_default().push(id);
            }
            for need in node.obsoletes {
                all.obsoleting
                    .entry(&need.name)
                    .or_default()
                    .push((id, need));
            }
        }
        all.nodes = nodes;
        all
    }

    /// Returns a package.
    pub fn node(&self, id: Id) -> &Node<'a> {
        &self.nodes[id]
    }

    /// All installed packages.
    pub fn installed(&self) -> std::ops::Range<Id> {
        0..self.installed
    }

    /// Returns `true` if a package is installed.
    pub fn is_installed(&self, id: Id) -> bool {
        id < self.installed
    }

    /// All packages that provide a need, each once.
    pub fn providers(&self, need: &Need) -> Vec<Id> {
        let provided = self.provided.get(need.name.as_str()).into_iter().flatten();
        let mut found: Vec<Id> = provided
            .filter(|(_, provided)| matches(provided, need))
            .map(|(id, _)| *id)
            .collect();
        if need.name.starts_with('/') {
            found.extend(self.files.get(need.name.as_str()).into_iter().flatten());
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// All packages with a name.
    pub fn named(&self, name: &str) -> Vec<Id> {
        let ids = self
            .provided
            .get(name)
            .into_iter()
            .flatten()
            .map(|(id, _)| *id);
        let mut found: Vec<Id> = ids.filter(|id| self.node(*id).name == name).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// All packages that obsolete a package.
    pub fn obsoleters(&self, id: Id) -> Vec<Id> {
        let obsoleting = self
            .obsoleting
            .get(self.node(id).name)
            .into_iter()
            .flatten();
        let mut found: Vec<Id> = obsoleting
            .filter(|(by, need)| *by != id && self.is_named(id, need))
            .map(|(by, _)| *by)
            .collect();
        found.dedup();
        found
    }

    /// Returns `true` if a package obsoletes another. Only the other's name and version count, not
    /// its provides.
    pub fn obsoletes(&self, by: Id, id: Id) -> bool {
        by != id
            && self
                .node(by)
                .obsoletes
                .iter()
                .any(|need| self.is_named(id, need))
    }

    /// Returns `true` if a package has the name of a need, and a version within its bound.
    fn is_named(&self, id: Id, need: &Need) -> bool {
        let node = self.node(id);
        let own = Need {
            name: node.name.to_owned(),
            version: Some((halite_fetch::yum::Flag::Eq, node.version.clone())),
        };
        matches(&own, need)
    }

    /// Returns `true` if the installation of a package removes another.
    pub fn replaces(&self, by: Id, id: Id) -> bool {
        let same = self.node(by).name == self.node(id).name
            && self.node(by).architecture_fits(self.node(id))
            && !self.stands_beside(by);
        by != id && (same || self.obsoletes(by, id))
    }

    fn stands_beside(&self, id: Id) -> bool {
        self.node(id)
            .provides
            .iter()
            .any(|need| BESIDE_OLDER.contains(&need.name.as_str()))
    }
}

impl Node<'_> {
    /// Returns `true` if either can be an update of the other.
    fn architecture_fits(&self, other: &Self) -> bool {
        let either = |node: &Self| node.architecture == "noarch";
        self.architecture == other.architecture || either(self) || either(other)
    }

    /// Name, version and architecture.
    pub fn label(&self) -> String {
        format!("{}-{}.{}", self.name, self.version, self.architecture)
    }
}
