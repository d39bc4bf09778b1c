//! Registries outside the site, and the mirrors of their images.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::trust;

/// A registry outside the site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ForeignRegistry {
    /// Mirrors that containerd asks for its images, in this order: `https://mirror.corp/hub`.
    /// Without mirrors it asks the registry itself; with mirrors, only the mirrors.
    pub mirrors: Vec<String>,
    /// The authority of their certificates (PEM), if hosts do not trust it already; see
    /// `trust.certificates`.
    pub ca: Option<String>,
}

/// The URL of a registry, by its name in images. Only Docker's has another host.
fn itself(host: &str) -> String {
    format!(
        "https://{}",
        if host == "docker.io" {
            "registry-1.docker.io"
        } else {
            host
        }
    )
}

/// The part of the view about other registries: mirrors and certificates.
pub(crate) fn view(registries: &BTreeMap<String, ForeignRegistry>) -> Value {
    let one = |(host, registry): (&String, &ForeignRegistry)| {
        let mut mirrors: Vec<String> = registry
            .mirrors
            .iter()
            .map(|url| url.trim_end_matches('/').to_owned())
            .collect();
        if mirrors.is_empty() {
            mirrors.push(itself(host));
        }
        let ca = registry
            .ca
            .as_deref()
            .map(|text| trust::certificates(text).unwrap_or_default().concat());
        (host.clone(), json!({"mirrors": mirrors, "ca": ca}))
    };
    Value::Object(registries.iter().map(one).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_mirrors_the_registry_itself_is_asked() {
        let mirrors = |urls: &[&str]| ForeignRegistry {
            mirrors: urls.iter().map(|url| (*url).to_owned()).collect(),
            ca: None,
        };
        let declared = [
            ("docker.io", mirrors(&[])),
            ("ghcr.io", mirrors(&["https://a/hub/", "http://b:5000"])),
            ("r.corp:5000", mirrors(&[])),
        ];
        let declared = declared
            .map(|(host, registry)| (host.to_owned(), registry))
            .into();
        let wanted = json!({
            "docker.io": {"mirrors": ["https://registry-1.docker.io"], "ca": null},
            "ghcr.io": {"mirrors": ["https://a/hub", "http://b:5000"], "ca": null},
            "r.corp:5000": {"mirrors": ["https://r.corp:5000"], "ca": null},
        });
        assert_eq!(view(&declared), wanted);
    }
}
