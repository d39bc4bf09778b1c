//! The keys that encrypt objects in etcd, and the file with which API servers use them.
//!
//! The master makes the keys and keeps them. An API server must be able to decrypt with a key
//! before another one encrypts with it, so a key is used in steps: all API servers get it, then all
//! encrypt with it, then all objects are written again, and then all lose the older key. Each step
//! is a form of [`EncryptionKeys`], with a number that grows: the stage. The name of a key is never
//! used again, so a state that names it has that key or none.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The start of a key's pillar path; its name follows.
const KEY_PATH: &str = "encryption.";
/// The number of keys during a rotation.
const MOST: usize = 2;
/// The file of the keys in the master's directory.
pub const KEYS_FILE: &str = "encryption/keys.json";
/// The name that stands for the first key of a cluster before the master has made it.
const FIRST_NAME: &str = "key1";
/// The stage of a cluster's first key.
const FIRST_STAGE: u64 = 1;

/// The pillar path of the key with this name.
#[must_use]
pub fn key_path(name: &str) -> String {
    format!("{KEY_PATH}{name}")
}

/// The name of the key with this pillar path; `None` for any other path.
#[must_use]
pub fn key_name(path: &str) -> Option<&str> {
    path.strip_prefix(KEY_PATH)
}

/// The keys, and the one that encrypts. `Debug` does not print them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncryptionKeys {
    /// The oldest first.
    keys: Vec<EncryptionKey>,
    /// The name of the key that encrypts; `None` while no API server may encrypt yet.
    writer: Option<String>,
    /// Grows with each step.
    #[serde(default = "first_stage")]
    stage: u64,
    /// `true` from the start of a rotation until all API servers have reached its last stage.
    #[serde(default)]
    rotates: bool,
}

fn first_stage() -> u64 {
    FIRST_STAGE
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct EncryptionKey {
    name: String,
    /// 32 bytes in Base64.
    secret: String,
}

/// A key that has no name yet. `Debug` does not print it.
pub struct NewKey {
    /// A random text that makes its name unique: letters and digits.
    pub id: String,
    /// 32 bytes in Base64.
    pub secret: String,
}

impl NewKey {
    fn named(self, number: u64) -> EncryptionKey {
        EncryptionKey {
            name: format!("key{number}-{}", self.id),
            secret: self.secret,
        }
    }
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewKey({})", self.id)
    }
}

/// The names of the keys, and of the one that encrypts: no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyNames {
    /// The oldest first.
    pub names: Vec<String>,
    /// The key that encrypts.
    pub writer: Option<String>,
    /// Grows with each step.
    pub stage: u64,
    /// `true` while a rotation has not ended.
    #[serde(skip)]
    pub rotates: bool,
}

impl Default for KeyNames {
    /// The names in a new cluster.
    fn default() -> Self {
        Self {
            names: vec![FIRST_NAME.to_owned()],
            writer: Some(FIRST_NAME.to_owned()),
            stage: FIRST_STAGE,
            rotates: false,
        }
    }
}

impl std::fmt::Debug for EncryptionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.names().fmt(f)
    }
}

impl EncryptionKeys {
    /// The first key. With `is_new`, no API server runs yet, so all may encrypt with it at once.
    #[must_use]
    pub fn first(key: NewKey, is_new: bool) -> Self {
        let key = key.named(1);
        Self {
            writer: is_new.then(|| key.name.clone()),
            keys: vec![key],
            stage: FIRST_STAGE,
            rotates: false,
        }
    }

    /// The names of the keys.
    #[must_use]
    pub fn names(&self) -> KeyNames {
        KeyNames {
            names: self.keys.iter().map(|key| key.name.clone()).collect(),
            writer: self.writer.clone(),
            stage: self.stage,
            rotates: self.rotates,
        }
    }

    /// The pillar paths of the keys.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        self.keys.iter().map(|key| key_path(&key.name))
    }

    /// The key with this pillar path, Base64: a secret. `None` if it has left, or is not known.
    #[must_use]
    pub fn secret(&self, path: &str) -> Option<&str> {
        let name = key_name(path)?;
        let key = self.keys.iter().find(|key| key.name == name)?;
        Some(&key.secret)
    }

    /// Step 1 of a rotation: a new key that only decrypts. Takes none while there is a key that
    /// does not encrypt yet, or while a rotation has not ended: it is resumed.
    #[must_use]
    pub fn with_next(mut self, key: NewKey) -> Self {
        let resumes = self.rotates || self.keys.len() == MOST || self.writer.is_none();
        self.rotates = true;
        if resumes {
            return self;
        }
        let newest = self.keys.last().map_or("key0", |key| key.name.as_str());
        let number = newest.trim_start_matches("key").split('-').next();
        let number = number.and_then(|number| number.parse::<u64>().ok());
        self.keys
            .push(key.named(number.unwrap_or(0).saturating_add(1)));
        self.next_stage()
    }

    /// Step 2: the newest key encrypts.
    #[must_use]
    pub fn written_by_newest(mut self) -> Self {
        let newest = self.keys.last().map(|key| key.name.clone());
        if self.writer == newest {
            return self;
        }
        self.writer = newest;
        self.next_stage()
    }

    /// Step 3, once all objects are written again: the older key leaves. Without effect while the
    /// newest does not encrypt.
    #[must_use]
    pub fn without_older(mut self) -> Self {
        let newest = self.keys.last().map(|key| key.name.clone());
        if self.keys.len() < MOST || self.writer != newest {
            return self;
        }
        self.keys.drain(..self.keys.len() - 1);
        self.next_stage()
    }

    /// The end of a rotation: all API servers have reached its last stage.
    #[must_use]
    pub fn rotated(mut self) -> Self {
        self.rotates = false;
        self
    }

    fn next_stage(mut self) -> Self {
        self.stage = self.stage.saturating_add(1);
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
    let mut all: Vec<&String> = keys.names.iter().collect();
    // The first key of a provider encrypts.
    all.sort_by_key(|name| Some(*name) != keys.writer.as_ref());
    let all: Vec<Value> = all
        .into_iter()
        .map(|name| json!({"name": name, "secret": key(&key_path(name))}))
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

    /// A key whose secret is its id.
    fn key(id: &str) -> NewKey {
        NewKey {
            id: id.to_owned(),
            secret: id.to_owned(),
        }
    }

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
        let new = EncryptionKeys::first(key("one"), true);
        assert_eq!(written(&new).0, ["key1-one=one", "plain"]);
        let running = EncryptionKeys::first(key("one"), false);
        assert_eq!(written(&running).0, ["plain", "key1-one=one"]);
        // The rotation that follows takes no second key.
        let running = running.with_next(key("two"));
        assert_eq!(written(&running).0, ["plain", "key1-one=one"]);
        let running = running.written_by_newest();
        assert_eq!(written(&running).0, ["key1-one=one", "plain"]);
        let running = running.without_older().rotated();
        assert_eq!((running.names().stage, running.rotates), (2, false));
    }

    #[test]
    fn a_key_decrypts_everywhere_before_it_encrypts_and_until_all_is_written_again() {
        let keys = EncryptionKeys::first(key("one"), true).with_next(key("two"));
        assert_eq!(written(&keys).0, ["key1-one=one", "key2-two=two", "plain"]);
        let keys = keys.written_by_newest();
        assert_eq!(written(&keys).0, ["key2-two=two", "key1-one=one", "plain"]);
        let keys = keys.without_older();
        assert_eq!(written(&keys).0, ["key2-two=two", "plain"]);
        let keys = keys.rotated().with_next(key("three"));
        assert_eq!(
            written(&keys).0,
            ["key2-two=two", "key3-three=three", "plain"]
        );
        assert_eq!(keys.names().stage, 5);
    }

    #[test]
    fn an_interrupted_rotation_is_resumed_with_the_same_keys_at_each_stage() {
        let mut keys = EncryptionKeys::first(key("one"), true).with_next(key("two"));
        // The older key stays while it encrypts.
        assert_eq!(keys.clone().without_older(), keys);
        for step in [
            EncryptionKeys::written_by_newest,
            EncryptionKeys::without_older,
        ] {
            assert_eq!(keys.clone().with_next(key("three")), keys);
            keys = step(keys);
            assert_eq!(step(keys.clone()), keys);
        }
        // The last stage may not have reached each host.
        assert_eq!(keys.clone().with_next(key("three")), keys);
        let ended = keys.rotated();
        assert_eq!(ended.clone().with_next(key("three")).keys.len(), 2);
        assert_eq!(ended.names().names, ["key2-two"]);
    }

    /// Two keys never have the same path, so a state compiled for one is never filled with another.
    #[test]
    fn the_path_of_a_key_names_it_and_ends_with_it() {
        let keys = EncryptionKeys::first(key("one"), true).with_next(key("two"));
        assert_eq!(key_name(&key_path("key1-one")), Some("key1-one"));
        assert_eq!(keys.secret("encryption.key1-one"), Some("one"));
        assert_eq!(keys.secret("encryption.key2-two"), Some("two"));
        let keys = keys.written_by_newest().without_older();
        assert_eq!(keys.secret("encryption.key1-one"), None);
        assert_eq!(keys.secret("encryption.key2-two"), Some("two"));
        let other = EncryptionKeys::first(key("other"), true);
        assert_eq!(other.secret("encryption.key1-one"), None);
        assert_eq!(other.secret("pki.sa.key"), None);
    }

    #[test]
    fn a_file_of_an_earlier_version_is_read() {
        let text = r#"{"keys":[{"name":"key1","secret":"one"}],"writer":"key1"}"#;
        let keys: EncryptionKeys = serde_json::from_str(text).unwrap();
        assert_eq!(keys.names(), KeyNames::default());
        let keys = keys.with_next(key("two"));
        assert_eq!(keys.names().names, ["key1", "key2-two"]);
        assert_eq!(keys.names().stage, 2);
    }

    #[test]
    fn no_key_is_printed_and_the_file_is_read_back() {
        let new = || NewKey {
            id: "one".to_owned(),
            secret: "canary".to_owned(),
        };
        let keys = EncryptionKeys::first(new(), true);
        assert!(!format!("{keys:?}{:?}", new()).contains("canary"));
        let text = serde_json::to_string(&keys).unwrap();
        assert_eq!(serde_json::from_str::<EncryptionKeys>(&text).unwrap(), keys);
    }
}
