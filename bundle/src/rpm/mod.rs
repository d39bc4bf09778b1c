//! The yum repository of a bundle: packages of RPM distributions with all that a minimal host lacks
//! for them, and those that the build makes.

mod base;
mod closure;
mod dependency;
mod proof;
mod repository;
mod stubs;
mod universe;

pub use base::{Base, FORMAT, Installed};
pub use closure::{Closure, Lack, closure};
pub(crate) use proof::prove;
pub use repository::{KEY, PACKAGES, REPOMD};
pub(crate) use repository::{check, file_name, write};
pub(crate) use stubs::program;
pub use stubs::{database, stubs};
