//! Findings about hosts against an upgrade.

mod against;
pub mod holds;
pub mod kubelets;
pub mod minions;
pub mod pods;

pub use self::against::{Against, finding};
