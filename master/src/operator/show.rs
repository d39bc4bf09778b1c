//! `ctl render`, `ctl pillar`, `ctl grains` and others: data that the master shows without sending
//! a job.

use std::collections::BTreeMap;
use std::sync::Arc;

use halite_api::{Grains, MinionPillar, RenderedFile, RenderedFiles, RenderedLow, TopStates};
use halite_cluster::leaving::Leaving;
use halite_core::app::App;
use halite_core::declared::{Declarations, Snapshot, in_background};
use halite_core::refusal::Refusal;
use halite_fleet::compile;
use halite_fleet::compile::RequestedStates;
use halite_fleet::jobs::target::Target;
use halite_fleet::jobs::{Jobs, target};
use halite_names::MASTER;
use halite_proto::ids::MinionId;
use halite_proto::v1;
use halite_proto::v1::ShowRequest;
use halite_states::compile::{Compiled, Provenance};
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::{certificates, document, etcd_members, history, kubeconfig, last_upgrade, upgrade};

/// Larger texts are named by their digest.
const SHOWN: usize = 256 * 1024;

/// Returns the requested document.
///
/// # Errors
/// The request is invalid, it does not compile, or the store failed.
pub async fn show(app: &App, jobs: &Jobs, request: &ShowRequest) -> Result<v1::Document, Refusal> {
    if request.what == "grains" {
        let shown = grains(app, jobs.declarations(), &request.target).await?;
        return Ok(document(&shown));
    }
    if request.what == "runs" {
        return Ok(document(&history::runs(app).await?));
    }
    if request.what == "kubeconfigs" {
        return Ok(document(&kubeconfig::list(app).await?));
    }
    if request.what == "upgrade-status" {
        return Ok(document(&last_upgrade::status(app, jobs).await?));
    }
    if request.what == "certificates" {
        let found = certificates::list(app, jobs, &request.target).await?;
        return Ok(document(&found));
    }
    let snapshot = jobs.declarations().load().await?;
    Ok(match request.what.as_str() {
        "pillar" => {
            let minion: MinionId = request.target.parse()?;
            let pillar = as_mapping(snapshot.pillar(&minion)?);
            document(&MinionPillar { minion, pillar })
        }
        "top" => {
            let minion: MinionId = request.target.parse()?;
            let grains = target::grains(app, &minion).await?;
            let of = minion.clone();
            let sls = in_background(move || compile::top(&snapshot, &of, &grains)).await?;
            document(&TopStates { minion, sls })
        }
        "leaving" => {
            let leaving = Leaving::gather(app, jobs.clusters(), &snapshot, &request.target);
            document(&leaving.await?.document(snapshot.declaration()))
        }
        "etcd" => document(&etcd_members::document(jobs, &snapshot).await?),
        "upgrade" => {
            let (wanted, options) = (&request.target, &request.pillar_json);
            let plan = upgrade::document(app, jobs, &snapshot, wanted, options);
            document(&plan.await?)
        }
        "upgrade-shown" => {
            let plan = upgrade::shown_document(app, jobs, &snapshot, &request.target);
            document(&plan.await?)
        }
        "upgrade-back" => {
            let plan = upgrade::back_document(app, jobs, &snapshot, &request.pillar_json);
            document(&plan.await?)
        }
        "low" => {
            let low = compiled(app, &snapshot, request).await?.low;
            document(&RenderedLow { low })
        }
        "files" => document(&files(&compiled(app, &snapshot, request).await?)),
        other => {
            return Err(Refusal::invalid(format!(
                "cannot show {other:?}; the choices are low, files, pillar, grains, top, leaving, etcd, upgrade, upgrade-shown, upgrade-back, upgrade-status, certificates, runs and kubeconfigs"
            )));
        }
    })
}

async fn grains(
    app: &App,
    declarations: &Declarations,
    expression: &str,
) -> Result<Grains, Refusal> {
    let target = Target {
        kind: "glob",
        expression,
        also_master: false,
    };
    let mut all = Grains::default();
    for minion in target::resolve(app, declarations, target).await? {
        let grains = target::grains(app, &minion).await?;
        all.grains.insert(minion, as_mapping(grains));
    }
    Ok(all)
}

/// Returns a mapping; an empty one for any other value.
fn as_mapping(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
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
        RequestedStates::Highstate
    } else {
        RequestedStates::Step(request.sls.clone())
    };
    compile::in_background(Arc::clone(snapshot), minion, grains, wanted).await
}

/// Every file and every Kubernetes object that the states declare, each with its content and
/// provenance.
fn files(compiled: &Compiled) -> RenderedFiles {
    let nowhere = Provenance::default();
    let mut files = Vec::new();
    for (index, chunk) in compiled.low.chunks.iter().enumerate() {
        let provenance = compiled.provenance.get(index).unwrap_or(&nowhere);
        let argument = |name: &str| chunk.args.get(name).cloned();
        for (name, content) in contents(chunk, &compiled.blobs) {
            files.push(RenderedFile {
                name,
                state: chunk.function(),
                id: chunk.id.clone(),
                sls: chunk.sls.clone(),
                source: chunk.source.clone(),
                files: provenance.files.clone(),
                pillar: provenance.pillar.clone(),
                sensitive: chunk.sensitive,
                mode: argument("mode"),
                user: argument("user"),
                group: argument("group"),
                content: Some(content).filter(|content| !content.is_null()),
            });
        }
    }
    RenderedFiles { files }
}

/// The files or objects of a chunk: name and content. The text of a sensitive chunk is shown as
/// stored, with references in place of secrets.
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
