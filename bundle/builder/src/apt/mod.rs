//! The apt repository of a bundle: packages gathered from this machine's package sources with
//! everything that a bare host lacks for them, packages that the build makes, the indexes, and the
//! signature.

pub(crate) mod package;
mod proof;
mod repository;
mod resolver;

pub(crate) use proof::prove;
pub(crate) use repository::write;
pub(crate) use resolver::{fetch, request, unkept};
