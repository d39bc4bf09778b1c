//! The files and certificates that a minion may request: only those that its own open job names.
//!
//! The stored low state decides in both cases. A file was either rendered when the job was made
//! (then it is in the store) or belongs to the bundle (then it is read from the bundle's directory
//! and checked at the same time).

mod stream;

use std::sync::Arc;

use halite_core::app::App;
use halite_core::ca::{KUBERNETES, Profile};
use halite_core::declared::{Snapshot, in_background};
use halite_core::refusal::Refusal;
use halite_pillar::role::Role;
use halite_proto::ids::{JobId, MinionId};
use halite_states::low::{Chunk, LowState};
use halite_store::RowState;
use serde_json::Value;

use crate::keys::declared_roles;

pub use stream::ByteStream;

/// The prefix with which a low state refers to a file.
const BLOB: &str = "blob:";

/// The chunk with this tag in an open job of this minion, if it requests a certificate.
///
/// # Errors
/// The job does not exist, has ended or is a test run, or the chunk requests no certificate, or one
/// that this host may not have.
pub async fn certificate_chunk(
    app: &App,
    minion: &MinionId,
    job: &JobId,
    tag: &str,
) -> Result<Chunk, Refusal> {
    let stored = app.store.job(job).await?;
    if stored.is_none_or(|job| job.test) {
        return Err(Refusal::denied(format!(
            "{minion}: cannot sign a certificate for job {job}: it is not running, or is a test run"
        )));
    }
    let low = open_low(app, minion, job).await?;
    let chunk = low.chunks.into_iter().find(|chunk| chunk.tag() == tag);
    match chunk {
        Some(chunk) if requests_certificate(&chunk) => {
            if is_powerful(minion, &chunk) {
                check_power(minion, &declared_roles(app, minion)?)?;
            }
            Ok(chunk)
        }
        _ => Err(Refusal::denied(format!(
            "{minion}: no state {tag:?} of job {job} requests a certificate"
        ))),
    }
}

fn requests_certificate(chunk: &Chunk) -> bool {
    match (chunk.state.as_str(), chunk.fun.as_str()) {
        ("x509", "certificate") => true,
        // A kubeconfig that refers to the files of another certificate requests none.
        ("kubeconfig", "managed") => !chunk.args.contains_key("client_certificate_file"),
        _ => false,
    }
}

/// Returns whether a certificate gives access to etcd, or rights in Kubernetes over more than its
/// own node. A worker's own states do not request one, but injected ones could.
fn is_powerful(minion: &MinionId, chunk: &Chunk) -> bool {
    // An invalid request gets no certificate at all.
    let Ok((ca, profile)) = Profile::of_chunk(chunk) else {
        return false;
    };
    let administers =
        |group: &String| ["system:masters", "kubeadm:cluster-admins"].contains(&group.as_str());
    // Kubernetes reserves the first prefix; names with the other one have rights on all kubelets.
    let is_reserved = ["system:", "kube-apiserver"]
        .iter()
        .any(|prefix| profile.common_name.starts_with(prefix));
    let is_own = profile.common_name == format!("system:node:{minion}");
    match ca.as_str() {
        "etcd" | "front-proxy" => true,
        KUBERNETES => profile.organization.iter().any(administers) || (is_reserved && !is_own),
        _ => false,
    }
}

/// Refuses such a certificate for a host without a control plane or an etcd member.
fn check_power(minion: &MinionId, roles: &[String]) -> Result<(), Refusal> {
    let (plane, member) = (Role::ControlPlane.as_str(), Role::Etcd.as_str());
    if roles.iter().any(|role| role == plane || role == member) {
        return Ok(());
    }
    Err(Refusal::denied(format!(
        "cannot sign a certificate for {minion}: it would give rights over the cluster or etcd, which only hosts with the role \
         {plane} or {member} get; remove the state from this host, or give the certificate another CA, name or group"
    )))
}

/// Opens a file that this minion's part of a job names.
///
/// # Errors
/// The job does not name the file or has ended, or the file is missing.
pub async fn fetch(
    app: &App,
    snapshot: &Arc<Snapshot>,
    minion: &MinionId,
    job: &JobId,
    sha256: &str,
) -> Result<ByteStream, Refusal> {
    let low = open_low(app, minion, job).await?;
    let named = low
        .chunks
        .iter()
        .any(|chunk| chunk.args.values().any(|value| names_blob(value, sha256)));
    if !named {
        return Err(Refusal::denied(format!(
            "{minion}: job {job} names no file with the SHA-256 {sha256}"
        )));
    }
    if let Some(content) = app.store.blob(sha256).await? {
        return Ok(stream::of_bytes(content));
    }
    let (snapshot, digest) = (Arc::clone(snapshot), sha256.to_owned());
    let path = in_background(move || Ok(snapshot.bundle_file(&digest))).await?;
    let path = path.ok_or_else(|| {
        Refusal::not_found(format!(
            "the file with the SHA-256 {sha256} is no longer in the bundle; run the job again"
        ))
    })?;
    stream::of_file(path, sha256.to_owned()).await
}

async fn open_low(app: &App, minion: &MinionId, job: &JobId) -> Result<LowState, Refusal> {
    let refusal = || Refusal::denied(format!("{minion} has no open job {job}"));
    let row = app.store.row(job, minion).await?.ok_or_else(refusal)?;
    if !matches!(
        row.state,
        RowState::Queued | RowState::Sent | RowState::Started
    ) {
        return Err(refusal());
    }
    let text = row.low_json.ok_or_else(refusal)?;
    serde_json::from_str(&text)
        .map_err(|e| Refusal::internal(format!("cannot read the stored low state: {e}")))
}

/// Returns whether a value contains `blob:SHA256` as a whole text.
fn names_blob(value: &Value, sha256: &str) -> bool {
    match value {
        Value::String(text) => text.strip_prefix(BLOB) == Some(sha256),
        Value::Array(items) => items.iter().any(|item| names_blob(item, sha256)),
        // `file.recurse`: `files: {path: {blob: SHA256}}`.
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            (key == "blob" && value.as_str() == Some(sha256)) || names_blob(value, sha256)
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_worker_gets_no_certificate_with_rights_over_the_cluster() {
        let worker: MinionId = "worker-1".parse().unwrap();
        let is_powerful = |args: Value| {
            let chunk = json!({
                "state": "x509", "fun": "certificate", "id": "x", "name": "/x", "sls": "custom.x",
                "source": {"file": "x.sls", "line": 1, "column": 1}, "args": args,
            });
            is_powerful(&worker, &serde_json::from_value(chunk).unwrap())
        };
        for args in [
            json!({"ca": "etcd", "common_name": "x", "client_auth": true}),
            json!({"ca": "front-proxy", "common_name": "x", "client_auth": true}),
            json!({"common_name": "x", "organization": "system:masters", "client_auth": true}),
            json!({"common_name": "x", "organization": ["kubeadm:cluster-admins"], "client_auth": true}),
            json!({"common_name": "system:kube-controller-manager", "client_auth": true}),
            json!({"common_name": "system:node:cp-1", "organization": "system:nodes", "client_auth": true}),
            json!({"common_name": "kube-apiserver-kubelet-client", "client_auth": true}),
        ] {
            assert!(is_powerful(args.clone()), "{args}");
        }
        // Its kubelet's, those of services, and an operator's own.
        for args in [
            json!({"common_name": "system:node:worker-1", "organization": "system:nodes", "client_auth": true}),
            json!({"common_name": "worker-1", "server_auth": true}),
            json!({"ca": "site", "common_name": "worker-1", "server_auth": true}),
            json!({"common_name": "monitor", "organization": "monitors", "client_auth": true}),
        ] {
            assert!(!is_powerful(args.clone()), "{args}");
        }
        let check = |roles: &[&str]| {
            let roles: Vec<String> = roles.iter().map(|role| (*role).to_owned()).collect();
            check_power(&worker, &roles)
        };
        assert!(check(&["worker", "control-plane"]).is_ok() && check(&["etcd"]).is_ok());
        for roles in [&["worker", "registry"][..], &[]] {
            let refused = check(roles).unwrap_err().message;
            assert!(refused.contains("control-plane or etcd"), "{refused}");
        }
    }

    #[test]
    fn blobs_are_found_wherever_they_are_named() {
        for value in [
            json!("blob:abc"),
            json!({"files": {"a/b": {"blob": "abc", "mode": "0644"}}}),
            json!(["x", {"source": "blob:abc"}]),
        ] {
            assert!(names_blob(&value, "abc"), "{value}");
            assert!(!names_blob(&value, "ab"), "{value}");
        }
        assert!(!names_blob(
            &json!({"contents": "see blob:abc there"}),
            "abc"
        ));
    }
}
