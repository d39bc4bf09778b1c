//! Installs master and minion on the first host, before there is a master for orchestrations.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use halite_api::{KeyList, KeyState, MinionKey};
use halite_proto::v1;
use halite_states::low::RunReturn;

use super::daemon::{Daemon, MASTER, MINION};
use super::declaration::Declared;
use super::{Preparation, local_states};
use crate::cli::Global;
use crate::client;
use crate::client::{Operator, document, refused};
use crate::job_watch::failed_states;
use crate::output::Screen;
use crate::waiting::Waiting;

/// The time within which a daemon has to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The time between two checks.
const INTERVAL: Duration = Duration::from_millis(100);
/// The lifetime of the token for this host, which is used immediately.
const TOKEN_SECONDS: u32 = 600;
/// The certificate of the minion's identity.
const IDENTITY: &str = "/var/lib/halite/minion/identity.crt";

/// Installs and starts the master, enrols this host's minion, and waits until it is connected. Each
/// step may be repeated; a finished one is only checked.
///
/// # Errors
/// A step failed.
pub async fn install(
    global: &Global,
    preparation: &Preparation,
    declared: &Declared,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    screen.progress("installing the master");
    // The previous master may not understand the states of this bundle.
    install_daemon(preparation, declared, &MASTER, screen).await?;
    let mut operator = Waiting::new(
        "the master answers",
        START_TIMEOUT,
        "`journalctl -u halite-master` shows what it does",
    )
    .during(screen, wait_for_master(global))
    .await?;
    // The minion waits for its identity. If it enrolled first, this installation would restart it
    // during its first job.
    screen.progress("starting this host's minion");
    install_daemon(preparation, declared, &MINION, screen).await?;
    screen.progress("enrolling this host");
    if !is_enrolled(&mut operator, &preparation.name).await? {
        let request = v1::CreateTokenRequest {
            ttl_seconds: TOKEN_SECONDS,
            uses: 1,
            id: preparation.name.clone(),
            ..v1::CreateTokenRequest::default()
        };
        let token = operator
            .create_token(request)
            .await
            .map_err(|status| refused(&status))?
            .into_inner()
            .token;
        let again = Path::new(IDENTITY).exists();
        let master = declared.master();
        let enrolled = preparation
            .minion
            .enrol(&master, &preparation.name, &token, again);
        Waiting::without_limit(
            "this host has enrolled",
            "`journalctl -u halite-master` shows its requests; the same command repeats it after Ctrl-C",
        )
        .during(screen, enrolled)
        .await?;
    }
    Waiting::new(
        "this host's minion is connected",
        START_TIMEOUT,
        "`journalctl -u halite-minion` shows what it does",
    )
    .during(screen, wait_for_minion(&mut operator, &preparation.name))
    .await?;
    let paint = screen.paint();
    screen.line(format!(
        "master       {} runs here, and this host's minion is connected",
        paint.good("✓")
    ));
    Ok(())
}

/// Installs a daemon and waits until it runs the installed program.
async fn install_daemon(
    preparation: &Preparation,
    declared: &Declared,
    daemon: &Daemon,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let before = daemon.pid().await;
    let mut waiting = Waiting::without_limit(
        format!("the states {} are applied", daemon.sls),
        "they write files and have systemd start units, which `systemctl list-jobs` shows; the same command repeats it after Ctrl-C",
    );
    let applied = apply(preparation, declared, daemon.sls);
    let done = waiting.during(screen, applied).await?;
    // A run that was interrupted before the restart left all files correct, and the old program
    // running.
    let is_scheduled = done
        .states
        .iter()
        .any(|state| state.id == daemon.restart_state && !state.changes.is_empty());
    if !is_scheduled && daemon.is_outdated().await {
        let applied = apply(preparation, declared, daemon.restart_sls);
        waiting.during(screen, applied).await?;
    }
    let mut waiting = Waiting::new(
        format!("{} runs its new program", daemon.unit),
        START_TIMEOUT,
        format!("`journalctl -u {}` shows what it does", daemon.unit),
    );
    // The scheduled restart comes a moment later, and would interrupt the next steps.
    while daemon.is_outdated().await || is_scheduled && before != 0 && daemon.pid().await == before
    {
        if waiting.is_over() {
            bail!(
                "{0} has not restarted and still runs its previous program; run `systemctl restart {0}`, then the same command again",
                daemon.unit
            );
        }
        waiting.say(screen);
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(())
}

async fn apply(
    preparation: &Preparation,
    declared: &Declared,
    sls: &str,
) -> anyhow::Result<RunReturn> {
    let done = local_states::apply(preparation, declared, &[sls], false).await?;
    if done.succeeded() {
        return Ok(done);
    }
    let failed = failed_states(&preparation.name, &done).join("\n  ");
    bail!("{sls} failed:\n  {failed}\nFix the cause, then run the same command again.")
}

/// Waits until the master answers, and connects to it.
async fn wait_for_master(global: &Global) -> anyhow::Result<Operator> {
    let since = Instant::now();
    loop {
        match client::operator(global).await {
            Ok(operator) => return Ok(operator),
            Err(error) if since.elapsed() > START_TIMEOUT => {
                return Err(
                    error.context("the master does not start; see journalctl -u halite-master")
                );
            }
            Err(_) => tokio::time::sleep(INTERVAL).await,
        }
    }
}

/// The master's record of a minion's key.
async fn key(operator: &mut Operator, name: &str) -> anyhow::Result<Option<MinionKey>> {
    let keys: KeyList = document(operator.list_keys(v1::ListKeysRequest {}).await)?;
    Ok(keys.keys.into_iter().find(|key| key.minion == name))
}

/// Returns true if the minion has an identity and the master has accepted its key. Otherwise the
/// host has to enrol again.
async fn is_enrolled(operator: &mut Operator, name: &str) -> anyhow::Result<bool> {
    let accepted = key(operator, name)
        .await?
        .is_some_and(|key| key.state == KeyState::Accepted);
    Ok(accepted && Path::new(IDENTITY).exists())
}

async fn wait_for_minion(operator: &mut Operator, name: &str) -> anyhow::Result<()> {
    let since = Instant::now();
    while key(operator, name).await?.is_none_or(|key| !key.connected) {
        if since.elapsed() > START_TIMEOUT {
            bail!(
                "this host's minion does not connect; see journalctl -u halite-minion, then run the same command again"
            );
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(())
}
