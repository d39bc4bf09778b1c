//! Registries outside the site, and the mirrors of their images.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::trust;

/// A registry outside the site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ForeignRegistry {
    /// The mirrors that containerd asks for its images, in this order, for example
    /// `https://mirror.corp/hub`. With mirrors, containerd asks only them; without any, the
    /// registry itself.
    pub mirrors: Vec<String>,
    /// The authority of their certificates (PEM), if hosts do not trust it already; see
    /// `trust.certificates`.
    pub ca: Option<String>,
}

/// The URL of a registry, by its name in images. Only Docker's registry has another host name.
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

/// The part of the view about one registry.
#[derive(Debug, Serialize)]
pub(crate) struct Mirrors {
    mirrors: Vec<String>,
    /// Certificates, one after the other.
    ca: Option<String>,
}

/// The part of the view about other registries: mirrors and certificates.
pub(crate) fn view(registries: &BTreeMap<String, ForeignRegistry>) -> BTreeMap<&str, Mirrors> {
    let mut all = BTreeMap::new();
    for (host, registry) in registries {
        let urls = registry.mirrors.iter();
        let mut mirrors: Vec<String> = urls
            .map(|url| url.trim_end_matches('/').to_owned())
            .collect();
        if mirrors.is_empty() {
            mirrors.push(itself(host));
        }
        let ca = registry.ca.as_deref();
        let ca = ca.map(|text| trust::certificates(text).unwrap_or_default().concat());
        all.insert(host.as_str(), Mirrors { mirrors, ca });
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        assert_eq!(json!(view(&declared)), wanted);
    }
}
