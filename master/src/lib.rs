//! The daemon that holds pillar, keys, jobs and the certificate authorities, compiles states and
//! dispatches jobs.
//!
//! - Inputs: the operator's documents in `/etc/halite`, the bundle in use, calls of operators and
//!   minions over gRPC.
//! - Outputs: jobs to minions, Kubernetes objects, certificates; its record is an SQLite database
//!   in the state directory.
//! - [`serve`] authenticates, authorises, audits and enrols; it calls a [`backend`], behind which
//!   the jobs of `halite-fleet`, `halite-orchestrate` and [`operator`] do the work over an
//!   [`App`](halite_core::app::App).
//! - It never runs a command on a host, never writes a secret into a job, event or log line, and
//!   never opens a connection to a minion: minions connect to it.

pub mod audit_journal;
pub mod backend;
pub mod backup_parts;
pub mod daemon;
pub mod health_rounds;
pub mod metrics;
pub mod notifier;
pub mod operator;
#[cfg(test)]
mod orchestrate_tests;
pub mod other_masters;
mod retention;
pub mod serve;
pub mod standby_backup;
mod standstill;
pub mod upkeep;
mod watchdog;
