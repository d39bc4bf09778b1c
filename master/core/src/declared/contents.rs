//! The bundles that a cluster uses: its own, and the bundles that node documents record.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use halite_names::BundleVersion;
use halite_states::tree::{DirTree, MemoryTree};

use super::bundle::InUse;
use crate::refusal::Refusal;

/// Name, time and size of every file that was read.
pub type Fingerprint = Vec<(PathBuf, Option<(SystemTime, u64)>)>;

/// A bundle in use with the fingerprint of its reading.
pub(super) struct ReadBundle {
    pub(super) files: Fingerprint,
    pub(super) in_use: InUse,
    pub(super) tree: Arc<MemoryTree>,
}

/// One bundle, and the tree that is compiled with it.
pub(super) struct Content {
    /// The bundle, or the reason why it cannot be read now.
    bundle: Result<Arc<ReadBundle>, Refusal>,
    /// Its state tree, with the operator's own states mounted at `custom/`.
    pub(super) tree: DirTree,
}

impl Content {
    pub(super) fn new(config_dir: &Path, bundle: Result<Arc<ReadBundle>, Refusal>) -> Self {
        let own = DirTree::new().mount("custom", config_dir.join("custom"));
        let tree = match &bundle {
            Ok(bundle) => own.with_fallback(Arc::clone(&bundle.tree)),
            Err(_) => own,
        };
        Self { bundle, tree }
    }

    /// The same with the operator's own states as they were read.
    fn with_own_states(&self, own: &Arc<MemoryTree>) -> Self {
        Self {
            bundle: self.bundle.clone(),
            tree: self.tree.with_read(own),
        }
    }

    pub(super) fn in_use(&self) -> Result<&InUse, Refusal> {
        let bundle = self.bundle.as_ref();
        bundle.map(|bundle| &bundle.in_use).map_err(Clone::clone)
    }

    /// Returns whether both come from the same reading. Two failed readings are never the same.
    fn is(&self, other: &Self) -> bool {
        let both = self.bundle.as_ref().ok().zip(other.bundle.as_ref().ok());
        both.is_some_and(|(one, other)| Arc::ptr_eq(one, other))
    }
}

/// The bundles of one declaration.
pub(super) struct Contents {
    /// The bundle of the cluster document.
    pub(super) cluster: Content,
    /// The bundles that only node documents record.
    pub(super) others: BTreeMap<BundleVersion, Content>,
}

impl Contents {
    /// The bundle of a recorded version; without one, the cluster's bundle.
    pub(super) fn get(&self, version: Option<&BundleVersion>) -> &Content {
        let other = version.and_then(|version| self.others.get(version));
        other.unwrap_or(&self.cluster)
    }

    /// The same with the operator's own states as they were read.
    pub(super) fn with_own_states(&self, own: &Arc<MemoryTree>) -> Self {
        let others = self.others.iter();
        Self {
            cluster: self.cluster.with_own_states(own),
            others: others
                .map(|(version, content)| (version.clone(), content.with_own_states(own)))
                .collect(),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Content> {
        std::iter::once(&self.cluster).chain(self.others.values())
    }

    pub(super) fn are(&self, others: &Self) -> bool {
        self.others.keys().eq(others.others.keys())
            && self
                .all()
                .zip(others.all())
                .all(|(one, other)| one.is(other))
    }
}
