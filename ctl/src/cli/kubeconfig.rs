//! The command line of `ctl kubeconfig`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration::duration;

/// `ctl kubeconfig`.
#[derive(Debug, Args)]
pub struct Kubeconfig {
    /// Time for which it is valid, for example 30m or 8h. It cannot be revoked before its end.
    #[arg(long, default_value = "8h", value_name = "TIME", value_parser = duration)]
    pub ttl: Duration,
    /// The API server, HOST or HOST:PORT: an address or name in its certificate. Default: the
    /// virtual address, or else the first API server.
    #[arg(long, value_name = "ADDRESS")]
    pub server: Option<String>,
    /// Write it to this file, which only its owner can read; default: print it.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}
