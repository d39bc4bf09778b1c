//! `ctl render`, `ctl pillar`, `ctl grains` and others: what the master shows without sending
//! anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use halite_cluster::leaving::Leaving;
use halite_core::app::App;
use halite_core::declared::{Declarations, Snapshot, in_background};
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_fleet::compile;
use halite_fleet::compile::Wanted;
use halite_fleet::jobs::target::Target;
use halite_fleet::jobs::{Jobs, target};
use halite_names::MASTER;
use halite_proto::ids::MinionId;
use halite_proto::v1::ShowRequest;
use halite_states::compile::{Compiled, Provenance};
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::{etcd_members, history, kubeconfig, upgrade};

/// Texts larger than this are named by their digest.
const SHOWN: usize = 256 * 1024;

/// The document that an operator asks to see.
///
/// # Errors
/// The request is wrong, nothing compiles from it, or the store failed.
pub async fn show(app: &App, jobs: &Jobs, request: &ShowRequest) -> Result<Value, Refusal> {
    if request.what == "grains" {
        return grains(app, jobs.declarations(), &request.target).await;
    }
    if request.what == "runs" {
        return history::runs(app).await;
    }
    if request.what == "kubeconfigs" {
        return kubeconfig::list(app).await;
    }
    let snapshot = jobs.declarations().load().await?;
    match request.what.as_str() {
        "pillar" => snapshot.pillar(&request.target.parse()?),
        "top" => {
            let minion = request.target.parse()?;
            let grains = target::grains(app, &minion).await?;
            let top = move || compile::top(&snapshot, &minion, &grains);
            Ok(json!(in_background(top).await?))
        }
        "leaving" => {
            let leaving = Leaving::gather(app, jobs.clusters(), &snapshot, &request.target);
            Ok(leaving.await?.document(snapshot.declaration()))
        }
        "etcd" => etcd_members::document(jobs, &snapshot).await,
        "upgrade" => upgrade::document(jobs.declarations(), &snapshot, &request.target).await,
        "low" => {
            let compiled = compiled(app, &snapshot, request).await?;
            serde_json::to_value(&compiled.low).map_err(|error| Refusal::internal(chain(&error)))
        }
        "files" => {
            let compiled = compiled(app, &snapshot, request).await?;
            Ok(files(&compiled))
        }
        other => Err(Refusal::invalid(format!(
            "cannot show {other:?}; there are low, files, pillar, grains, top, leaving, etcd, upgrade, runs and kubeconfigs"
        ))),
    }
}

async fn grains(
    app: &App,
    declarations: &Declarations,
    expression: &str,
) -> Result<Value, Refusal> {
    let target = Target {
        kind: "glob",
        expression,
        also_master: false,
    };
    let mut all = Map::new();
    for minion in target::resolve(app, declarations, target).await? {
        let grains = target::grains(app, &minion).await?;
        all.insert(minion.into(), grains);
    }
    Ok(Value::Object(all))
}

async fn compiled(
    app: &App,
    snapshot: &Arc<Snapshot>,
    request: &ShowRequest,
) -> Result<Compiled, Refusal> {
    if request.target.is_empty() {
        return Err(Refusal::invalid(format!(
            "name one minion, or `{MASTER}` for the Kubernetes objects"
        )));
    }
    let minion: MinionId = request.target.parse()?;
    let grains = target::grains(app, &minion).await?;
    let wanted = if request.sls.is_empty() {
        Wanted::Highstate
    } else {
        Wanted::Step(request.sls.clone())
    };
    compile::in_background(Arc::clone(snapshot), minion, grains, wanted).await
}

/// Every file and every Kubernetes object that the states declare, each with its content and
/// provenance.
fn files(compiled: &Compiled) -> Value {
    let nowhere = Provenance::default();
    let mut entries = Vec::new();
    for (index, chunk) in compiled.low.chunks.iter().enumerate() {
        let provenance = compiled.provenance.get(index).unwrap_or(&nowhere);
        for (name, content) in contents(chunk, &compiled.blobs) {
            entries.push(json!({
                "name": name,
                "state": chunk.function(),
                "id": chunk.id,
                "sls": chunk.sls,
                "source": chunk.source,
                "files": provenance.files,
                "pillar": provenance.pillar,
                "sensitive": chunk.sensitive,
                "mode": chunk.args.get("mode"),
                "user": chunk.args.get("user"),
                "group": chunk.args.get("group"),
                "content": content,
            }));
        }
    }
    Value::Array(entries)
}

/// The files or objects of a chunk: name and content. The text of a sensitive chunk is shown as it
/// is stored, with references in the place of secrets.
fn contents(chunk: &Chunk, blobs: &BTreeMap<String, Vec<u8>>) -> Vec<(String, Value)> {
    match (chunk.state.as_str(), chunk.fun.as_str()) {
        ("file", "managed") => vec![(chunk.name.clone(), content(&chunk.args, blobs))],
        ("file", "recurse") => {
            let files = chunk
                .args
                .get("files")
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default();
            let one = |(path, value): (String, Value)| {
                let fields = value.as_object().cloned().unwrap_or_default();
                (
                    format!("{}/{path}", chunk.name.trim_end_matches('/')),
                    content(&fields, blobs),
                )
            };
            files.into_iter().map(one).collect()
        }
        ("file", "symlink") => {
            let target = chunk
                .args
                .get("target")
                .and_then(Value::as_str)
                .unwrap_or_default();
            vec![(chunk.name.clone(), json!(format!("→ {target}")))]
        }
        ("x509", "certificate") | ("kubeconfig", "managed") => {
            vec![(
                chunk.name.clone(),
                json!("known after apply: the key is made on the host"),
            )]
        }
        ("kubernetes", "manifest") => {
            let documents = chunk
                .args
                .get("documents")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            documents
                .into_iter()
                .map(|document| (object_name(&document), document))
                .collect()
        }
        ("kubernetes", "object") => {
            let manifest = chunk.args.get("manifest").cloned().unwrap_or_default();
            vec![(object_name(&manifest), manifest)]
        }
        _ => Vec::new(),
    }
}

fn object_name(object: &Value) -> String {
    halite_cluster::kubernetes::ObjectRef::of(object)
        .map_or_else(|_| "an object".into(), |reference| reference.to_string())
}

fn content(fields: &Map<String, Value>, blobs: &BTreeMap<String, Vec<u8>>) -> Value {
    if let Some(text) = fields.get("contents") {
        return text.clone();
    }
    let named = ["blob", "source"]
        .iter()
        .find_map(|key| fields.get(*key).and_then(Value::as_str));
    let Some(hash) = named.map(|text| text.trim_start_matches("blob:")) else {
        return Value::Null;
    };
    let text = blobs.get(hash).filter(|content| content.len() <= SHOWN);
    match text.and_then(|content| std::str::from_utf8(content).ok()) {
        Some(text) => json!(text),
        None => json!(format!("sha256:{hash}")),
    }
}
