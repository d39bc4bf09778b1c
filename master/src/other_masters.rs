//! The masters of other hosts: this master stops if one has taken its place, and its minions know
//! the others' addresses.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use halite_core::app::App;
use halite_core::declared::Declarations;
use halite_core::hello::hello;
use halite_core::refusal::Refusal;
use halite_core::succession::{Claimed, Replaced};
use halite_errors::chain;
use halite_pillar::view::MASTER_PORT;
use halite_proto::v1::{MasterMessage, master_message};
use halite_standby::compare::others;
use tokio::time::Instant;

use crate::backend::Backend;

/// The time for which a starting master asks silent hosts.
const BOOT: Duration = Duration::from_secs(10);
/// The pause before it asks them again.
const PAUSE: Duration = Duration::from_secs(1);
/// The interval at which a master without a standby asks for others.
const ALONE: Duration = Duration::from_secs(10);
/// The interval at which the declared masters are compared with the ones that the minions know.
const NEWS: Duration = Duration::from_secs(5);

/// The addresses of the declared masters, before the backend exists.
async fn declared(app: &App) -> Result<Vec<String>, Refusal> {
    let snapshot = Declarations::new(app).in_force().await?;
    let addresses = snapshot.declaration().master_addresses().into_iter();
    Ok(addresses
        .map(|address| format!("{address}:{MASTER_PORT}"))
        .collect())
}

/// Fails if another declared host has a master that has taken this one's place. Called before any
/// work starts: this master may have been off for long. Silent hosts are asked again for a while,
/// because all of them may be booting. While it is unknown which hosts to ask, or one of them stays
/// silent, the master starts no new work.
///
/// # Errors
/// It was replaced.
pub async fn check(app: &App, minion: &Path) -> Result<(), Replaced> {
    let addresses = match declared(app).await {
        Ok(addresses) => addresses,
        Err(refusal) => {
            let reason = refusal.message;
            tracing::warn!(
                reason,
                "other masters are not asked: their addresses are unknown"
            );
            app.isolation.unknown(&reason);
            return Ok(());
        }
    };
    app.isolation.declared(addresses.len());
    let end = Instant::now() + BOOT;
    let mut said = false;
    loop {
        let silent = ask(app, &addresses, minion).await?;
        if silent.is_empty() || Instant::now() >= end {
            return Ok(());
        }
        if !said {
            let seconds = BOOT.as_secs();
            tracing::info!(
                ?silent,
                "waits for at most {seconds} s for these hosts to say whether one has the master"
            );
            said = true;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Asks the hosts at these addresses, except this one, whether they have a master; returns the
/// silent ones. Records whether all of them answer that they stand by and hear no other master.
///
/// # Errors
/// One of them has a master that has taken this one's place, or has heard of such a master.
pub async fn ask(app: &App, addresses: &[String], minion: &Path) -> Result<Vec<String>, Replaced> {
    let own = app.config.endpoints();
    let further = addresses.iter().filter(|address| !own.contains(address));
    let further: Vec<String> = further.cloned().collect();
    let heard = match others(&further, &app.succession.evidence(), minion).await {
        Ok(heard) => heard,
        Err(error) => {
            tracing::warn!(reason = chain(&error), "other masters are not asked");
            app.isolation.all_have_answered(false);
            return Ok(Vec::new());
        }
    };
    if let Some(other) = heard.other {
        let witness = format!("the master at {}", other.address);
        app.succession.hear(other.epoch, &other.holder, &witness)?;
    }
    // A closed port means nothing: that master may be starting as well.
    let mut is_alone = !further.is_empty() && heard.standbys.len() == further.len();
    for standby in &heard.standbys {
        let elsewhere = standby
            .hears()
            .filter(|followed| !own.contains(&followed.master));
        is_alone &= elsewhere.is_none();
        let witness = format!("the standby {} at {}", standby.host, standby.address);
        let (number, evidence) = (standby.epoch.number, standby.epoch.evidence());
        let claimed = app
            .succession
            .hear_claim(number, evidence.as_ref(), &witness);
        match claimed {
            Ok(()) => {}
            Err(Claimed::Replaced(replaced)) => return Err(replaced),
            Err(error) => tracing::warn!(
                reason = chain(&error),
                "cannot verify the answer of a standby"
            ),
        }
    }
    app.isolation.all_have_answered(is_alone);
    Ok(heard.silent)
}

/// Asks repeatedly while no standby follows: the link to the others may be back. The master stops
/// when it learns of one that has taken its place, and starts no new work while it is isolated.
pub async fn watch(app: &App, backend: &Backend, minion: &Path) {
    loop {
        tokio::time::sleep(ALONE).await;
        let addresses = backend.masters().await;
        if let Ok(addresses) = &addresses {
            app.isolation.declared(addresses.len());
        }
        let addresses = addresses.unwrap_or_default();
        if look(app, &addresses, minion).await.is_err() {
            return std::future::pending().await;
        }
        match backend.surroundings().await {
            Ok(seen) => app.isolation.look(app.clock.steady(), seen),
            Err(refusal) => {
                let reason = refusal.message;
                tracing::warn!(reason, "cannot determine whether this master is isolated");
                app.isolation.unknown(&reason);
            }
        }
    }
}

/// Asks the masters at these addresses once, unless a standby follows.
///
/// # Errors
/// One of them has taken this one's place: this master stops.
pub async fn look(app: &App, addresses: &[String], minion: &Path) -> Result<(), Replaced> {
    if app.standbys.alone_since().is_none() {
        return Ok(());
    }
    ask(app, addresses, minion).await.map(drop)
}

/// The addresses of this master and of the other declared ones, each once.
///
/// # Errors
/// The documents cannot be read.
pub async fn all(app: &App, backend: &Backend) -> Result<Vec<String>, Refusal> {
    let mut all = app.config.endpoints();
    all.extend(backend.masters().await?);
    let mut seen = BTreeSet::new();
    all.retain(|address| seen.insert(address.clone()));
    Ok(all)
}

/// Sends the addresses of the masters to the connected minions that know others. A connecting
/// minion has them in its hello, but they may change at that moment: this compares them with the
/// addresses that the minion was sent, not with the previous ones.
pub async fn announce(app: &Arc<App>, backend: &Backend) {
    loop {
        tokio::time::sleep(NEWS).await;
        let Ok(now) = all(app, backend).await else {
            continue;
        };
        for minion in app.connections.unaware_of(&now) {
            let message = MasterMessage {
                body: Some(master_message::Body::Hello(hello(app, now.clone()))),
            };
            // A disconnected one will reconnect.
            if app.connections.send(&minion, message).await.is_ok() {
                app.connections.knows(&minion, now.clone());
            }
        }
    }
}
