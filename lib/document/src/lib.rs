//! Documents that people write: YAML with positions, and problems with place, excerpt and hint.
//!
//! Input is the text of one file. Output is a tree of [`yaml::Node`]s, each with its line and
//! column, or a [`Problem`] that a person can act on. Other crates also report errors in the
//! meaning of a document as `Problem`s. [`schema::read`] reads a document by a JSON Schema that its
//! crate generates from its types, [`schema::questions`] and [`schema::commented`] help to write
//! one.
//!
//! [`text`] handles characters of values that must not reach a terminal unchanged.
//!
//! This crate opens no files, prints nothing and knows no particular kind of document.

#[cfg(feature = "yaml")]
pub mod fields;
mod position;
pub mod problem;
#[cfg(feature = "yaml")]
pub mod schema;
#[cfg(feature = "yaml")]
pub mod source;
#[cfg(feature = "yaml")]
mod suggestion;
pub mod text;
#[cfg(feature = "yaml")]
pub mod yaml;

pub use position::Position;
pub use problem::Problem;
#[cfg(feature = "yaml")]
pub use source::DocumentSource;
#[cfg(feature = "yaml")]
pub use suggestion::did_you_mean;
