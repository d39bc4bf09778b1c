//! The shipped state tree: it compiles for every kind of target, secrets are only in key files, and
//! goldens list the states of each target in their order. `HALITE_UPDATE_GOLDENS=1 cargo test -p
//! halite-states --test tree` writes the goldens.
#![expect(clippy::unwrap_used, reason = "a test's panic is its report")]

mod addons;
mod certificates;
mod control_plane;
mod destroy;
mod enrol;
mod etcd;
mod etcd_dedicated;
mod etcd_placement;
mod firewall;
mod hardening;
mod hosts;
mod images;
mod joining;
mod keepalived;
mod kubelet;
mod layers;
mod leave;
mod leave_packages;
mod masters;
mod network;
mod operators;
mod orchestrate;
mod outside;
mod releases;
mod reserved;
mod roles;
mod rotation;
mod runtime;
mod script_host;
mod servers;
mod support;
mod taints;
mod units;
mod upgrades;
mod whole;
