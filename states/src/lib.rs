//! The state language of Halite: the compiler from SLS files (YAML with Jinja, as in Salt) to low
//! state, and the engine that runs a low state.
//!
//! - Input of the compiler: a state tree, and the id, pillar and grains of one minion
//!   ([`compile::Input`]). Output: a low state and its blobs, or all problems with their places.
//! - Input of the engine: a low state and the implementation of the state functions
//!   ([`engine::Modules`]). Output: one return per state.
//! - The signatures of all state functions ([`signatures`]) are the contract between the two; the
//!   reference `docs/reference/states.md` is generated from them.
//!
//! The crate never touches a host, never opens a connection and never sees the value of a secret.
//! The minion uses it without the feature `compiler`.

pub mod archive;
pub mod args;
pub mod certificates;
#[cfg(feature = "compiler")]
pub mod compile;
pub mod engine;
pub mod firewall;
pub mod low;
pub mod pattern;
pub mod run;
#[cfg(feature = "compiler")]
pub(crate) mod serialized;
pub mod shipped;
pub mod signature;
pub mod signatures;
#[cfg(feature = "compiler")]
pub mod target;
#[cfg(feature = "compiler")]
pub(crate) mod template;
#[cfg(feature = "compiler")]
pub mod tree;
