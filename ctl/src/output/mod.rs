//! Answers about jobs, as people read them.

pub mod bundle_diff;
pub mod changes;
pub mod returns;

pub use halite_terminal::{
    Format, Paint, Screen, age, count, megabytes, seconds, table, visible, yaml,
};
