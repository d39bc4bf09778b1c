//! The difference between two bundles.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::manifest::Manifest;

/// The difference between two bundles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Versions of the bundle and of Kubernetes.
    pub versions: Vec<ItemChange>,
    /// Components by name, with their versions.
    pub components: Vec<ItemChange>,
    /// Images by component, with their references.
    pub images: Vec<ItemChange>,
    /// Packages by name, with their versions.
    pub packages: Vec<ItemChange>,
    /// Charts by name, with their versions.
    pub charts: Vec<ItemChange>,
    /// States by their path; `old` and `new` are digests.
    pub states: Vec<ItemChange>,
    /// Size of the old bundle's files in bytes.
    pub old_size: u64,
    /// Size of the new bundle's files in bytes.
    pub new_size: u64,
    /// Size of the contents that only the new bundle has, in bytes, each content once.
    pub added_size: u64,
}

/// An item that differs between the two bundles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ItemChange {
    /// The item's name.
    pub name: String,
    /// Its value in the old bundle; `None` if the item is new.
    pub old: Option<String>,
    /// Its value in the new bundle; `None` if the item was removed.
    pub new: Option<String>,
}

impl Diff {
    /// Compares two bundles by their manifests.
    #[must_use]
    pub fn new(old: &Manifest, new: &Manifest) -> Self {
        let versions = |manifest: &Manifest| {
            BTreeMap::from([
                ("bundle".to_owned(), manifest.version.to_string()),
                ("kubernetes".to_owned(), manifest.kubernetes.clone()),
            ])
        };
        let states = |manifest: &Manifest| -> BTreeMap<String, String> {
            let files = manifest.files.iter();
            files
                .filter_map(|(path, entry)| {
                    Some((
                        path.strip_prefix("states/")?.to_owned(),
                        entry.sha256.clone(),
                    ))
                })
                .collect()
        };
        let packages = |manifest: &Manifest| -> BTreeMap<String, String> {
            let rpms = manifest.rpms.iter();
            let rpms = rpms.map(|(name, version)| (format!("{name} (rpm)"), version.clone()));
            manifest.packages.clone().into_iter().chain(rpms).collect()
        };
        let size = |manifest: &Manifest| manifest.files.values().map(|entry| entry.size).sum();
        let had: BTreeSet<&str> = old
            .files
            .values()
            .map(|entry| entry.sha256.as_str())
            .collect();
        let added: BTreeMap<&str, u64> = new
            .files
            .values()
            .map(|entry| (entry.sha256.as_str(), entry.size))
            .collect();
        Self {
            versions: changes(&versions(old), &versions(new)),
            components: changes(&old.components, &new.components),
            images: changes(&old.images, &new.images),
            packages: changes(&packages(old), &packages(new)),
            charts: changes(&old.charts, &new.charts),
            states: changes(&states(old), &states(new)),
            old_size: size(old),
            new_size: size(new),
            added_size: added
                .iter()
                .filter(|(sha256, _)| !had.contains(*sha256))
                .map(|(_, size)| size)
                .sum(),
        }
    }

    /// Returns whether both bundles have the same contents.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let lists = [
            &self.versions,
            &self.components,
            &self.images,
            &self.packages,
            &self.charts,
            &self.states,
        ];
        self.added_size == 0
            && self.old_size == self.new_size
            && lists.iter().all(|list| list.is_empty())
    }
}

/// The items that differ between two maps.
pub fn changes(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<ItemChange> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let change = |name: &String| {
        let (old, new) = (old.get(name).cloned(), new.get(name).cloned());
        (old != new).then(|| ItemChange {
            name: name.clone(),
            old,
            new,
        })
    };
    names.into_iter().filter_map(change).collect()
}
