//! The shipped tree compiles for every kind of target, secrets go only where they belong, and what
//! the states are, and in which order they run, stands in goldens. `HALITE_UPDATE_GOLDENS=1 cargo
//! test -p halite-states --test tree` writes the goldens.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod addons;
mod hosts;
mod layers;
mod network;
mod orchestrate;
mod outside;
mod releases;
mod servers;
mod support;
mod whole;
