//! The operator's declaration: document types, schema, validation, and the view of one minion.
//!
//! A declaration passes through three modules. [`load`] reads the texts of `cluster.yaml` and
//! `nodes/*.yaml` and reports every problem of every file at once, with its position. [`resolve`]
//! chooses the values that the documents leave open (addresses, versions) and records them in the
//! operator's text. [`view`] makes the data that the templates of one minion may use, with
//! references in place of the secrets that this minion may have.

pub mod api_hardening;
pub mod api_server;
pub mod backup;
pub mod bundle_facts;
pub mod ca_rotation;
pub mod certificates;
pub mod cluster;
pub mod component;
pub mod control_plane;
pub mod declaration;
pub mod dns;
pub mod encryption_keys;
pub mod etcd;
pub mod example;
mod field_schemas;
pub mod firewall;
pub mod flags;
pub mod formats;
mod hardening;
pub mod host_facts;
pub mod host_list;
pub mod host_settings;
pub mod load;
pub mod load_hosts;
pub mod masters;
pub mod metrics;
pub mod mirrors;
pub mod network;
pub mod node;
pub mod notify;
pub mod option_sets;
pub mod options;
pub mod own_secret;
pub mod profile;
pub mod programs;
pub mod proxy;
#[cfg(test)]
mod reference_tests;
pub mod registry;
pub mod release;
pub mod resolve;
pub mod role;
pub mod roles;
pub mod schema;
pub mod sealed;
pub mod sink_target;
pub mod standbys;
pub mod suggest;
pub mod trust;
pub mod upgrade;
pub mod validate;
pub mod view;
mod vrrp;
