//! Answers about jobs, as people read them.

pub mod changes;
pub mod returns;

pub use halite_terminal::{Format, Paint, Screen, count, seconds, table, yaml};
