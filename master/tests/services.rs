//! The services over real TLS: every method by every kind of caller, and the life of a minion's
//! stream.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod services {
    pub mod authorisation;
    pub mod bridge;
    pub mod declared;
    pub mod identities;
    pub mod join;
    pub mod kubeconfig;
    pub mod operators;
    pub mod own_cas;
    pub mod sinks;
    pub mod site;
    pub mod standbys;
    pub mod streams;
}
