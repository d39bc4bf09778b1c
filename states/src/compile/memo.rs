//! What declarations come to, for the next minion that has the same ones.
//!
//! Objects are known by their address, which is theirs as long as they are kept here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::chunks::Call;
use super::declaration::{Declaration, Declared};
use crate::template::{Asked, Rendered, Renderer};

/// What texts declare, and the calls that declarations make.
#[derive(Debug, Default)]
pub(super) struct Memo {
    declared: RefCell<HashMap<*const Rendered, Read>>,
    /// Of the declarations in `declared`: `extend` and its like make others, once for each minion.
    calls: RefCell<HashMap<*const Declaration, Vec<Version>>>,
}

/// A text, and what it declares.
#[derive(Debug)]
struct Read {
    rendered: Rc<Rendered>,
    declared: Rc<Declared>,
}

/// The calls of a declaration, and the templates whose texts are in them.
#[derive(Debug)]
struct Version {
    asked: Vec<Asked>,
    calls: Vec<Rc<Call>>,
}

impl Memo {
    /// What a text declares, if it was kept.
    pub(super) fn declared(&self, rendered: &Rc<Rendered>) -> Option<Rc<Declared>> {
        self.declared
            .borrow()
            .get(&Rc::as_ptr(rendered))
            .map(|read| read.declared.clone())
    }

    pub(super) fn keep_declared(&self, rendered: &Rc<Rendered>, declared: &Rc<Declared>) {
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

    /// The calls of a declaration, if some were kept whose templates come to the same texts now.
    pub(super) fn calls(
        &self,
        declaration: &Rc<Declaration>,
        renderer: &Renderer,
    ) -> Option<Vec<Rc<Call>>> {
        let calls = self.calls.borrow();
        let mut versions = calls.get(&Rc::as_ptr(declaration))?.iter();
        let same =
            versions.find(|version| version.asked.iter().all(|asked| renderer.is_same(asked)));
        same.map(|version| version.calls.clone())
    }

    /// Keeps the calls of a declaration that is here.
    pub(super) fn keep_calls(
        &self,
        declaration: &Rc<Declaration>,
        asked: Vec<Asked>,
        calls: &[Rc<Call>],
    ) {
        if let Some(versions) = self.calls.borrow_mut().get_mut(&Rc::as_ptr(declaration)) {
            versions.push(Version {
                asked,
                calls: calls.to_vec(),
            });
        }
    }
}
