//! Text files of a state tree, for the template engine.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use super::lines::TemplateSource;
use crate::tree::Tree;

/// Largest file that templates may import, in bytes.
const MAX_TEMPLATE: usize = 1024 * 1024;

/// The reason why a file of the tree cannot be a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is too large.
    #[error("it has {0} bytes, and a template may have {MAX_TEMPLATE}")]
    TooLarge(usize),
    /// It is not UTF-8.
    #[error("it is not text: byte {0} is not UTF-8")]
    NoText(usize),
}

/// The text files of a state tree, with a record of those that were read.
#[derive(Debug)]
pub(super) struct Files {
    sources: Arc<[TemplateSource]>,
    /// The other files.
    unusable: HashMap<String, Unusable>,
    /// Positions in `sources` by path; line marks contain them.
    numbers: HashMap<String, usize>,
    read: Mutex<Vec<usize>>,
}

impl Files {
    pub(super) fn new(tree: &dyn Tree) -> Self {
        let mut unusable = HashMap::new();
        let text = |path: String| {
            let content = tree.read(&path)?;
            let text = if content.len() > MAX_TEMPLATE {
                Err(Unusable::TooLarge(content.len()))
            } else {
                String::from_utf8(content)
                    .map_err(|error| Unusable::NoText(error.utf8_error().valid_up_to()))
            };
            match text {
                Ok(text) => Some(TemplateSource::new(path, text)),
                Err(why) => {
                    unusable.insert(path, why);
                    None
                }
            }
        };
        let sources: Arc<[TemplateSource]> = tree.list().into_iter().filter_map(text).collect();
        let numbers = sources
            .iter()
            .enumerate()
            .map(|(at, source)| (source.name.clone(), at))
            .collect();
        Self {
            sources,
            unusable,
            numbers,
            read: Mutex::default(),
        }
    }

    pub(super) fn text(&self, path: &str) -> Option<&Arc<str>> {
        Some(&self.sources.get(self.number(path)?)?.text)
    }

    /// The reason why an existing file has no text; `None` if the file does not exist.
    pub(super) fn unusable(&self, path: &str) -> Option<Unusable> {
        self.unusable.get(path).copied()
    }

    pub(super) fn number(&self, path: &str) -> Option<usize> {
        self.numbers.get(path).copied()
    }

    pub(super) fn sources(&self) -> &Arc<[TemplateSource]> {
        &self.sources
    }

    /// Tests whether there is a file or a directory of this path.
    pub(super) fn has(&self, path: &str) -> bool {
        let below = format!("{path}/");
        let all = self.numbers.keys().chain(self.unusable.keys());
        self.numbers.contains_key(path)
            || self.unusable.contains_key(path)
            || all.into_iter().any(|known| known.starts_with(&below))
    }

    /// The paths that begin with `prefix`, sorted.
    pub(super) fn paths(&self, prefix: &str) -> Vec<String> {
        let readable = self.sources.iter().map(|source| &source.name);
        let all = readable.chain(self.unusable.keys());
        let mut paths: Vec<String> = all
            .filter(|path| path.starts_with(prefix))
            .cloned()
            .collect();
        paths.sort();
        paths
    }

    /// The directories whose paths begin with `prefix`, sorted.
    pub(super) fn directories(&self, prefix: &str) -> Vec<String> {
        let mut directories = BTreeSet::new();
        for path in self.paths("") {
            let mut below = path.as_str();
            while let Some((directory, _)) = below.rsplit_once('/') {
                directories.insert(directory.to_owned());
                below = directory;
            }
        }
        directories.retain(|directory| directory.starts_with(prefix));
        directories.into_iter().collect()
    }

    /// The dotted names of all SLS files, sorted.
    pub(super) fn states(&self) -> Vec<String> {
        let mut states: Vec<String> = self
            .paths("")
            .iter()
            .filter_map(|path| path.strip_suffix(".sls"))
            .map(|path| path.strip_suffix("/init").unwrap_or(path).replace('/', "."))
            .collect();
        states.sort();
        states
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
