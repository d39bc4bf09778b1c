//! `file.*`

mod content;
mod directory;
mod edit;
mod line;
mod managed;
mod recurse;
mod symlink;

pub(super) use content::ContentSource;
pub(super) use directory::directory;
pub(super) use edit::{append, blockreplace};
pub(super) use line::line;
pub(super) use managed::managed;
pub(super) use recurse::recurse;
pub(super) use symlink::{absent, symlink};
