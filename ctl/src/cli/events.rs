//! `ctl events`.

use clap::Args;

/// `ctl events`.
#[derive(Debug, Args)]
pub struct Events {
    /// Show only events whose tags start with this prefix, for example `halite/key/` or
    /// `halite/run/`.
    #[arg(long, default_value = "")]
    pub prefix: String,
    /// Start with the stored events after this position (`sequence` in `-o json`); 0: with the
    /// oldest event. By default, only new events are shown.
    #[arg(long)]
    pub after: Option<u32>,
}
