//! The boundaries of a promotion, at which a test ends it.

/// The boundaries between the steps, in their order: a promotion that ends at any of them goes on
/// later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Boundary {
    /// The daemon is stopped.
    Stopped = 1,
    /// The promotion is noted with its epoch.
    Noted = 2,
    /// The copy has the epoch, and no log.
    Raised = 3,
    /// The documents, CAs and keys are in place.
    Files = 4,
    /// What the host had of an older master is out of the way.
    Cleared = 5,
    /// The store is in place.
    Store = 6,
    /// The store's epoch is noted beside it.
    Epoch = 7,
    /// The host has its certificates.
    Identities = 8,
    /// The host is no standby.
    Master = 9,
    /// The copy is gone.
    Removed = 10,
    /// The daemon is started.
    Started = 11,
}

impl Boundary {
    /// All boundaries.
    pub const ALL: [Self; 11] = [
        Self::Stopped,
        Self::Noted,
        Self::Raised,
        Self::Files,
        Self::Cleared,
        Self::Store,
        Self::Epoch,
        Self::Identities,
        Self::Master,
        Self::Removed,
        Self::Started,
    ];
}
