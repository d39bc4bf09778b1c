//! The planned move of the master to one of its standbys (`ctl master retire`): the obstacles, the
//! work that it waits for, and its start.

use std::collections::BTreeMap;
use std::fmt;

use halite_api::{HandOver, HandOverPhase, MasterMove, Time};
use halite_cluster::leaving::{Confirmed, Leaving};
use halite_core::app::App;
use halite_core::declared::Snapshot;
use halite_core::refusal::Refusal;
use halite_core::roster::{FollowState, SeenStandby};
use halite_errors::chain;
use halite_fleet::jobs::Jobs;
use halite_pillar::declaration::Declaration;
use halite_pillar::view::MASTER_PORT;
use halite_proto::ids::MinionId;
use halite_proto::v1::HandOverRequest;
use halite_standby::disk::CopyError;
use halite_standby::hand_over::{under_way, write};
use halite_standby::take_over::{Order, taken};
use halite_states::shipped::{PROMOTED, REMOVE_NODE};
use halite_store::RunStatus;
use halite_store::epoch;
use serde_json::Value;

use super::masters::declared;

/// The request as the audit log shows it.
#[must_use]
pub fn words(request: &HandOverRequest) -> String {
    let or = |name: &str, default: &str| match name {
        "" => default.to_owned(),
        // The request may contain any text.
        name => name.chars().take(80).collect(),
    };
    let from = or(&request.host, "the master's host");
    let leaves = if request.leaves { ", which leaves" } else { "" };
    format!("from {from}{leaves}, to {}", or(&request.to, "a standby"))
}

/// Returns the requested move and its obstacles. Starts it unless this is only a query, something
/// is in the way, or work is running.
///
/// # Errors
/// Something is in the way of a move that should start, the documents cannot be read, or the note
/// cannot be written.
pub async fn hand_over(
    app: &App,
    jobs: &Jobs,
    request: &HandOverRequest,
) -> Result<MasterMove, Refusal> {
    let snapshot = jobs.declarations().load().await?;
    let declaration = snapshot.declaration();
    let Some(own) = declaration.master_node() else {
        return Err(Refusal::conflict(
            "cannot move the master: no node document names its host",
        ));
    };
    let own = own.metadata.name.to_string();
    let host = match request.host.as_str() {
        "" => unfinished(app, declaration).await?.unwrap_or(own.clone()),
        host => host.to_owned(),
    };
    if host != own {
        return moved(app, jobs, &snapshot, request, &host, &own).await;
    }
    let mut names = declared(declaration);
    // Without `--to`, the first standby is chosen: those that can take the master come first.
    names.sort_by_key(|name| app.standbys.obstacle(name).is_some());
    let chosen = choose(&request.to, &names, &app.standbys.seen());
    let mut problems: Vec<String> = chosen
        .as_ref()
        .err()
        .map(NoStandby::to_string)
        .into_iter()
        .collect();
    let to = chosen.unwrap_or_default();
    problems.extend(app.standbys.obstacle(&to));
    let declarations = jobs.declarations();
    let unreadable = declarations.secret_problem_of(&snapshot, &to).await?;
    problems.extend(unreadable.map(|problem| {
        format!(
            "{problem}; to send its recipient again, run `systemctl restart halite-master` on {to}"
        )
    }));
    let mut losses = Vec::new();
    if request.leaves {
        let leaving = Leaving::gather(app, jobs.clusters(), &snapshot, &host).await?;
        let leaving = leaving.once_moved(declaration, &to);
        problems.extend(leaving.refusals(&confirmed(request)));
        losses = leaving.losses(false);
    }
    let waits = running(app).await?;
    let epoch = epoch::next(app.store.epoch());
    let epoch = epoch.map_err(|error| Refusal::conflict(error.to_string()))?;
    let note = note(app, declaration, request, (&host, &to), epoch);
    let begins = !request.check_only && waits.is_empty();
    if begins && problems.is_empty() {
        problems.extend(begin(app, &note).map_err(internal)?);
    }
    if begins && !problems.is_empty() {
        return Err(Refusal::conflict(format!(
            "cannot move the master off {host}: {}",
            problems.join("\n")
        )));
    }
    Ok(MasterMove {
        from: host,
        own: app.config.endpoints().into_iter().next(),
        to: Some(to).filter(|to| !to.is_empty()),
        begun: begins,
        address: note.masters.into_iter().next(),
        epoch: note.epoch,
        cluster: app.config.cluster.clone(),
        problems,
        waits,
        losses,
        ..MasterMove::default()
    })
}

/// Starts the move; returns the obstacle if another move has started. Requesting the same move
/// again changes nothing.
fn begin(app: &App, note: &HandOver) -> Result<Option<String>, CopyError> {
    if app.succession.hand_over(|| write(&app.config, note))? {
        tracing::warn!(to = note.to, epoch = note.epoch, "this master hands over");
        return Ok(None);
    }
    let first = under_way(&app.config)?;
    let first = first.filter(|first| (&first.to, first.leaves) != (&note.to, note.leaves));
    Ok(first.map(|first| {
        format!(
            "it is already moving to {}, since {}: `ctl master list` says when it is there, and then `ctl master retire {}` continues \
             that move",
            first.to, first.since, first.from
        )
    }))
}

fn internal(error: CopyError) -> Refusal {
    Refusal::internal(chain(&error))
}

fn confirmed(request: &HandOverRequest) -> Confirmed {
    Confirmed {
        dead: false,
        force: request.force,
        cluster: request.cluster.clone(),
    }
}

/// The answer about a host that does not have the master: at most the remaining steps are left to
/// do.
async fn moved(
    app: &App,
    jobs: &Jobs,
    snapshot: &Snapshot,
    request: &HandOverRequest,
    host: &str,
    own: &str,
) -> Result<MasterMove, Refusal> {
    let declaration = snapshot.declaration();
    let has_left = !is_there(app, declaration, host).await?;
    let mut problems = Vec::new();
    if !request.to.is_empty() && request.to != own {
        problems.push(format!(
            "{host} does not have the master, which is on {own}, and not on {}: `ctl master retire {own} --to {}` moves it",
            request.to, request.to
        ));
    }
    let mut losses = Vec::new();
    let record = taken(&app.config).map_err(internal)?;
    let record = record.filter(|record| record.from == host);
    // A resumed removal has asked already, and its host may be gone by now.
    if request.leaves && !has_left && !is_removed(app, host).await? {
        if record.is_none() {
            problems.push(format!(
                "{host} does not have the master, which is on {own}: `ctl node remove {host}` removes a host"
            ));
        }
        let leaving = Leaving::gather(app, jobs.clusters(), snapshot, host).await?;
        problems.extend(leaving.refusals(&confirmed(request)));
        losses = leaving.losses(false);
    }
    let followed = match &record {
        Some(record) => has_followed(app, record).await?,
        None => false,
    };
    let node = declaration.nodes.get(own);
    let address = node.and_then(|node| node.control_plane());
    let address = address.map(|address| format!("{address}:{MASTER_PORT}"));
    Ok(MasterMove {
        from: host.to_owned(),
        to: Some(own.to_owned()),
        moved: true,
        left: has_left,
        followed,
        address,
        epoch: app.store.epoch(),
        cluster: app.config.cluster.clone(),
        problems,
        losses,
        ..MasterMove::default()
    })
}

/// Returns whether an orchestration that removes the host is under way.
async fn is_removed(app: &App, host: &str) -> Result<bool, Refusal> {
    let runs = app.store.open_runs().await?;
    Ok(runs.iter().any(|run| {
        let pillar: Value = serde_json::from_str(&run.pillar_json).unwrap_or_default();
        run.sls == REMOVE_NODE && pillar["node"] == host
    }))
}

/// Returns whether a host has a document or a key.
async fn is_there(app: &App, declaration: &Declaration, host: &str) -> Result<bool, Refusal> {
    let id: MinionId = host.parse()?;
    Ok(declaration.nodes.contains_key(host) || app.store.key(&id).await?.is_some())
}

/// The host that handed its master over to this one, while steps of that move are left to do.
async fn unfinished(app: &App, declaration: &Declaration) -> Result<Option<String>, Refusal> {
    let found = taken(&app.config).map_err(internal)?;
    let Some(order) = found.filter(|order| order.epoch == app.store.epoch()) else {
        return Ok(None);
    };
    let is_left = if order.leaves {
        is_there(app, declaration, &order.from).await?
    } else {
        !has_followed(app, &order).await?
    };
    Ok(is_left.then_some(order.from))
}

/// Returns whether the hosts were brought to this master since it took over.
async fn has_followed(app: &App, order: &Order) -> Result<bool, Refusal> {
    let runs = app.store.runs_of(PROMOTED, order.taken).await?;
    Ok(runs.iter().any(|run| run.status == RunStatus::Succeeded))
}

/// The reason why no standby can take the master.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum NoStandby {
    /// The master has no standby.
    #[error(
        "it has no standby: add a second control plane first (ctl node add --roles control-plane,etcd)"
    )]
    None,
    /// No standby follows.
    #[error(
        "no standby has everything that the master has ({0}): wait until `ctl master list` says `following`"
    )]
    Behind(States),
    /// The named host is not a standby.
    #[error("{wanted} is not a standby of the master; its standbys are: {}", list(.standbys))]
    Other {
        /// The host that was named.
        wanted: String,
        /// The standbys.
        standbys: Vec<String>,
    },
    /// The named standby does not follow.
    #[error(
        "the standby {wanted} does not have everything that the master has ({states}): wait until `ctl master list` \
         says `following`"
    )]
    NamedBehind {
        /// The standby.
        wanted: String,
        /// The states of all standbys.
        states: States,
    },
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

/// The standbys, each as the master sees it, if it has connected.
#[derive(Debug, PartialEq, Eq)]
struct States(Vec<(String, Option<SeenStandby>)>);

impl fmt::Display for States {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, seen)) in self.0.iter().enumerate() {
            let separator = if place == 0 { "" } else { "; " };
            let state = seen.as_ref().map_or("missing", |seen| seen.state.as_str());
            write!(formatter, "{separator}{name} is {state}")?;
            if let Some(seen) = seen.as_ref().filter(|seen| !seen.reason.is_empty()) {
                write!(formatter, ": {}", seen.reason)?;
            }
        }
        Ok(())
    }
}

/// Chooses the standby that takes the master.
fn choose(
    wanted: &str,
    names: &[String],
    seen: &BTreeMap<String, SeenStandby>,
) -> Result<String, NoStandby> {
    let is_following =
        |name: &&String| (seen.get(*name)).is_some_and(|seen| seen.state == FollowState::Following);
    let states = || {
        let state = |name: &String| (name.clone(), seen.get(name).cloned());
        States(names.iter().map(state).collect())
    };
    if wanted.is_empty() {
        return match names.iter().find(is_following) {
            Some(name) => Ok(name.clone()),
            None if names.is_empty() => Err(NoStandby::None),
            None => Err(NoStandby::Behind(states())),
        };
    }
    match names.iter().find(|name| *name == wanted) {
        None => Err(NoStandby::Other {
            wanted: wanted.to_owned(),
            standbys: names.to_vec(),
        }),
        Some(name) if is_following(&name) => Ok(name.clone()),
        Some(_) => Err(NoStandby::NamedBehind {
            wanted: wanted.to_owned(),
            states: states(),
        }),
    }
}

/// Running work: it would continue at the next master, but with its host in the middle of a move.
async fn running(app: &App) -> Result<Vec<String>, Refusal> {
    let runs = app.store.open_runs().await?.into_iter();
    let mut found: Vec<String> = runs
        .map(|run| format!("the orchestration {} ({})", run.sls, run.id))
        .collect();
    let jobs = app.store.open_jobs().await?.into_iter();
    found.extend(jobs.map(|job| format!("the job {} ({})", job.job_id, job.function)));
    Ok(found)
}

/// The note of this move.
fn note(
    app: &App,
    declaration: &Declaration,
    request: &HandOverRequest,
    (host, to): (&str, &str),
    epoch: u64,
) -> HandOver {
    let standbys = declaration.standbys().into_iter();
    let mut others: Vec<(String, Option<String>)> = standbys
        .map(|node| {
            let address = node.control_plane();
            let address = address.map(|address| format!("{address}:{MASTER_PORT}"));
            (node.metadata.name.to_string(), address)
        })
        .collect();
    // The others keep their order.
    others.sort_by_key(|(node, _)| node != to);
    HandOver {
        from: host.to_owned(),
        to: to.to_owned(),
        leaves: request.leaves,
        epoch,
        masters: (others.iter())
            .filter_map(|(_, address)| address.clone())
            .collect(),
        hosts: others.into_iter().map(|(node, _)| node).collect(),
        since: Time::from_millis(app.clock.now()),
        phase: HandOverPhase::Offered,
        reason: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(state: FollowState, reason: &str) -> SeenStandby {
        SeenStandby {
            state,
            since: 0,
            lag: 0,
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn the_first_standby_that_has_everything_takes_the_master() {
        let names = ["cp-2", "cp-3", "cp-4"].map(str::to_owned);
        let seen = BTreeMap::from([
            ("cp-2".to_owned(), seen(FollowState::Gone, "cut off")),
            ("cp-3".to_owned(), seen(FollowState::Following, "")),
        ]);
        assert_eq!(choose("", &names, &seen).unwrap(), "cp-3");
        assert_eq!(choose("cp-3", &names, &seen).unwrap(), "cp-3");
        let refused = choose("cp-2", &names, &seen).unwrap_err().to_string();
        assert!(refused.contains("cp-2 is gone: cut off"), "{refused}");
        let refused = choose("worker-1", &names, &seen).unwrap_err().to_string();
        assert!(
            refused.contains("its standbys are: cp-2, cp-3, cp-4"),
            "{refused}"
        );
    }

    #[test]
    fn without_a_standby_that_follows_there_is_no_move() {
        let names = ["cp-2".to_owned()];
        let none = BTreeMap::new();
        let refused = choose("", &names, &none).unwrap_err().to_string();
        assert!(refused.contains("cp-2 is missing"), "{refused}");
        let copying = BTreeMap::from([("cp-2".to_owned(), seen(FollowState::Copying, ""))]);
        let refused = choose("", &names, &copying).unwrap_err().to_string();
        assert!(refused.contains("cp-2 is copying"), "{refused}");
        let refused = choose("", &[], &none).unwrap_err().to_string();
        assert!(refused.contains("no standby"), "{refused}");
    }
}
