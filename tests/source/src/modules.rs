//! The modules of a crate and the paths that its code names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::parsed::{self, Name};

/// A module with its own file.
pub(crate) struct Module {
    /// The file.
    pub(crate) file: PathBuf,
    /// `true` if only its parent can name it.
    pub(crate) is_private: bool,
    /// The paths within the crate that the file's code names, except tests.
    pub(crate) names: BTreeSet<Name>,
    /// The names that the file re-exports, with their targets.
    pub(crate) exports: BTreeMap<String, Name>,
}

/// The modules of a crate by name, from its root file, except modules of tests.
pub(crate) fn of_crate(root: &Path) -> BTreeMap<Name, Module> {
    let mut modules = BTreeMap::new();
    read(
        root,
        root.parent().unwrap(),
        Vec::new(),
        false,
        &mut modules,
    );
    modules
}

/// Adds the module of a file and, by its `mod NAME;` items, those of its children, which are in
/// `dir`.
fn read(
    file: &Path,
    dir: &Path,
    name: Name,
    is_private: bool,
    modules: &mut BTreeMap<Name, Module>,
) {
    let outline = &parsed::of_file(file).outline;
    let module = Module {
        file: file.to_owned(),
        is_private,
        names: outline.names(&name),
        exports: outline.exports(&name),
    };
    modules.insert(name.clone(), module);
    for (child, is_private) in &outline.children {
        let flat = dir.join(format!("{child}.rs"));
        let below = dir.join(child);
        let file = if flat.is_file() {
            flat
        } else {
            below.join("mod.rs")
        };
        let mut name = name.clone();
        name.push(child.clone());
        read(&file, &below, name, *is_private, modules);
    }
}
