//! `file.*`

mod content;
mod copy;
mod directory;
mod edit;
mod expression;
mod line;
mod managed;
mod recurse;
mod symlink;

pub(super) use content::ContentSource;
pub(super) use copy::copy;
pub(super) use directory::directory;
pub(super) use edit::{append, blockreplace};
pub(super) use expression::{comment, replace, uncomment};
pub(super) use line::line;
pub(super) use managed::managed;
pub(super) use recurse::recurse;
pub(super) use symlink::{absent, symlink};
