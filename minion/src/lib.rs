//! The agent on every managed host: host effects behind one trait, state modules, journal, and the
//! link to the master.

pub mod blobs;
pub mod config;
pub mod enrol;
pub mod exclusive;
pub mod grains;
pub mod host;
pub mod identity;
pub mod jobs;
pub mod journal;
pub mod link;
pub mod local;
pub mod modules;
pub mod notify;
pub mod owed;
pub mod remote;
pub mod runner;
