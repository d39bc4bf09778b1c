//! YAML as Kubernetes reads it, for manifests.

use serde_json::Value;

use super::{Node, scalar};

impl Node {
    /// The value as JSON, with whole numbers as YAML 1.1 and Kubernetes read them: `0644` is octal.
    #[must_use]
    pub fn to_kubernetes_json(&self) -> Value {
        self.json(&|value, raw| scalar::octal(raw).unwrap_or(value), &|key| {
            key.raw.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::parse;

    #[test]
    fn a_mode_in_a_manifest_is_octal() {
        let text = "defaultMode: 0400\nitems: [{mode: 0644}, 10, '0644']\n";
        let node = parse("a.yaml", text).unwrap();
        assert_eq!(
            node.to_kubernetes_json(),
            json!({"defaultMode": 0o400, "items": [{"mode": 0o644}, 10, "0644"]})
        );
        assert_eq!(
            node.to_json(),
            json!({"defaultMode": 400, "items": [{"mode": 644}, 10, "0644"]})
        );
    }
}
