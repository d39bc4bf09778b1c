//! The state language of Halite: SLS files (YAML with Jinja, as in Salt) compiled to low state, and
//! the engine that runs a low state. Pure: values in, values out; whatever touches a host comes in
//! through [`engine::Modules`].

#[cfg(feature = "compiler")]
pub mod compile;
pub mod engine;
pub mod low;
pub mod run;
pub mod shipped;
pub mod signature;
pub mod signatures;
#[cfg(feature = "compiler")]
pub mod target;
#[cfg(feature = "compiler")]
pub(crate) mod template;
#[cfg(feature = "compiler")]
pub mod tree;
