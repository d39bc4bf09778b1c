//! The types of a file that other files can use.

use syn::visit::{self, Visit};
use syn::{File, Ident, Visibility};

use super::is_of_tests;

/// A type that other files can use.
pub(crate) struct Type {
    /// Its name.
    pub(crate) name: String,
    /// `true` if other crates may use it.
    pub(crate) is_public: bool,
}

/// The types of a file that are not private to it, except those of tests.
pub(super) fn read(file: &File) -> Vec<Type> {
    let mut types = Types::default();
    types.visit_file(file);
    types.0
}

#[derive(Default)]
struct Types(Vec<Type>);

impl Types {
    fn add(&mut self, name: &Ident, visibility: &Visibility) {
        if !matches!(visibility, Visibility::Inherited) {
            self.0.push(Type {
                name: name.to_string(),
                is_public: matches!(visibility, Visibility::Public(_)),
            });
        }
    }
}

impl<'ast> Visit<'ast> for Types {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add(&item.ident, &item.vis);
    }
    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add(&item.ident, &item.vis);
    }
    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add(&item.ident, &item.vis);
    }
    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.add(&item.ident, &item.vis);
    }
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_of_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }
}
