//! The command lines of the daemons, in a crate of their own: `ctl` writes manual pages from them,
//! and would otherwise be linked with both for their sake.

pub mod builder;
pub mod master;
pub mod minion;
