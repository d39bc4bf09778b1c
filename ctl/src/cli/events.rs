//! `ctl events`.

use clap::Args;

/// `ctl events`.
#[derive(Debug, Args)]
pub struct Events {
    /// Only events whose tags begin so, for example `halite/key/` or `halite/run/`.
    #[arg(long, default_value = "")]
    pub prefix: String,
    /// Begin with the stored events after this position (`sequence` in `-o json`); 0: with the oldest
    /// one. By default only news are shown.
    #[arg(long)]
    pub after: Option<u32>,
}
