//! The apt repository of a bundle: packages gathered from this machine's package sources with all
//! that a bare host lacks for them, packages that the build makes, the indexes, and the signature.

mod closure;
mod package;
pub(crate) mod program;
mod proof;
mod repository;
mod sign;

pub(crate) use closure::{fetch, request, unkept};
pub(crate) use package::Control;
pub(crate) use proof::prove;
pub(crate) use repository::{parse_index, stanzas, write};
pub use sign::{Kind, Signer};
