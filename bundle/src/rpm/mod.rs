//! The yum repository of a bundle: packages of RPM distributions with all that a minimal host lacks for them, and those
//! that the build makes.

mod base;
mod closure;
mod dependency;
mod stubs;
mod universe;

pub use base::{Base, FORMAT, Installed};
pub use closure::{Closure, Lack, closure};
pub use stubs::{database, stubs};
