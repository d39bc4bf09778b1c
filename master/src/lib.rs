//! The daemon that holds pillar, keys, jobs and the certificate authorities, compiles states and
//! dispatches jobs.
//!
//! - Inputs: the operator's documents in `/etc/halite`, the bundle in use, calls of operators and
//!   minions over gRPC.
//! - Outputs: jobs to minions, Kubernetes objects, certificates; its record is an SQLite database
//!   in the state directory.
//! - [`serve`] authenticates, authorises, audits and enrols; it calls a [`backend`], behind which
//!   [`jobs`], [`orchestrate`] and [`operator`] do the work over an [`app::App`].
//! - It never runs a command on a host, never writes a secret into a job, event or log line, and
//!   never opens a connection to a minion: minions connect to it.

pub mod app;
pub mod backend;
pub mod backup_parts;
pub mod board;
pub mod ca;
pub mod clock;
pub mod compile;
pub mod config;
pub mod connections;
pub mod daemon;
pub mod declared;
mod descriptors;
mod due;
pub mod epoch;
pub mod etcd;
pub mod event_bus;
pub mod event_stream;
pub mod files;
pub mod gate;
pub mod init;
pub mod isolation;
pub mod jobs;
pub mod keys;
pub mod kubernetes;
pub mod leaving;
pub mod metrics;
pub mod names;
pub mod operator;
pub mod orchestrate;
pub mod other_masters;
pub mod own_operator;
pub mod pod_network;
pub mod redact;
pub mod refusal;
pub mod roster;
pub mod saved;
pub mod serve;
pub mod standby;
pub mod standby_backup;
pub mod store;
pub mod succession;
mod supervision;
pub mod upkeep;
mod watchdog;
