//! The check that a bundle has everything that its clusters can request.
//!
//! [`compile`] renders the state tree for every combination of options that an operator may choose
//! and passes each [`Rendering`] to a [`Collector`]. The [`Requirements`] are the artifacts that
//! those states name: images (in containers of every kind, arguments, variables, ConfigMaps,
//! containerd's configuration), packages and files of the bundle. The [`Inventory`] is the content
//! of a bundle, by digest. A requirement that the inventory lacks is [`Unmet`]; it lists the places
//! that require it.

mod collector;
pub mod compile;
mod debian;
mod install;
mod inventory;
mod requirements;
mod rpm;
mod rpm_dependencies;
mod scan;
mod uses;
mod walk;

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde::Serialize;
use serde_json::{Map, Value};

pub use collector::Collector;
pub(crate) use debian::{Packages, essence, installed};
pub(crate) use install::plan;
pub use inventory::Inventory;
pub use requirements::Requirements;
pub use uses::Uses;

/// The dpkg status of a bare host, as a file of a bundle: the packages that a host has before
/// anything is installed.
pub const BASE: &str = "base/dpkg-status";

/// The packages of a minimal RPM host, as a file of a bundle; only bundles for such hosts have it.
pub const RPM_BASE: &str = "base/rpm-packages";

/// Files that every bundle needs for itself, each with its reason: the installer, the configuration
/// that serves the images, and the package indexes.
pub(crate) const OWN_FILES: &[(&str, &str)] = &[
    (BASE, "the packages to install are derived from it"),
    ("bin/ctl", "install runs it"),
    ("install", "the operator runs it first"),
    (
        halite_bundle::nginx::MANIFESTS_MAP,
        "nginx serves the images with it",
    ),
    (
        halite_bundle::nginx::LISTS_MAP,
        "nginx serves the images with it",
    ),
    (
        halite_bundle::nginx::LINKS_MAP,
        "nginx serves the images with it",
    ),
    (
        halite_bundle::nginx::SERVER,
        "nginx serves the images with it",
    ),
    ("apt/dists/stable/InRelease", "apt reads it first"),
    (
        "apt/dists/stable/main/binary-amd64/Packages",
        "apt reads it",
    ),
    (
        "apt/dists/stable/main/binary-amd64/Packages.gz",
        "apt reads it",
    ),
    (
        "apt/dists/stable/Release",
        "apt reads it if it does not support InRelease",
    ),
    (
        "apt/dists/stable/Release.gpg",
        "apt reads it if it does not support InRelease",
    ),
    ("images/index.json", "it names the images"),
    ("images/oci-layout", "it marks the directory as a layout"),
];

/// A place that names an artifact.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ArtifactLocation {
    /// A file of the state tree, or the name of a package.
    pub file: String,
    /// Line in the file; 0 if there is none.
    pub line: u32,
    /// The role of the artifact there: the state, with the object and the field.
    pub what: String,
}

impl fmt::Display for ArtifactLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.what)
    }
}

/// Registry of the stand-ins for missing images: a name that no host can have (RFC 6761).
const STAND_IN: &str = "component.invalid/";

/// Returns the stand-in for the image of a component that the bundle lacks. With it, the state tree
/// compiles, and all other missing items are found, too.
#[must_use]
pub fn stand_in(component: &str) -> String {
    format!("{STAND_IN}{component}:missing")
}

fn component_of(reference: &str) -> Option<&str> {
    reference.strip_prefix(STAND_IN)?.strip_suffix(":missing")
}

/// An item that a bundle can contain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Artifact {
    /// A container image, by its name.
    Image {
        /// The name: `registry.k8s.io/pause:3.10.2`, or with a digest.
        reference: String,
    },
    /// A package of the operating system.
    Package {
        /// Its name.
        name: String,
        /// Its version, if only this version is suitable.
        version: Option<String>,
    },
    /// A package of the operating system, for hosts of RPM distributions.
    Rpm {
        /// Its name.
        name: String,
        /// Its version, if only this version is suitable.
        version: Option<String>,
    },
    /// A file, or a directory with at least one file.
    File {
        /// Its path in the bundle.
        path: String,
    },
}

impl fmt::Display for Artifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image { reference } => match component_of(reference) {
                Some(component) => write!(f, "the image of the component {component}"),
                None => write!(f, "the image {reference}"),
            },
            Self::Package {
                name,
                version: None,
            } => write!(f, "the package {name}"),
            Self::Package {
                name,
                version: Some(version),
            } => write!(f, "the package {name} {version}"),
            Self::Rpm {
                name,
                version: None,
            } => write!(f, "the RPM package {name}"),
            Self::Rpm {
                name,
                version: Some(version),
            } => write!(f, "the RPM package {name} {version}"),
            Self::File { path } => write!(f, "the file {path}"),
        }
    }
}

/// One state of a low state.
#[derive(Debug, Clone, PartialEq)]
pub struct CompiledState {
    /// The file of the state tree that contains it.
    pub file: String,
    /// The line of the state in that file.
    pub line: u32,
    /// `state.fun`.
    pub function: String,
    /// Its `name`.
    pub name: String,
    /// Its arguments. Files of the bundle appear in them as `bundle://PATH`, contents as text.
    pub args: Map<String, Value>,
    /// Files of the state tree that were read for it, by their path in the bundle.
    pub files: Vec<String>,
}

/// The compiled state tree for one host, or for the master, with one set of options.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rendering {
    /// The options and the host, for display.
    pub options: String,
    /// `true` for a host of an RPM distribution.
    pub rpm: bool,
    /// Its states. States that several renderings share should be the same object, so that they are
    /// inspected only once.
    pub states: Vec<Rc<CompiledState>>,
    /// Other files of the state tree that were read, by their path in the bundle.
    pub files: Vec<String>,
    /// The reasons why it does not compile; then it has no states.
    pub problems: Vec<String>,
}

/// A requirement that is not met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unmet {
    /// The artifact; `None` if the state tree does not compile.
    pub artifact: Option<Artifact>,
    /// The missing part of the artifact, or the reason why the tree does not compile.
    pub why: String,
    /// The places that need it, with the options under which they need it.
    pub needed_by: BTreeMap<ArtifactLocation, Uses>,
}

/// The number of places that are displayed for one artifact.
const SHOWN: usize = 4;

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.artifact {
            Some(artifact) => write!(f, "{artifact}: {}", self.why)?,
            None => f.write_str(&self.why)?,
        }
        for (place, uses) in self.needed_by.iter().take(SHOWN) {
            write!(f, "\n    needed by {place} ({uses})")?;
        }
        let more = self.needed_by.len().saturating_sub(SHOWN);
        if more > 0 {
            write!(f, "\n    and by {more} more")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
