//! The shared parts of the master: configuration, clock, store, certificate authorities, declared
//! state, connections and events, on which the other crates of the master are built.
//!
//! - Inputs: the configuration, the operator's documents in `/etc/halite`, the open store.
//! - Outputs: an [`app::App`], and the declared state as a [`declared::Snapshot`].
//! - It does not depend on jobs, Kubernetes, orchestration or the services.

pub mod app;
pub mod board;
pub mod ca;
pub mod clock;
pub mod config;
pub mod connections;
pub mod declared;
pub mod descriptors;
pub mod due;
pub mod encryption;
pub mod event_bus;
pub mod event_stream;
pub mod gate;
pub mod hello;
pub mod init;
pub mod isolation;
pub mod metrics;
pub mod names;
pub mod own_operator;
pub mod redact;
pub mod refusal;
pub mod roster;
pub mod saved;
pub mod sink_board;
pub mod succession;
pub mod supervision;
