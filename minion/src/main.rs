//! The `halite-minion` program: daemon, enrolment, local apply, grains.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use halite_cli::duration::shown;
use halite_cli::minion::{Arguments, Command, DEFAULT_PATH, Output};
use halite_cli::notify::notify;
use halite_cli::output;
use halite_minion::config::Config;
use halite_minion::identity::{Identity, IdentityError, make_directories};
use halite_minion::jobs::Jobs;
use halite_minion::{enrol, grains, link, local, update};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

/// Interval between two checks for an identity while the host is not enrolled.
const NOT_ENROLLED: Duration = Duration::from_millis(250);
/// Longest wait of a stop for the state in progress; systemd's own limit is 90 s.
const LAST_STATE: Duration = Duration::from_secs(75);

// One thread is enough: the minion mostly waits, and each worker thread would cost memory.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    halite_proto::transport::install_crypto();
    match run(Arguments::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            output::report(&format!("halite-minion: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run { config } => {
            let config = Config::load(&config)?;
            log(config.log);
            serve(config).await?;
        }
        Command::Enrol {
            master,
            token,
            ca_hash,
            id,
            force,
            config,
        } => {
            log(tracing::Level::WARN);
            let config = existing(&config)?;
            let request = enrol::Request {
                master,
                id,
                token,
                ca_hash,
                force,
            };
            let (id, fingerprint) =
                enrol::enrol(&config, &request, |line| output::report(&line)).await?;
            output::print(&format!("enrolled as {id}, fingerprint {fingerprint}"))?;
        }
        Command::Apply {
            test,
            low,
            blobs,
            output,
        } => {
            log(tracing::Level::WARN);
            let config = existing(Path::new(DEFAULT_PATH)).unwrap_or_default();
            let request = local::Request {
                low,
                blobs,
                pending_triggers: config.pending_triggers(),
                test,
                json: output == Output::Json,
            };
            let succeeded = local::apply(&request).await?;
            return Ok(if succeeded {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        Command::Update { timeout } => {
            log(tracing::Level::INFO);
            let paths = update::Paths::of_host(std::env::current_exe()?);
            let limits = update::UpdateLimits::of_host(timeout);
            if !update::carry_out(&mut update::Systemd, &paths, limits).await? {
                anyhow::bail!(
                    "the new minion did not reach the master within {}; the previous one runs again",
                    shown(timeout)
                );
            }
            tracing::info!("the new minion has reached the master");
        }
        Command::Grains => {
            log(tracing::Level::WARN);
            let config = existing(Path::new(DEFAULT_PATH)).unwrap_or_default();
            let grains = grains::collect(config.id.as_ref(), &config.reports).await;
            output::print(&serde_json::to_string_pretty(&grains)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::disallowed_methods, reason = "the minion's own configuration")]
/// The configuration, or the defaults if it does not exist yet.
fn existing(path: &Path) -> anyhow::Result<Config> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Config::parse(&path.display().to_string(), &text)?),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
        Err(e) => Err(e).with_context(|| path.display().to_string()),
    }
}

/// Log lines go to standard error, which systemd's journal reads and stamps.
fn log(level: tracing::Level) {
    use tracing_subscriber::filter::Targets;
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::util::SubscriberInitExt as _;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time();
    // From libraries, only warnings.
    let targets = Targets::new()
        .with_default(level.min(tracing::Level::WARN))
        .with_target("halite_minion", level)
        .with_target("halite_states", level)
        .with_target("halite_proto", level);
    // Set once, at the start; a second call changes nothing.
    let _ = tracing_subscriber::registry()
        .with(lines)
        .with(targets)
        .try_init();
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    make_directories(&config)?;
    report("READY=1");
    let identity = tokio::select! {
        identity = identity(&config) => identity?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    if let Some(id) = config.id.as_ref().filter(|id| **id != identity.id) {
        anyhow::bail!(
            "the configuration says id {id}, the certificate says {}: correct the one or enrol again",
            identity.id
        );
    }
    let (outbox, inbox) = mpsc::unbounded_channel();
    let (channel, connected) = watch::channel(None);
    let (stop, stopping) = watch::channel(false);
    let jobs = Jobs::open(&config, identity.id, outbox, connected)?;
    let link = tokio::spawn(link::maintain(
        config,
        std::sync::Arc::clone(&jobs),
        inbox,
        channel,
        stopping,
    ));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    report("STOPPING=1");
    // The link stays up until then: the state in progress may need it, and its answer may still
    // arrive.
    jobs.drain(LAST_STATE).await;
    stop.send_replace(true);
    link.await?;
    Ok(())
}

/// Reports a state to systemd. The minion also works without systemd's socket.
fn report(state: &str) {
    if let Err(error) = notify(state) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

/// Waits for the identity.
async fn identity(config: &Config) -> anyhow::Result<Identity> {
    let mut logged = false;
    loop {
        match Identity::load(config) {
            Ok(identity) => return Ok(identity),
            Err(error @ IdentityError::Missing) => {
                if !logged {
                    logged = true;
                    tracing::warn!("{error}; waiting");
                }
                tokio::time::sleep(NOT_ENROLLED).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
