//! The modules below a file and the paths that it names.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{File, Ident, Item, ItemMod, ItemUse, UseTree, Visibility};

use super::is_of_tests;

/// The path of a module or an item within its crate; empty for the crate's root.
pub(crate) type Name = Vec<String>;

/// The modules below a file and the paths that it names, except tests.
#[derive(Default)]
pub(crate) struct Outline {
    /// The modules that have their own files, and whether only this file can name them.
    pub(crate) children: Vec<(String, bool)>,
    /// The paths within the crate that its code names, as written.
    names: BTreeSet<Name>,
    /// The names that it re-exports, with their targets as written.
    exports: BTreeMap<String, Name>,
}

impl Outline {
    pub(super) fn read(file: &File) -> Self {
        let mut outline = Self::default();
        outline.visit_file(file);
        outline
    }

    /// The paths that the file's code names, if it is the module `at`.
    pub(crate) fn names(&self, at: &[String]) -> BTreeSet<Name> {
        let names = self.names.iter();
        names.map(|name| self.resolve(at, name)).collect()
    }

    /// The names that the file re-exports, with their targets, if it is the module `at`.
    pub(crate) fn exports(&self, at: &[String]) -> BTreeMap<String, Name> {
        let exports = self.exports.iter();
        exports
            .map(|(name, target)| (name.clone(), self.resolve(at, target)))
            .collect()
    }

    /// The path within the crate that a path means that starts in it.
    fn resolve(&self, at: &[String], written: &[String]) -> Name {
        let mut base = match written.first().map(String::as_str) {
            Some("self" | "super") => at.to_vec(),
            // A child, named from the parent's own file.
            Some(first) if self.is_child(first) => return [at, written].concat(),
            _ => Vec::new(),
        };
        let mut rest = written;
        while let Some(first) = rest.first() {
            match first.as_str() {
                "super" => drop(base.pop()),
                "crate" | "self" => {}
                _ => break,
            }
            rest = &rest[1..];
        }
        base.extend_from_slice(rest);
        base
    }

    fn is_child(&self, name: &str) -> bool {
        self.children.iter().any(|(child, _)| child == name)
    }

    fn used(&mut self, tree: &UseTree, before: &[String], is_export: bool) {
        let with = |ident: &Ident| [before, &[ident.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.used(&path.tree, &with(&path.ident), is_export),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.used(tree, before, is_export);
                }
            }
            UseTree::Glob(_) => self.name(before.to_vec(), None),
            UseTree::Name(name) if name.ident == "self" => self.name(before.to_vec(), None),
            UseTree::Name(name) => {
                let export = is_export.then(|| name.ident.to_string());
                self.name(with(&name.ident), export);
            }
            UseTree::Rename(rename) => {
                let export = is_export.then(|| rename.rename.to_string());
                self.name(with(&rename.ident), export);
            }
        }
    }

    /// Notes a path that starts in the crate.
    fn name(&mut self, written: Name, export: Option<String>) {
        let is_own = written.first().is_some_and(|first| {
            matches!(first.as_str(), "crate" | "self" | "super") || self.is_child(first)
        });
        match export {
            _ if !is_own => {}
            Some(export) => drop(self.exports.insert(export, written)),
            None => drop(self.names.insert(written)),
        }
    }
}

impl<'ast> Visit<'ast> for Outline {
    fn visit_file(&mut self, file: &'ast File) {
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
        visit::visit_file(self, file);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if is_of_tests(&module.attrs) {
            return;
        }
        // A module in the file itself counts as the file.
        visit::visit_item_mod(self, module);
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_export = !matches!(item.vis, Visibility::Inherited);
        if !is_of_tests(&item.attrs) {
            self.used(&item.tree, &[], is_export);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let segments = path.segments.iter();
            self.name(segments.map(|s| s.ident.to_string()).collect(), None);
        }
        visit::visit_path(self, path);
    }
}
