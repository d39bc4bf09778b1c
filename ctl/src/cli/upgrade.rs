//! The command line of `ctl upgrade`.

use clap::Args;

/// `ctl upgrade`.
#[derive(Debug, Args)]
pub struct Upgrade {
    /// The version of one of the site's bundles, or of its Kubernetes (v1.36.4).
    pub version: String,
    /// The number or percentage of hosts without a control plane that are upgraded at a time.
    #[arg(long, default_value = "25%")]
    pub batch: String,
    /// Show what would change; change nothing.
    #[arg(long)]
    pub test: bool,
}
