//! The command lines of the daemons, their output, and their notifications to systemd. A crate of its own, because
//! `ctl` writes manual pages from the command lines and would otherwise link both daemons.

pub mod builder;
pub mod master;
pub mod minion;
pub mod notify;
pub mod output;
