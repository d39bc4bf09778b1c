//! The thin part that no orchestration can do: master and minion on the first host.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use halite_proto::v1;
use halite_states::low::RunReturn;
use serde_json::Value;

use super::daemon::{Daemon, MASTER, MINION};
use super::declare::Declared;
use super::{Ground, local};
use crate::cli::Global;
use crate::client;
use crate::client::{Operator, document, refused};
use crate::follow::failed_states;
use crate::output::Screen;

/// How long a daemon may take to come up.
const COMES_UP: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// A token for this host alone, used at once.
const TOKEN_SECONDS: u32 = 600;
/// The minion's identity.
const IDENTITY: &str = "/var/lib/halite/minion/identity.crt";

/// Installs and starts the master, lets this host's minion enrol, and waits until it is connected.
/// Each part may be repeated; what is done already costs a look.
///
/// # Errors
/// Which part failed, and why.
pub async fn install(
    global: &Global,
    ground: &Ground,
    declared: &Declared,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    screen.progress("installing the master");
    // Until it runs the one before it answers, which need not understand the states of this bundle.
    bring(ground, declared, &MASTER).await?;
    let mut operator = comes_up(global).await?;
    // The minion waits for its identity; started afterwards, it would be restarted in the middle of
    // its first job.
    screen.progress("starting this host's minion");
    bring(ground, declared, &MINION).await?;
    screen.progress("enrolling this host");
    if !is_enrolled(&mut operator, &ground.name).await? {
        let request = v1::CreateTokenRequest {
            ttl_seconds: TOKEN_SECONDS,
            uses: 1,
            id: ground.name.clone(),
            ..v1::CreateTokenRequest::default()
        };
        let token = operator
            .create_token(request)
            .await
            .map_err(|status| refused(&status))?
            .into_inner()
            .token;
        let again = Path::new(IDENTITY).exists();
        ground
            .minion
            .enrol(&declared.master(), &ground.name, &token, again)
            .await?;
    }
    connects(&mut operator, &ground.name).await?;
    let paint = screen.paint();
    screen.line(format!(
        "master       {} runs here, and this host's minion is connected",
        paint.good("✓")
    ));
    Ok(())
}

/// Installs a daemon, and waits until it runs what is installed.
async fn bring(ground: &Ground, declared: &Declared, daemon: &Daemon) -> anyhow::Result<()> {
    let before = daemon.pid().await;
    let done = apply(ground, declared, daemon.sls).await?;
    // A run that was cut off before it asked left the old program running, and all files as they
    // should be.
    let asked = done
        .states
        .iter()
        .any(|state| state.id == daemon.asks && !state.changes.is_empty());
    if !asked && daemon.is_outdated().await {
        apply(ground, declared, daemon.restart).await?;
    }
    let since = Instant::now();
    // What is asked for comes a moment later, and would end whatever was begun until then.
    while daemon.is_outdated().await || asked && before != 0 && daemon.pid().await == before {
        if since.elapsed() > COMES_UP {
            bail!(
                "{0} has not restarted and runs what it had before: systemctl restart {0}, then run the same command again",
                daemon.unit
            );
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

async fn apply(ground: &Ground, declared: &Declared, sls: &str) -> anyhow::Result<RunReturn> {
    let done = local(ground, declared, &[sls], false).await?;
    if done.succeeded() {
        return Ok(done);
    }
    let failed = failed_states(&ground.name, &done).join("\n  ");
    bail!("{sls} failed:\n  {failed}\nMend the cause, then run the same command again.")
}

/// Connects as soon as the master answers.
async fn comes_up(global: &Global) -> anyhow::Result<Operator> {
    let since = Instant::now();
    loop {
        match client::operator(global).await {
            Ok(operator) => return Ok(operator),
            Err(error) if since.elapsed() > COMES_UP => {
                return Err(error.context(
                    "the master does not come up; journalctl -u halite-master shows why",
                ));
            }
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

async fn key(operator: &mut Operator, name: &str) -> anyhow::Result<Option<Value>> {
    let keys = document(operator.list_keys(v1::ListKeysRequest {}).await)?;
    let keys = keys["keys"].as_array().cloned().unwrap_or_default();
    Ok(keys.into_iter().find(|key| key["id"] == name))
}

/// Both sides must know: a host that lost its identity enrols anew, and so does one that the master
/// forgot.
async fn is_enrolled(operator: &mut Operator, name: &str) -> anyhow::Result<bool> {
    let accepted = key(operator, name)
        .await?
        .is_some_and(|key| key["state"] == "accepted");
    Ok(accepted && Path::new(IDENTITY).exists())
}

async fn connects(operator: &mut Operator, name: &str) -> anyhow::Result<()> {
    let since = Instant::now();
    while key(operator, name)
        .await?
        .is_none_or(|key| key["connected"] != true)
    {
        if since.elapsed() > COMES_UP {
            bail!(
                "this host's minion does not connect; journalctl -u halite-minion shows why. Then run the same command again."
            );
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
