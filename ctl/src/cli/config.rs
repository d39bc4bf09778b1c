//! The command line of `ctl config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `ctl config`.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print an example of a cluster document, with comments.
    Example,
    /// Report all problems of a cluster document, or of a whole configuration directory.
    Validate(ConfigPath),
    /// Show the documents with all defaults. Secrets are hidden.
    Show(ConfigPath),
    /// Print the JSON Schema of a document.
    Schema {
        /// The document: `cluster` or `node`.
        #[arg(default_value = "cluster", value_parser = ["cluster", "node"])]
        kind: String,
    },
}

/// The location of the configuration.
#[derive(Debug, Args)]
pub struct ConfigPath {
    /// A cluster document, or a directory with cluster.yaml and nodes/.
    #[arg(default_value = "/etc/halite")]
    pub path: PathBuf,
    /// Also check against this bundle; default: the bundle that the site uses, if it is readable
    /// here.
    #[arg(long)]
    pub bundle: Option<PathBuf>,
}
