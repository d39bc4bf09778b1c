//! A picture of a cluster, and a difference between two.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// The content of a cluster, by place: `static-pod/etcd`, `certificate/apiserver`,
/// `object/ConfigMap/kube-system/coredns` …
pub(super) type Picture = BTreeMap<String, Value>;

/// One difference. `None` means that a side lacks the value; an empty path means the whole place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference {
    /// The place, for example `static-pod/kube-apiserver`.
    pub(super) place: String,
    /// Path in the place, for example `spec.containers[kube-apiserver].command[--secure-port]`.
    pub(super) path: String,
    /// kubeadm's value.
    pub(super) reference: Option<Value>,
    /// Halite's value.
    pub(super) ours: Option<Value>,
}

/// Limit for the displayed text of a value.
const SHOWN: usize = 300;

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}",
            self.place,
            if self.path.is_empty() {
                "(whole)"
            } else {
                &self.path
            }
        )?;
        for (sign, value) in [('-', &self.reference), ('+', &self.ours)] {
            if let Some(value) = value {
                let text = value.to_string();
                let short: String = text.chars().take(SHOWN).collect();
                write!(
                    f,
                    " {sign}{short}{}",
                    if short.len() < text.len() { "…" } else { "" }
                )?;
            }
        }
        Ok(())
    }
}
