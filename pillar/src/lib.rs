//! What the operator declares: types, schema, validation, secrets, and the view of one minion.
//!
//! The road of a declaration: [`load`] reads the texts and reports every problem of every file at
//! once, with its place; [`resolve`] fixes what was left open (addresses, versions) and records it
//! beside what the operator wrote; [`view`] makes what the templates of one minion see, with
//! placeholders where only a needed secret will stand.

pub mod bundle;
pub mod cluster;
pub mod example;
pub mod facts;
pub mod formats;
pub mod load;
pub mod mirrors;
pub mod network;
pub mod node;
pub mod options;
pub mod proxy;
mod reader;
pub mod registry;
pub mod resolve;
pub mod schema;
pub mod source;
pub mod trust;
pub mod validate;
pub mod view;
