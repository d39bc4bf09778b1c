//! The `halite-master` daemon.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use halite_cli::master::{Cli, Command};
use halite_master::clock::{Clock as _, SystemClock};
use halite_master::config::Config;
use halite_master::{backend, daemon, init};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Longest wait for files that are being read when the daemon has ended.
const LAST_FILES: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Init { config } => initialise(&config),
        Command::Run { config } => start_logging().and_then(|()| serve(&config)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("halite-master: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn initialise(path: &Path) -> anyhow::Result<()> {
    let config = Config::read(path)?;
    let made = init::init(&config, SystemClock.now())?;
    println!("cluster   {}", config.cluster);
    println!("CA        sha256:{}", made.ca_sha256);
    println!("operator  {}", made.operator.display());
    Ok(())
}

fn serve(path: &Path) -> anyhow::Result<()> {
    let config = Config::read(path)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ended = runtime.block_on(daemon::run(config, backend::start));
    // A file system that hangs must not keep the process.
    runtime.shutdown_timeout(LAST_FILES);
    Ok(ended?)
}

/// Starts logging to standard error. `HALITE_LOG` is a level, or `target=level` pairs separated by
/// commas (default `info`); `HALITE_LOG_FORMAT` is `plain` or `json`.
fn start_logging() -> anyhow::Result<()> {
    let wanted = std::env::var("HALITE_LOG").unwrap_or_else(|_| "info,sqlx=warn".to_owned());
    let targets: Targets = wanted
        .parse()
        .with_context(|| format!("cannot use HALITE_LOG={wanted:?}"))?;
    let registry = tracing_subscriber::registry().with(targets);
    let stderr = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match std::env::var("HALITE_LOG_FORMAT").as_deref() {
        Ok("json") => registry.with(stderr.json()).init(),
        Ok("plain") | Err(_) => registry
            .with(stderr.with_ansi(std::io::stderr().is_terminal()))
            .init(),
        Ok(other) => {
            anyhow::bail!("cannot use HALITE_LOG_FORMAT={other:?}; it can be plain or json")
        }
    }
    Ok(())
}
