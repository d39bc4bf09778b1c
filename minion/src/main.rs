//! The `halite-minion` program: daemon, enrolment, local apply, grains.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use halite_cli::minion::{Arguments, Command, DEFAULT_PATH, Output};
use halite_minion::config::Config;
use halite_minion::identity::{Identity, IdentityError, directories};
use halite_minion::jobs::Jobs;
use halite_minion::{enrol, grains, link, local, notify};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

/// Time between two looks for an identity while the host is not enrolled.
const NOT_ENROLLED: Duration = Duration::from_millis(250);
/// How long the end waits for the state at hand; systemd's own limit is 90 s.
const LAST_STATE: Duration = Duration::from_secs(75);

// One thread does it: the minion waits most of its life, and each worker thread would cost memory.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    halite_proto::transport::install_crypto();
    match run(Arguments::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("halite-minion: {error:#}");
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
                enrol::enrol(&config, &request, |line| eprintln!("{line}")).await?;
            println!("enrolled as {id}, fingerprint {fingerprint}");
        }
        Command::Apply {
            test,
            low,
            blobs,
            output,
        } => {
            log(tracing::Level::WARN);
            let owed = existing(Path::new(DEFAULT_PATH)).unwrap_or_default().owed();
            let request = local::Request {
                low,
                blobs,
                owed,
                test,
                json: output == Output::Json,
            };
            let good = local::apply(&request).await.map_err(anyhow::Error::msg)?;
            return Ok(if good {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        Command::Grains => {
            log(tracing::Level::WARN);
            let config = existing(Path::new(DEFAULT_PATH)).unwrap_or_default();
            let grains = grains::collect(&config.id, &config.reports).await;
            println!("{}", serde_json::to_string_pretty(&grains)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The configuration, or the defaults where there is none yet.
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
    // The libraries' own talk only as far as it is a warning.
    let targets = Targets::new()
        .with_default(level.min(tracing::Level::WARN))
        .with_target("halite_minion", level)
        .with_target("halite_states", level)
        .with_target("halite_proto", level);
    // Set once, at the start; a second time would be a fault of ours without consequence.
    let _ = tracing_subscriber::registry()
        .with(lines)
        .with(targets)
        .try_init();
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    directories(&config)?;
    notify::notify("READY=1");
    let identity = tokio::select! {
        identity = identity(&config) => identity?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    if !config.id.is_empty() && config.id != identity.id {
        anyhow::bail!(
            "the configuration says id {}, the certificate says {}: correct the one or enrol again",
            config.id,
            identity.id
        );
    }
    let (outbox, inbox) = mpsc::unbounded_channel();
    let (channel, connected) = watch::channel(None);
    let (going, gone) = watch::channel(false);
    let jobs = Jobs::open(&config, &identity.id, outbox, connected)?;
    let link = tokio::spawn(link::keep(
        config,
        std::sync::Arc::clone(&jobs),
        inbox,
        channel,
        gone,
    ));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("going");
    notify::notify("STOPPING=1");
    // The link stays up meanwhile: the state at hand may need it, and the answer may still get
    // through.
    jobs.drain(LAST_STATE).await;
    going.send_replace(true);
    link.await?;
    Ok(())
}

/// The identity, once there is one.
async fn identity(config: &Config) -> anyhow::Result<Identity> {
    let mut told = false;
    loop {
        match Identity::load(config) {
            Ok(identity) => return Ok(identity),
            Err(error @ IdentityError::Missing) => {
                if !told {
                    told = true;
                    tracing::warn!("{error}; waiting");
                }
                tokio::time::sleep(NOT_ENROLLED).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
