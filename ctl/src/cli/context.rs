//! The command line of `ctl context`.

use clap::{Args, Subcommand};

/// `ctl context`.
#[derive(Debug, Subcommand)]
pub enum Context {
    /// List the contexts. The current one is marked.
    List,
    /// Make a context the current one, which commands without --context use.
    Use(NamedContext),
    /// Add or change a context, with the values of --master and --identity.
    Set(NamedContext),
    /// Remove a context. The identity's file stays.
    Delete(NamedContext),
}

/// A context by its name.
#[derive(Debug, Args)]
pub struct NamedContext {
    /// The context's name.
    pub name: String,
}
