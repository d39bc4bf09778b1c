//! Facts of pods, their owners and their tokens, for the wait for old pods.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use halite_core::clock::millis;
use halite_store::Millis;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::ObjectRef;

/// The ConfigMap with the trusted CAs, in each namespace.
pub(super) const ROOT_CA: &str = "kube-root-ca.crt";
/// The annotation of `kubectl rollout restart`.
pub(super) const RESTARTED: &str = "kubectl.kubernetes.io/restartedAt";
/// The kubelet's mark on the pods of its manifests, which have neither CA nor token.
pub(super) const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

/// The identifier that API servers derive from a public key (PEM), and write into each token.
#[must_use]
pub fn key_id(public_pem: &str) -> Option<String> {
    let body: String = (public_pem.lines())
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let der = STANDARD.decode(body.trim()).ok()?;
    Some(URL_SAFE_NO_PAD.encode(Sha256::digest(der)))
}

/// The identifier of the key that signed a token, which is in Base64 here.
pub(super) fn signer(token: &str) -> Option<String> {
    let token = STANDARD.decode(token).ok()?;
    let header = token.split(|byte| *byte == b'.').next()?;
    let header = URL_SAFE_NO_PAD.decode(header).ok()?;
    let header: Value = serde_json::from_slice(&header).ok()?;
    Some(header.get("kid")?.as_str()?.to_owned())
}

/// The time of the last change of an object.
pub(super) fn changed(object: &Value) -> Millis {
    let time = |value: &Value, pointer: &str| millis(value.pointer(pointer)?.as_str()?);
    let fields = object.pointer("/metadata/managedFields");
    let fields = fields.and_then(Value::as_array).into_iter().flatten();
    let times = fields.filter_map(|entry| time(entry, "/time"));
    let created = time(object, "/metadata/creationTimestamp");
    times.chain(created).max().unwrap_or_default()
}

fn projected(pod: &Value) -> impl Iterator<Item = &Value> {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let volumes = volumes.into_iter().flatten();
    volumes.flat_map(|volume| {
        let sources = volume.pointer("/projected/sources");
        sources.and_then(Value::as_array).into_iter().flatten()
    })
}

/// Returns whether a pod mounts the trusted CAs.
pub(super) fn mounts_ca(pod: &Value) -> bool {
    let is_ca = |name: Option<&Value>| name.and_then(Value::as_str) == Some(ROOT_CA);
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let mut volumes = volumes.into_iter().flatten();
    projected(pod).any(|source| is_ca(source.pointer("/configMap/name")))
        || volumes.any(|volume| is_ca(volume.pointer("/configMap/name")))
}

/// The longest lifetime of a pod's tokens; `None` without one.
pub(super) fn token_lifetime(pod: &Value) -> Option<Millis> {
    let tokens = projected(pod).filter_map(|source| source.get("serviceAccountToken"));
    let seconds = tokens.map(|token| {
        let seconds = token.get("expirationSeconds").and_then(Value::as_i64);
        seconds.unwrap_or(3600)
    });
    seconds.max().map(|seconds| seconds.saturating_mul(1000))
}

/// The controller of an object.
pub(super) fn controller(object: &Value) -> Option<ObjectRef> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners
        .iter()
        .find(|owner| owner.get("controller") == Some(&Value::Bool(true)))?;
    let field = |key: &str| Some(owner.get(key)?.as_str()?.to_owned());
    Some(ObjectRef {
        api_version: field("apiVersion")?,
        kind: field("kind")?,
        name: field("name")?,
        ..reference_of(object)
    })
}

/// Namespace and name of an object of the core group; the items of a list do not name their kind.
pub(super) fn reference_of(object: &Value) -> ObjectRef {
    let text = |pointer: &str| {
        let text = object.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    ObjectRef {
        api_version: "v1".to_owned(),
        kind: String::new(),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
    }
}

pub(super) fn named(object: &ObjectRef) -> String {
    format!("{} {}/{}", object.kind, object.namespace, object.name)
}
