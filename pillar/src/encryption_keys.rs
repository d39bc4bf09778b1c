//! The keys that encrypt objects in etcd, and the file with which API servers use them.
//!
//! The master makes the keys and keeps them. An API server must be able to decrypt with a key before
//! another one encrypts with it, so a key is used in steps: all API servers get it, then all encrypt
//! with it, then all objects are written again, and then all lose the older key. Each step is a form
//! of [`EncryptionKeys`].

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The pillar paths of the keys, the oldest first. There are never more.
pub const KEY_PATHS: [&str; 2] = ["encryption.first", "encryption.second"];
/// The file of the keys in the master's directory.
pub const KEYS_FILE: &str = "encryption/keys.json";
/// The name of the first key of a cluster.
const FIRST_NAME: &str = "key1";

/// The keys, and the one that encrypts. `Debug` does not print them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncryptionKeys {
    /// The oldest first.
    keys: Vec<EncryptionKey>,
    /// The name of the key that encrypts; `None` while no API server may encrypt yet.
    writer: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct EncryptionKey {
    name: String,
    /// 32 bytes in Base64.
    secret: String,
}

/// The names of the keys, and of the one that encrypts: no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyNames {
    /// The oldest first.
    pub names: Vec<String>,
    /// The key that encrypts.
    pub writer: Option<String>,
}

impl Default for KeyNames {
    /// The names in a new cluster.
    fn default() -> Self {
        Self {
            names: vec![FIRST_NAME.to_owned()],
            writer: Some(FIRST_NAME.to_owned()),
        }
    }
}

impl std::fmt::Debug for EncryptionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.names().fmt(f)
    }
}

impl EncryptionKeys {
    /// The first key (32 bytes in Base64). With `is_new`, no API server runs yet, so all may encrypt
    /// with it at once.
    #[must_use]
    pub fn first(secret: String, is_new: bool) -> Self {
        let name = FIRST_NAME.to_owned();
        Self {
            writer: is_new.then(|| name.clone()),
            keys: vec![EncryptionKey { name, secret }],
        }
    }

    /// The names of the keys.
    #[must_use]
    pub fn names(&self) -> KeyNames {
        KeyNames {
            names: self.keys.iter().map(|key| key.name.clone()).collect(),
            writer: self.writer.clone(),
        }
    }

    /// The key with this pillar path, Base64: a secret.
    #[must_use]
    pub fn secret(&self, path: &str) -> Option<&str> {
        let at = KEY_PATHS.iter().position(|known| *known == path)?;
        self.keys.get(at).map(|key| key.secret.as_str())
    }

    /// Step 1 of a rotation: a new key that only decrypts. Without effect while there is a key that
    /// does not encrypt yet, or while the older key has not left yet: that rotation is resumed.
    #[must_use]
    pub fn with_next(mut self, secret: String) -> Self {
        if self.keys.len() < KEY_PATHS.len() && self.writer.is_some() {
            let newest = self.keys.last().map_or("key0", |key| key.name.as_str());
            let number = newest.trim_start_matches("key").parse::<u64>().unwrap_or(0);
            let name = format!("key{}", number.saturating_add(1));
            self.keys.push(EncryptionKey { name, secret });
        }
        self
    }

    /// Step 2: the newest key encrypts.
    #[must_use]
    pub fn written_by_newest(mut self) -> Self {
        self.writer = self.keys.last().map(|key| key.name.clone());
        self
    }

    /// Step 3, once all objects are written again: the older key leaves. Without effect while the
    /// newest does not encrypt.
    #[must_use]
    pub fn without_older(mut self) -> Self {
        if self.writer == self.keys.last().map(|key| key.name.clone()) {
            self.keys.drain(..self.keys.len().saturating_sub(1));
        }
        self
    }
}

/// The `EncryptionConfiguration` (`apiserver.config.k8s.io/v1`) for the encrypted resources, with
/// `key` for the key at a pillar path.
///
/// The second entry, for all other resources, writes plain text and decrypts with the same keys. So
/// a resource may enter or leave the list while API servers with both lists run.
#[must_use]
pub fn configuration(keys: &KeyNames, resources: &[String], key: &dyn Fn(&str) -> String) -> Value {
    let mut all: Vec<(&String, &str)> = keys.names.iter().zip(KEY_PATHS).collect();
    // The first key of a provider encrypts.
    all.sort_by_key(|(name, _)| Some(*name) != keys.writer.as_ref());
    let all: Vec<Value> = all
        .into_iter()
        .map(|(name, path)| json!({"name": name, "secret": key(path)}))
        .collect();
    let decrypts = json!({"secretbox": {"keys": all}});
    let plain = json!({"identity": {}});
    let mut providers = [plain.clone(), decrypts.clone()];
    if keys.writer.is_some() {
        providers.reverse();
    }
    let mut entries = Vec::new();
    if !resources.is_empty() {
        entries.push(json!({"resources": resources, "providers": providers}));
    }
    entries.push(json!({"resources": ["*.*"], "providers": [plain, decrypts]}));
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": entries,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test's panic is its report")]
mod tests {
    use super::*;

    fn written(keys: &EncryptionKeys) -> (Vec<String>, String) {
        let resources = vec!["secrets".to_owned()];
        let of = configuration(&keys.names(), &resources, &|path| {
            keys.secret(path).unwrap().to_owned()
        });
        let mut order = Vec::new();
        for provider in of["resources"][0]["providers"].as_array().unwrap() {
            match provider["secretbox"]["keys"].as_array() {
                Some(keys) => order.extend(
                    (keys.iter())
                        .map(|key| format!("{}={}", key["name"], key["secret"]).replace('"', "")),
                ),
                None => order.push("plain".to_owned()),
            }
        }
        let last = &of["resources"][1];
        assert_eq!(last["resources"], json!(["*.*"]));
        assert_eq!(last["providers"][0], json!({"identity": {}}));
        (order, of.to_string())
    }

    #[test]
    fn a_new_cluster_encrypts_at_once_and_a_running_one_only_after_all_can_decrypt() {
        let new = EncryptionKeys::first("one".to_owned(), true);
        assert_eq!(written(&new).0, ["key1=one", "plain"]);
        assert_eq!(new.names(), KeyNames::default());
        let running = EncryptionKeys::first("one".to_owned(), false);
        assert_eq!(written(&running).0, ["plain", "key1=one"]);
        // The rotation that follows takes no second key.
        let running = running.with_next("two".to_owned());
        assert_eq!(written(&running).0, ["plain", "key1=one"]);
        assert_eq!(
            written(&running.written_by_newest()).0,
            ["key1=one", "plain"]
        );
    }

    #[test]
    fn a_key_decrypts_everywhere_before_it_encrypts_and_until_all_is_written_again() {
        let keys = EncryptionKeys::first("one".to_owned(), true).with_next("two".to_owned());
        assert_eq!(written(&keys).0, ["key1=one", "key2=two", "plain"]);
        let keys = keys.written_by_newest();
        assert_eq!(written(&keys).0, ["key2=two", "key1=one", "plain"]);
        let keys = keys.without_older();
        assert_eq!(written(&keys).0, ["key2=two", "plain"]);
        let keys = keys.with_next("three".to_owned());
        assert_eq!(written(&keys).0, ["key2=two", "key3=three", "plain"]);
    }

    #[test]
    fn an_interrupted_rotation_is_resumed_with_the_same_keys() {
        let added = EncryptionKeys::first("one".to_owned(), true).with_next("two".to_owned());
        assert_eq!(added.clone().with_next("three".to_owned()), added);
        // The older key stays while it encrypts.
        assert_eq!(added.clone().without_older(), added);
        let first = added.written_by_newest();
        assert_eq!(first.clone().with_next("three".to_owned()), first);
        assert_eq!(first.clone().written_by_newest(), first);
    }

    #[test]
    fn no_key_is_printed_and_the_file_is_read_back() {
        let keys = EncryptionKeys::first("canary".to_owned(), true);
        assert!(!format!("{keys:?}").contains("canary"));
        let text = serde_json::to_string(&keys).unwrap();
        assert_eq!(serde_json::from_str::<EncryptionKeys>(&text).unwrap(), keys);
    }
}
