//! The boundaries of a promotion at which a test can interrupt it.

/// The boundaries between the steps, in order: a promotion that is interrupted at any of them
/// resumes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Boundary {
    /// The daemon is stopped.
    Stopped = 1,
    /// The promotion is recorded with its epoch.
    Noted = 2,
    /// The copy has the epoch, and no log.
    Raised = 3,
    /// The documents, CAs and keys are in place.
    Files = 4,
    /// The host's files of an older master are removed.
    Cleared = 5,
    /// The store is in place.
    Store = 6,
    /// The store's epoch is recorded beside it.
    Epoch = 7,
    /// The host has its certificates.
    Identities = 8,
    /// The host is no longer a standby.
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
