//! The command line of `ctl support`.

use std::path::PathBuf;

use clap::Args;

/// `ctl support`.
#[derive(Debug, Args)]
pub struct Support {
    /// The file of the new archive; default: halite-support-TIME.tar.gz in this directory.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}
