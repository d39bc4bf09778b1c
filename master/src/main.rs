//! The `halite-master` daemon.

use std::io::IsTerminal as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use halite_cli::master::{Cli, Command};
use halite_cli::output;
use halite_core::clock::{Clock as _, SystemClock};
use halite_core::config::Config;
use halite_core::init;
use halite_errors::chain;
use halite_master::audit_journal;
use halite_master::audit_journal::AuditJournal;
use halite_master::daemon;
use halite_master::standby_backup;
use halite_standby::promote::{
    Promoted, Promotion, PromotionEffect, PromotionPreview, PromotionRequest, Unit,
};
use halite_standby::report::{age, gap, report};
use halite_store::AUDIT_TARGET;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// Longest wait at exit for files that are still being read.
const LAST_FILES: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Init { config } => initialise(&config),
        Command::Promote {
            config,
            force,
            cluster,
            test,
        } => promote(&config, &PromotionRequest { force, cluster }, test),
        Command::Save { config } => save(&config),
        Command::Run { config } => start_logging().and_then(|()| serve(&config)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::report(&format!("halite-master: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn initialise(path: &Path) -> anyhow::Result<()> {
    let config = Config::read(path)?;
    let made = init::init(&config, SystemClock.now())?;
    output::print(&format!(
        "cluster   {}\nCA        sha256:{}\noperator  {}",
        config.cluster,
        made.ca_sha256,
        made.operator.display()
    ))?;
    Ok(())
}

fn promote(path: &Path, wanted: &PromotionRequest, test: bool) -> anyhow::Result<()> {
    let config = Config::read(path)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    halite_proto::transport::install_crypto();
    if let Some(report) = report(&config)? {
        let now = SystemClock.now();
        let until = report.until();
        let ago = age(now - until.as_millis());
        output::say(&format!(
            "standby   of {}: complete up to {until}, {ago} ago",
            report.master
        ));
        if let Some(missed) = gap(&report, now) {
            output::say(&format!(
                "missing   records after that may be missing: {missed}"
            ));
        }
    }
    let minion = Path::new(daemon::MINION);
    let promotion = Promotion::new(&config, minion, &SystemClock, &Systemd)
        .with_notes(|text| output::say(&format!("note      {text}")));
    if test {
        return show_preview(&runtime.block_on(promotion.preview(wanted))?, wanted.force);
    }
    match runtime.block_on(promotion.run(wanted))? {
        Promoted::Done(epoch) => {
            output::say(&format!("master    {}", config.endpoints().join(", ")));
            output::say(&format!("epoch     {epoch}"));
            output::say("tokens    void: `ctl node add` and `ctl token create` make new ones");
        }
        Promoted::WasMaster => output::say("this host already has the master"),
    }
    Ok(())
}

/// Shows what a promotion would do.
///
/// # Errors
/// It would be refused.
fn show_preview(preview: &PromotionPreview, force: bool) -> anyhow::Result<()> {
    let effect = match preview.effect {
        PromotionEffect::Promotes => {
            "this standby would become the master; existing tokens would become invalid"
        }
        PromotionEffect::Resumes => "an interrupted promotion would be resumed",
        PromotionEffect::TakesBack => "the master of this host would act again",
        PromotionEffect::Nothing => "this host already has the master",
    };
    let word = if force { "ignored" } else { "refused" };
    for refusal in &preview.refusals {
        output::say(&format!("{word}   {}", chain(refusal)));
    }
    if !force && !preview.refusals.is_empty() {
        anyhow::bail!("a promotion would be refused; nothing was changed");
    }
    output::say(&format!("test      {effect}; nothing was changed"));
    Ok(())
}

fn save(path: &Path) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    if out.is_terminal() {
        anyhow::bail!(
            "this output is for `ctl backup create --local`, which makes a file of it; run that command"
        );
    }
    let config = Config::read(path)?;
    halite_proto::transport::install_crypto();
    let saved = runtime()?.block_on(standby_backup::save(&config, &SystemClock, &mut out));
    Ok(saved?)
}

/// The number of threads on a host with this many processors: one hung call must not stop all
/// others, and a large host also runs the API server and etcd.
fn threads(processors: usize) -> usize {
    (processors / 2).clamp(2, 8)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(threads(processors))
        .enable_all()
        .build();
    runtime.context("cannot start the runtime")
}

/// The daemon's unit in systemd.
struct Systemd;

impl Systemd {
    fn run(verb: &str) -> std::io::Result<()> {
        let status = std::process::Command::new("systemctl")
            .args([verb, "halite-master.service"])
            .status()?;
        if status.success() {
            return Ok(());
        }
        Err(std::io::Error::other(format!(
            "systemctl {verb} halite-master.service: {status}"
        )))
    }
}

impl Unit for Systemd {
    fn stop(&self) -> std::io::Result<()> {
        Self::run("stop")
    }

    fn start(&self) -> std::io::Result<()> {
        Self::run("start")
    }
}

/// The unit of this process itself, which neither serves nor follows yet.
struct OwnUnit;

impl Unit for OwnUnit {
    fn stop(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn start(&self) -> std::io::Result<()> {
        Ok(())
    }
}

fn serve(path: &Path) -> anyhow::Result<()> {
    let config = Config::read(path)?;
    let runtime = runtime()?;
    let promotion = Promotion::new(&config, Path::new(daemon::MINION), &SystemClock, &OwnUnit);
    if let Some(epoch) = runtime.block_on(promotion.take_over())? {
        tracing::info!(epoch, "the master was handed over to this host");
    }
    let mark = halite_standby::mark(&config);
    let is_standby = halite_standby::masters(&mark)
        .with_context(|| format!("cannot read {}", mark.display()))?
        .is_some();
    let ended = if is_standby {
        runtime.block_on(daemon::run_standby(&config))
    } else if let Some(note) = halite_standby::hand_over::under_way(&config)? {
        runtime.block_on(daemon::run_hand_over(config, note))
    } else {
        runtime.block_on(daemon::run(config))
    };
    // A hanging file system must not keep the process alive.
    runtime.shutdown_timeout(LAST_FILES);
    Ok(ended?)
}

/// Starts logging to standard error. `HALITE_LOG` is a level, or `target=level` pairs separated by
/// commas (default `info`; the logs of the Kubernetes client are off because the errors of its
/// calls already have the details); `HALITE_LOG_FORMAT` is `plain` or `json`.
///
/// In a unit of systemd, audit lines go to the journal with fields instead, whatever `HALITE_LOG`
/// says.
fn start_logging() -> anyhow::Result<()> {
    let wanted =
        std::env::var("HALITE_LOG").unwrap_or_else(|_| "info,sqlx=warn,kube_client=off".to_owned());
    let targets: Targets = wanted
        .parse()
        .with_context(|| format!("cannot use HALITE_LOG={wanted:?}"))?;
    let is_in_journal =
        std::env::var_os("JOURNAL_STREAM").is_some() && Path::new(audit_journal::SOCKET).exists();
    let (targets, audit) = match is_in_journal {
        false => (targets, None),
        true => {
            let journal = AuditJournal::new(Path::new(audit_journal::SOCKET));
            let journal = journal.context("cannot open a socket for the audit log")?;
            let only = Targets::new().with_target(AUDIT_TARGET, LevelFilter::INFO);
            let others = targets.with_target(AUDIT_TARGET, LevelFilter::OFF);
            (others, Some(journal.with_filter(only)))
        }
    };
    let registry = tracing_subscriber::registry().with(audit);
    let stderr = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match std::env::var("HALITE_LOG_FORMAT").as_deref() {
        Ok("json") => registry.with(stderr.json().with_filter(targets)).init(),
        Ok("plain") | Err(_) => registry
            .with(
                stderr
                    .with_ansi(std::io::stderr().is_terminal())
                    .with_filter(targets),
            )
            .init(),
        Ok(other) => {
            anyhow::bail!("cannot use HALITE_LOG_FORMAT={other:?}; it can be plain or json")
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_host_has_more_threads_but_not_all() {
        let found = [1, 2, 4, 8, 16, 64].map(threads);
        assert_eq!(found, [2, 2, 2, 4, 8, 8]);
    }
}
