//! The modules of a crate and the paths that its code names, read by a parser.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;
use syn::{Attribute, Item, ItemMod, UseTree, Visibility};

/// The path of a module or an item within its crate; empty for the crate's root.
pub(crate) type Name = Vec<String>;

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

/// Reads a file and, by its `mod NAME;` items, the files of its children, which are in `dir`.
fn read(
    file: &Path,
    dir: &Path,
    name: Name,
    is_private: bool,
    modules: &mut BTreeMap<Name, Module>,
) {
    let text = fs::read_to_string(file).unwrap();
    let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut reader = Reader {
        at: name.clone(),
        names: BTreeSet::new(),
        exports: BTreeMap::new(),
        children: Vec::new(),
    };
    reader.visit_file(&parsed);
    modules.insert(
        name.clone(),
        Module {
            file: file.to_owned(),
            is_private,
            names: reader.names,
            exports: reader.exports,
        },
    );
    for (child, is_private) in reader.children {
        let flat = dir.join(format!("{child}.rs"));
        let below = dir.join(&child);
        let file = if flat.is_file() {
            flat
        } else {
            below.join("mod.rs")
        };
        let mut name = name.clone();
        name.push(child);
        read(&file, &below, name, is_private, modules);
    }
}

/// Returns whether an item is compiled for tests only.
pub(crate) fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|condition| condition == "test")
    })
}

/// Collects the names in one file.
struct Reader {
    at: Name,
    names: BTreeSet<Name>,
    exports: BTreeMap<String, Name>,
    children: Vec<(String, bool)>,
}

impl Reader {
    /// The path within the crate that these segments mean, if they begin in the crate.
    fn resolve(&self, segments: &[String]) -> Option<Name> {
        let mut rest = segments;
        let mut base = match rest.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.at.clone(),
            // A child, named from the parent's own file.
            child if self.children.iter().any(|(name, _)| name == child) => {
                return Some([self.at.as_slice(), segments].concat());
            }
            _ => return None,
        };
        while let Some(first) = rest.first() {
            match first.as_str() {
                "super" => drop(base.pop()),
                "crate" | "self" => {}
                _ => break,
            }
            rest = &rest[1..];
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    fn used(&mut self, tree: &UseTree, before: &[String], is_export: bool) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.used(&path.tree, &with(&path.ident), is_export),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.used(tree, before, is_export);
                }
            }
            UseTree::Glob(_) => self.name(before, None),
            UseTree::Name(name) if name.ident == "self" => self.name(before, None),
            UseTree::Name(name) => {
                let export = is_export.then(|| name.ident.to_string());
                self.name(&with(&name.ident), export);
            }
            UseTree::Rename(rename) => {
                let export = is_export.then(|| rename.rename.to_string());
                self.name(&with(&rename.ident), export);
            }
        }
    }

    fn name(&mut self, segments: &[String], export: Option<String>) {
        let Some(name) = self.resolve(segments) else {
            return;
        };
        match export {
            Some(export) => drop(self.exports.insert(export, name)),
            None => drop(self.names.insert(name)),
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_file(&mut self, file: &'ast syn::File) {
        // Children first: paths may name them before their `mod` item.
        for item in &file.items {
            if let Item::Mod(ItemMod {
                attrs,
                vis,
                ident,
                content: None,
                ..
            }) = item
                && !is_of_tests(attrs)
            {
                let is_private = matches!(vis, Visibility::Inherited);
                self.children.push((ident.to_string(), is_private));
            }
        }
        syn::visit::visit_file(self, file);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if is_of_tests(&module.attrs) {
            return;
        }
        // A module in the file itself counts as the file.
        syn::visit::visit_item_mod(self, module);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_export = !matches!(item.vis, Visibility::Inherited);
        if !is_of_tests(&item.attrs) {
            self.used(&item.tree, &[], is_export);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if segments.len() > 1 {
            self.name(&segments, None);
        }
        syn::visit::visit_path(self, path);
    }
}
