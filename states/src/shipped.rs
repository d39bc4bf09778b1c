//! Names in the shipped state tree that programs apply by themselves.

/// The orchestration of `ctl bootstrap`.
pub const BOOTSTRAP: &str = "halite.orchestrate.bootstrap";

/// The orchestration of `ctl node add`.
pub const ADD_NODE: &str = "halite.orchestrate.add_node";

/// The orchestration of `ctl upgrade`.
pub const UPGRADE: &str = "halite.orchestrate.upgrade";

/// The states with which `ctl bootstrap` restarts the master.
pub const RESTART_MASTER: &str = "halite.services.master.restart";

/// The states with which `ctl bootstrap` restarts the minion.
pub const RESTART_MINION: &str = "halite.services.minion.restart";
