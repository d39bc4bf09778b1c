//! Secrets in etcd, and the keys that encrypt them.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_pillar::encryption_keys::{EncryptionKeys, KEYS_FILE};
use serde::Deserialize;

use crate::etcdctl::etcdctl;

/// The Secret of the tests, its content, and its key in etcd.
pub(crate) const SECRET: &str = "kept";
pub(crate) const VALUE: &str = "word-that-no-log-has";
pub(crate) const STORED: &str = "/registry/secrets/default/kept";
/// The beginning of a value that API servers have encrypted; the name of the key follows.
pub(crate) const ENCRYPTED: &str = "k8s:enc:secretbox:v1:";

/// An entry of etcd, in Base64.
#[derive(Deserialize)]
pub(crate) struct StoredEntry {
    pub(crate) key: String,
    pub(crate) value: String,
}

/// The answer of `etcdctl get`.
#[derive(Deserialize)]
struct EtcdRange {
    #[serde(default)]
    kvs: Vec<StoredEntry>,
}

pub(crate) fn range(cluster: &Cluster, words: &[&str]) -> Result<Vec<StoredEntry>> {
    let answer = etcdctl(cluster, &cluster.bootstrap, words)?;
    Ok(serde_json::from_value::<EtcdRange>(answer)?.kvs)
}

/// The bytes of a value in etcd, as text: ciphertext has characters that are not UTF-8.
pub(crate) fn stored(cluster: &Cluster, key: &str) -> Result<String> {
    let all = range(cluster, &["get", key])?;
    let entry = all.first().with_context(|| format!("etcd has no {key}"))?;
    Ok(String::from_utf8_lossy(&STANDARD.decode(&entry.value)?).into_owned())
}

/// Makes the Secret of the tests.
pub(crate) fn make_secret(cluster: &Cluster) -> Result<()> {
    let literal = format!("--from-literal=x={VALUE}");
    cluster.kubectl(&["create", "secret", "generic", SECRET, &literal])?;
    Ok(())
}

/// Fails unless etcd has the Secret in plain text.
pub(crate) fn is_plain_text(cluster: &Cluster) -> Result<()> {
    let raw = stored(cluster, STORED)?;
    ensure!(
        !raw.starts_with("k8s:enc:") && raw.contains(VALUE),
        "{STORED} begins with {raw:.40}"
    );
    Ok(())
}

/// Fails unless etcd has the Secret as ciphertext of this key, and the API returns it.
pub(crate) fn is_encrypted_with(cluster: &Cluster, key: &str) -> Result<()> {
    let raw = stored(cluster, STORED)?;
    let begin = format!("{ENCRYPTED}{key}:");
    ensure!(raw.starts_with(&begin), "{STORED} begins with {:.40}", raw);
    ensure!(!raw.contains(VALUE), "{STORED} has the value in plain text");
    let read = ["get", "secret", SECRET, "-o", "jsonpath={.data.x}"];
    let read = cluster.kubectl(&read)?;
    ensure!(STANDARD.decode(&read)? == VALUE.as_bytes(), "{read}");
    Ok(())
}

/// The master's file of the keys.
pub(crate) fn record() -> String {
    format!("/var/lib/halite/master/{KEYS_FILE}")
}

/// The master's keys.
pub(crate) fn master_keys(host: &Host) -> Result<EncryptionKeys> {
    Ok(serde_json::from_str(&host.run(&["cat", &record()])?)?)
}

/// The name of the key that encrypts, on the master's host.
pub(crate) fn writer(host: &Host) -> Result<String> {
    let names = master_keys(host)?.names();
    names.writer.context("no key encrypts")
}

/// Fails unless the API server of a host has the newer key, and no longer the older one.
pub(crate) fn has_only(host: &Host, newer: &str, older: &str) -> Result<()> {
    let file = host.run(&["cat", "/etc/kubernetes/apiserver/encryption.yaml"])?;
    ensure!(
        file.contains(newer) && !file.contains(older),
        "{}: the older key has not left the file of the API server",
        host.spec.name
    );
    Ok(())
}
