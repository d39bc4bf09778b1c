//! The agent on every managed host.
//!
//! The minion keeps one connection to a master ([`link`]), runs the jobs that it receives
//! ([`jobs`]) and answers each until the master has stored the answer ([`journal`]). A job of
//! states is a compiled low state: state modules ([`modules`]) compare it with the host and plan
//! effects, and the [`runner`] carries them out through one trait ([`host::Host`]).
//!
//! Inputs: `/etc/halite/minion.yaml`, jobs, files by digest. Outputs: changes to the host, answers,
//! grains. The minion never compiles states, never sees another minion's pillar, and touches files
//! and programs only in [`host`] and in the few modules that keep its own state.

#[expect(
    clippy::disallowed_methods,
    reason = "the cache is the minion's own state"
)]
pub mod blobs;
mod clock;
#[expect(clippy::disallowed_methods, reason = "the minion's own configuration")]
pub mod config;
pub mod enrol;
pub mod exclusive;
#[expect(clippy::disallowed_methods, reason = "grains are read from the host")]
pub mod grains;
pub mod health;
pub mod host;
pub mod identity;
pub mod jobs;
pub mod journal;
pub mod link;
#[expect(
    clippy::disallowed_methods,
    reason = "the operator names the file of the low state"
)]
pub mod local;
pub mod low_state;
pub mod masters;
pub mod modules;
pub mod pending_triggers;
pub mod pod_network;
pub mod preflight;
pub mod remote;
pub mod runner;
pub mod turns;
pub mod update;

/// The version of this program.
pub const VERSION: &str = if cfg!(feature = "other-version") {
    concat!(env!("CARGO_PKG_VERSION"), "+other")
} else {
    env!("CARGO_PKG_VERSION")
};
