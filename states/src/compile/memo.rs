//! Cache of declarations and calls, for the next minion that has the same texts.
//!
//! Objects are identified by their address, which is unique as long as the cache holds them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::call::Call;
use super::declaration::{Declaration, Declared};
use crate::template::{Rendered, Renderer, Rendering};

/// The declarations of rendered texts, and the calls of declarations.
#[derive(Debug, Default)]
pub(super) struct Memo {
    declared: RefCell<HashMap<*const Rendered, Read>>,
    /// Only of the declarations in `declared`; `extend`, `use` and `exclude` make other objects for
    /// each minion.
    calls: RefCell<HashMap<*const Declaration, Vec<Version>>>,
}

/// A text with its declarations.
#[derive(Debug)]
struct Read {
    rendered: Rc<Rendered>,
    declared: Rc<Declared>,
}

/// The calls of a declaration, and the renderings on which they depend.
#[derive(Debug)]
struct Version {
    renderings: Vec<Rendering>,
    calls: Vec<Rc<Call>>,
}

impl Memo {
    /// The declarations of a text, if cached.
    pub(super) fn declared(&self, rendered: &Rc<Rendered>) -> Option<Rc<Declared>> {
        self.declared
            .borrow()
            .get(&Rc::as_ptr(rendered))
            .map(|read| read.declared.clone())
    }

    pub(super) fn store_declared(&self, rendered: &Rc<Rendered>, declared: &Rc<Declared>) {
        let read = Read {
            rendered: rendered.clone(),
            declared: declared.clone(),
        };
        self.declared
            .borrow_mut()
            .insert(Rc::as_ptr(&read.rendered), read);
        let mut calls = self.calls.borrow_mut();
        for declaration in &declared.declarations {
            calls.insert(Rc::as_ptr(declaration), Vec::new());
        }
    }

    /// The calls of a declaration, if cached with renderings that are unchanged for the present
    /// minion.
    pub(super) fn calls(
        &self,
        declaration: &Rc<Declaration>,
        renderer: &Renderer,
    ) -> Option<Vec<Rc<Call>>> {
        let calls = self.calls.borrow();
        let mut versions = calls.get(&Rc::as_ptr(declaration))?.iter();
        let same = versions.find(|version| {
            version
                .renderings
                .iter()
                .all(|rendering| renderer.is_unchanged(rendering))
        });
        same.map(|version| version.calls.clone())
    }

    /// Stores the calls of a declaration that is in the cache.
    pub(super) fn store_calls(
        &self,
        declaration: &Rc<Declaration>,
        renderings: Vec<Rendering>,
        calls: &[Rc<Call>],
    ) {
        if let Some(versions) = self.calls.borrow_mut().get_mut(&Rc::as_ptr(declaration)) {
            versions.push(Version {
                renderings,
                calls: calls.to_vec(),
            });
        }
    }
}
