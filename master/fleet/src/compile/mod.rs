//! Compilation for one minion from its view of the pillar, its grains, and the bundle's state tree
//! with the operator's own states mounted at `custom/`.

use std::collections::BTreeSet;
use std::sync::Arc;

use halite_core::declared::Snapshot;
use halite_core::refusal::Refusal;
use halite_proto::ids::MinionId;
use halite_states::certificates;
use halite_states::compile;
use halite_states::compile::{Compiled, Input};
use halite_states::low::Chunk;
use halite_states::signature::RunsOn;
use serde_json::Value;

/// The states to compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedStates {
    /// Everything that `top.sls` assigns.
    Highstate,
    /// The part of the highstate that renews certificates and loads them.
    Certificates {
        /// `true` for all certificates, `false` for those that are due.
        at_once: bool,
    },
    /// These SLS, named by an operator or a site's own orchestration.
    Sls(Vec<String>),
    /// These SLS, named by a step of a shipped orchestration, or for display only.
    Step(Vec<String>),
}

/// Compiles for one minion. A state that belongs elsewhere (a host's state for the target `master`,
/// a Kubernetes object for a host) is refused here, before anything is sent.
///
/// # Errors
/// All problems, each with file and line.
pub fn compile(
    snapshot: &Snapshot,
    minion: &MinionId,
    grains: &Value,
    wanted: &RequestedStates,
) -> Result<Compiled, Refusal> {
    let pillar = snapshot.pillar(minion)?;
    let place = if minion.is_master() {
        RunsOn::Master
    } else {
        RunsOn::Minion
    };
    with_pillar(snapshot, minion, &pillar, grains, wanted, place)
}

/// Like [`compile`], with a given pillar, for a given place.
///
/// # Errors
/// The same as for [`compile`].
pub fn with_pillar(
    snapshot: &Snapshot,
    minion: &MinionId,
    pillar: &Value,
    grains: &Value,
    wanted: &RequestedStates,
    place: RunsOn,
) -> Result<Compiled, Refusal> {
    let bundle = |path: &str| snapshot.bundle_hash(minion, path);
    let input = Input {
        tree: snapshot.tree(minion),
        minion,
        pillar,
        grains,
        bundle: &bundle,
    };
    let compiled = match wanted {
        RequestedStates::Highstate | RequestedStates::Certificates { .. } => {
            compile::highstate(&input)
        }
        RequestedStates::Sls(names) => compile::sls(&input, names),
        RequestedStates::Step(names) => compile::step(&input, names),
    }
    .map_err(|problems| Refusal::from_problems(&snapshot.tree(minion).with_disk_paths(problems)))?;
    let mut misplaced = Vec::new();
    for chunk in &compiled.low.chunks {
        let signature = halite_states::signatures::find(&chunk.state, &chunk.fun);
        // `test.*` runs everywhere.
        if chunk.state != "test" && signature.is_some_and(|signature| signature.runs_on != place) {
            let at = &chunk.source;
            misplaced.push(format!(
                "{}:{}: {} cannot run {}",
                at.file,
                at.line,
                chunk.function(),
                place_name(place)
            ));
        }
    }
    if !misplaced.is_empty() {
        return Err(Refusal::invalid(misplaced.join("\n")));
    }
    Ok(match wanted {
        RequestedStates::Certificates { at_once } => renewal(compiled, *at_once),
        RequestedStates::Highstate | RequestedStates::Sls(_) | RequestedStates::Step(_) => compiled,
    })
}

/// The part of a compiled highstate that renews certificates, with the files that it references.
fn renewal(compiled: Compiled, at_once: bool) -> Compiled {
    let low = match at_once {
        true => certificates::renewal_at_once(&compiled.low),
        false => certificates::renewal(&compiled.low),
    };
    let names: BTreeSet<String> = low.chunks.iter().map(Chunk::tag).collect();
    let text: String = (low.chunks.iter())
        .filter_map(|chunk| serde_json::to_string(&chunk.args).ok())
        .collect();
    let blobs = compiled.blobs.into_iter();
    let provenance = compiled.low.chunks.iter().zip(compiled.provenance);
    Compiled {
        blobs: blobs.filter(|(sha256, _)| text.contains(sha256)).collect(),
        provenance: provenance
            .filter(|(chunk, _)| names.contains(&chunk.tag()))
            .map(|(_, from)| from)
            .collect(),
        low,
        warnings: compiled.warnings,
    }
}

fn place_name(place: RunsOn) -> &'static str {
    match place {
        RunsOn::Minion => {
            "on a host; it belongs in an SLS for the target `master` or in an orchestration"
        }
        RunsOn::Master => {
            "on the target `master`, whose states are `kubernetes.*`; it belongs in an SLS for hosts"
        }
        RunsOn::Orchestration => "as a step of an orchestration, whose states are `halite.*`",
    }
}

/// Like [`compile`], on a thread of its own, because compilation takes a while and must not delay
/// streams.
///
/// # Errors
/// The same as for [`compile`].
pub async fn in_background(
    snapshot: Arc<Snapshot>,
    minion: MinionId,
    grains: Value,
    wanted: RequestedStates,
) -> Result<Compiled, Refusal> {
    let work = move || compile(&snapshot, &minion, &grains, &wanted);
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Refusal::internal(format!("cannot compile: {error}")))?
}

/// The SLS that `top.sls` assigns to a minion.
///
/// # Errors
/// The same as for [`compile`].
pub fn top(snapshot: &Snapshot, minion: &MinionId, grains: &Value) -> Result<Vec<String>, Refusal> {
    let pillar = snapshot.pillar(minion)?;
    let bundle = |path: &str| snapshot.bundle_hash(minion, path);
    let input = Input {
        tree: snapshot.tree(minion),
        minion,
        pillar: &pillar,
        grains,
        bundle: &bundle,
    };
    let assigned = compile::top(&input).map_err(|problems| {
        Refusal::from_problems(&snapshot.tree(minion).with_disk_paths(problems))
    })?;
    Ok(assigned
        .into_iter()
        .map(|assignment| assignment.sls)
        .collect())
}
