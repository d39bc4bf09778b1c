//! The files that change with a predicted mount: those of another file system, most of them unknown
//! before apply.

use std::sync::atomic::Ordering;

use super::effect::Meta;
use super::overlay::Overlay;
use super::overlay_files::{Covered, PredictedEntry, stat_after};
use super::{FileKind, Host as _};

impl Overlay<'_> {
    /// Notes that an answer was assumed if it is about a file system that is only predicted.
    pub(super) fn note_covered(&self, path: &str) {
        let is_within = |point: &String| {
            let rest = path.strip_prefix(point.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let predicted = self.predicted();
        let mut unknown = predicted
            .covered
            .iter()
            .filter(|(_, covered)| covered.unknown);
        if unknown.any(|(point, _)| is_within(point)) {
            self.assumed.store(true, Ordering::Relaxed);
        }
    }

    /// Another file system is mounted at a path and hides the files there. Its own files are
    /// unknown before apply, so the directory counts as empty. `mode` is that of its root.
    pub(super) async fn cover(&self, path: &str, mode: u32, unknown: bool) {
        let point = self.resolve(path, true).await;
        let root = Meta {
            mode: Some(mode),
            ..Meta::default()
        };
        let stat = stat_after(None, FileKind::Directory, &root, 0, None);
        let entry = PredictedEntry {
            stat,
            content: None,
            fresh: true,
        };
        let mut predicted = self.predicted();
        let taken = predicted.files.take(&point);
        predicted.files.put(&point, entry);
        let under = predicted
            .covered
            .remove(&point)
            .map_or(taken, |old| old.under);
        predicted.covered.insert(point, Covered { under, unknown });
    }

    /// The file system at a path is unmounted: under a predicted one are the previous files, under
    /// another one unknown files.
    pub(super) async fn uncover(&self, path: &str) {
        let point = self.resolve(path, true).await;
        let covered = self.predicted().covered.remove(&point);
        let is_mounted = || async {
            let mounts = self.mounts().await.unwrap_or_default();
            mounts.iter().any(|mount| mount.path == point)
        };
        match covered {
            Some(covered) => self.predicted().files.put_back(&point, covered.under),
            None if is_mounted().await => self.cover(&point, 0o755, true).await,
            None => {}
        }
    }
}
