//! The command line of `ctl config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `ctl config`.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Ask for what a new cluster needs, and write cluster.yaml and the document of the first host.
    /// Nothing is written before the last answer.
    Wizard(ConfigWizard),
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

/// `ctl config wizard`.
#[derive(Debug, Args)]
pub struct ConfigWizard {
    /// The directory for cluster.yaml and nodes/NAME.yaml.
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    pub out: PathBuf,
    /// Take the answers from this file instead of asking: YAML, one `PATH: VALUE` for each answer,
    /// for example `metadata.name: prod`. A path of the first host's document begins with `node.`.
    #[arg(long, value_name = "FILE")]
    pub answers: Option<PathBuf>,
    /// The grains of the first host, as `halite-minion grains` prints them there; default: those of
    /// this host.
    #[arg(long, value_name = "FILE")]
    pub grains: Option<PathBuf>,
    /// The first host is not this one: do not compare the answers with this host's addresses.
    #[arg(long, conflicts_with = "grains")]
    pub other_host: bool,
    /// Check the answers against this bundle, an ISO or a directory; default: the bundle that
    /// contains this program, or that the site uses, or the only ISO beside this program.
    #[arg(long)]
    pub bundle: Option<PathBuf>,
    /// Replace existing documents without asking.
    #[arg(long, short)]
    pub yes: bool,
}

/// The location of the configuration.
#[derive(Debug, Args)]
pub struct ConfigPath {
    /// A cluster document, or a directory with cluster.yaml and nodes/.
    #[arg(default_value = "/etc/halite")]
    pub path: PathBuf,
    /// Also check against this bundle, an ISO or a directory; default: the bundle that the site
    /// uses, if it is readable here.
    #[arg(long)]
    pub bundle: Option<PathBuf>,
}
