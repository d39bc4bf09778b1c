//! The part of `cargo lab` that runs before the lab's program is compiled.
//!
//! It depends on no crate: it is compiled in a second, so that the first line appears at once,
//! reports programs that are missing on the machine, and copies compiled dependencies from the
//! lab's cache. `cargo lab try` is here for the same reason.

pub mod cargo;
pub mod dependencies;
mod dirs;
mod errors;
pub mod programs;
pub mod tour;

pub use dirs::{cache, source_root};
