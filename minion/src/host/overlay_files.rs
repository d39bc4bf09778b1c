//! The files of [`super::overlay`]: predicted entries over the directory tree of the host below.

use std::collections::BTreeMap;

use super::effect::Meta;
use super::{FileKind, Stat};

/// A predicted entry.
#[derive(Debug, Clone)]
pub(super) struct PredictedEntry {
    /// The entry as questions see it.
    pub stat: Stat,
    /// Content of a file that was written; `None` if only owner or mode was changed.
    pub content: Option<Vec<u8>>,
    /// `true` if nothing of the host below shows through this directory.
    pub fresh: bool,
}

/// The overlay's own knowledge of a path.
pub(super) enum PredictedPath {
    /// It exists with this entry.
    Entry(PredictedEntry),
    /// It does not exist.
    Gone,
    /// The host below decides.
    Below,
}

/// Predicted entries; `None` is a removed path.
#[derive(Debug, Default)]
pub(super) struct Files(BTreeMap<String, Option<PredictedEntry>>);

/// A directory on which another file system is predicted.
pub(super) struct Covered {
    /// The predictions for the files under it.
    pub under: Files,
    /// Its files are only known after apply: those of a device, or under an unmounted one.
    pub unknown: bool,
}

/// The directories above `path`, nearest first, the root excluded.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/')
        .map(|(at, _)| at)
        .filter(|at| *at > 0)
        .filter_map(|at| path.get(..at))
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
}

impl Files {
    pub(super) fn get(&self, path: &str) -> PredictedPath {
        match self.0.get(path) {
            Some(Some(entry)) => return PredictedPath::Entry(entry.clone()),
            Some(None) => return PredictedPath::Gone,
            None => {}
        }
        for above in ancestors(path) {
            match self.0.get(above) {
                Some(None) => return PredictedPath::Gone,
                Some(Some(entry)) if entry.fresh => return PredictedPath::Gone,
                _ => {}
            }
        }
        PredictedPath::Below
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn put(&mut self, path: &str, entry: PredictedEntry) {
        self.0.insert(path.to_owned(), Some(entry));
    }

    pub(super) fn remove(&mut self, path: &str) {
        let below = format!("{path}/");
        self.0.retain(|name, _| !name.starts_with(&below));
        self.0.insert(path.to_owned(), None);
    }

    /// Takes the predictions for `path` and everything below it.
    pub(super) fn take(&mut self, path: &str) -> Self {
        let below = format!("{path}/");
        let (taken, kept) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(name, _)| name == path || name.starts_with(&below));
        self.0 = kept;
        Self(taken)
    }

    /// Replaces the predictions for `path` and everything below it by those that were taken.
    pub(super) fn put_back(&mut self, path: &str, taken: Self) {
        self.take(path);
        self.0.extend(taken.0);
    }

    /// The predicted changes to the names in `path`: those added and those removed.
    pub(super) fn names(&self, path: &str) -> (Vec<String>, Vec<String>) {
        let prefix = if path == "/" {
            "/".to_owned()
        } else {
            format!("{path}/")
        };
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        for (name, entry) in self
            .0
            .range(prefix.clone()..)
            .take_while(|(name, _)| name.starts_with(&prefix))
        {
            let rest = name.get(prefix.len()..).unwrap_or_default();
            if rest.is_empty() || rest.contains('/') {
                continue;
            }
            if entry.is_some() {
                &mut added
            } else {
                &mut removed
            }
            .push(rest.to_owned());
        }
        (added, removed)
    }
}

/// The entry after an effect that makes it a `kind`, given the old entry.
pub(super) fn stat_after(
    old: Option<&Stat>,
    kind: FileKind,
    meta: &Meta,
    size: u64,
    target: Option<String>,
) -> Stat {
    let old = old.filter(|s| s.kind == kind);
    let default_mode = match kind {
        FileKind::Directory => 0o755,
        FileKind::Symlink => 0o777,
        FileKind::File | FileKind::Other => 0o644,
    };
    let root = || "root".to_owned();
    Stat {
        kind,
        mode: meta.mode.or(old.map(|s| s.mode)).unwrap_or(default_mode),
        user: meta
            .user
            .clone()
            .or(old.map(|s| s.user.clone()))
            .unwrap_or_else(root),
        group: meta
            .group
            .clone()
            .or(old.map(|s| s.group.clone()))
            .unwrap_or_else(root),
        size,
        target,
    }
}
