//! The yum repository of a bundle: packages of RPM distributions with everything that a minimal
//! host lacks for them, and the packages that the build makes.

mod base;
mod dependency;
mod package_set;
mod proof;
mod repository;
mod resolver;
mod stubs;

pub use base::{Base, FORMAT, Installed};
pub(crate) use proof::prove;
pub use repository::{KEY, PACKAGES, REPOMD};
pub(crate) use repository::{check, file_name, write};
pub use resolver::{Closure, Unsatisfied, closure};
pub use stubs::{database, stubs};
