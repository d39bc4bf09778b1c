//! Calls: the chunks of a low state while they are compiled.

use std::collections::BTreeMap;
use std::rc::Rc;

use halite_document::Problem;
use serde_json::{Map, Value};

use super::globals::Order;
use super::reference::Reference;
use crate::low::{Chunk, Position};

/// The origin of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The line of the SLS or macro.
    pub source: Position,
    /// Files of the state tree that were read for it: its SLS, the imports of the SLS, templates of
    /// its contents.
    pub files: Vec<String>,
    /// Pillar paths that its SLS and its templates read.
    pub pillar: Vec<String>,
}

/// A call as its declaration makes it, before its requisites are resolved.
#[derive(Debug, Clone)]
pub struct Call {
    pub(super) chunk: Chunk,
    /// Position in `names`, from 1; 0 without.
    pub(super) name_order: usize,
    pub(super) order: Order,
    pub(super) references: Vec<(String, Reference)>,
    /// Position of its `source` argument.
    pub(super) source_argument: Position,
    pub(super) provenance: Provenance,
    pub(super) blobs: BTreeMap<String, Vec<u8>>,
    /// Arguments that are variables of the template.
    pub(super) variables: Map<String, Value>,
    /// Parts that the author should change although they compile.
    pub(super) warnings: Vec<Problem>,
}

impl Call {
    /// The call; its requisites are empty.
    #[must_use]
    pub fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    /// Its origin.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Files of the state tree to which it refers as `blob:SHA256`, by that digest.
    #[must_use]
    pub fn blobs(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.blobs
    }
}

/// A call that is not ordered yet.
#[derive(Debug)]
pub(super) struct Draft {
    pub call: Rc<Call>,
    /// Position of its declaration among all.
    pub declaration: usize,
}
