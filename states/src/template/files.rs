//! Text files of a state tree, for the template engine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::lines::Source;
use crate::tree::Tree;

/// Largest file that templates may import, in bytes.
const MAX_TEMPLATE: usize = 1024 * 1024;

/// The text files of a state tree, with a record of those that were read.
#[derive(Debug)]
pub(super) struct Files {
    sources: Arc<[Source]>,
    /// Positions in `sources` by path; line marks contain them.
    numbers: HashMap<String, usize>,
    read: Mutex<Vec<usize>>,
}

impl Files {
    pub(super) fn new(tree: &dyn Tree) -> Self {
        let text = |path: String| {
            let content = tree
                .read(&path)
                .filter(|content| content.len() <= MAX_TEMPLATE)?;
            Some(Source::new(path, String::from_utf8(content).ok()?))
        };
        let sources: Arc<[Source]> = tree.list().into_iter().filter_map(text).collect();
        let numbers = sources
            .iter()
            .enumerate()
            .map(|(at, source)| (source.name.clone(), at))
            .collect();
        Self {
            sources,
            numbers,
            read: Mutex::default(),
        }
    }

    pub(super) fn text(&self, path: &str) -> Option<&Arc<str>> {
        Some(&self.sources.get(self.number(path)?)?.text)
    }

    pub(super) fn number(&self, path: &str) -> Option<usize> {
        self.numbers.get(path).copied()
    }

    pub(super) fn sources(&self) -> &Arc<[Source]> {
        &self.sources
    }

    /// Records that a file is read, if it exists.
    pub(super) fn record(&self, path: &str) {
        let Some(number) = self.number(path) else {
            return;
        };
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if !read.contains(&number) {
            read.push(number);
        }
    }

    /// The files read since the last call, in the order of their first reading.
    pub(super) fn take(&self) -> Vec<String> {
        let read = std::mem::take(&mut *self.read.lock().unwrap_or_else(PoisonError::into_inner));
        read.into_iter()
            .filter_map(|at| self.sources.get(at))
            .map(|source| source.name.clone())
            .collect()
    }
}
