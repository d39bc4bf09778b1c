//! Names that have a fixed meaning in every cluster.

use std::sync::LazyLock;

use halite_proto::ids::MinionId;

/// The id of the pseudo-minion whose host is the Kubernetes API. No node may have it.
pub static MASTER: LazyLock<MinionId> = LazyLock::new(MinionId::master);

/// Creates a minion's id, for short tests.
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, clippy::expect_used, reason = "for tests")]
pub fn minion(text: &str) -> MinionId {
    text.parse().unwrap()
}
