//! The proxy through which containerd reaches registries outside the site.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::field_schemas;

/// The proxy through which containerd reaches registries outside the site. No other program of the
/// cluster uses it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Proxy {
    /// The proxy for http:// URLs, for example `http://proxy.corp:3128`. It must not contain a
    /// login.
    pub http: Option<String>,
    /// The proxy for https:// URLs; its own address may begin with `http://`. It must not contain a
    /// login.
    pub https: Option<String>,
    /// The names, addresses and networks that are reached without the proxy, in addition to the
    /// cluster itself: `.corp`, `10.7.0.0/16`.
    #[schemars(schema_with = "field_schemas::no_proxy")]
    pub no_proxy: Vec<String>,
}

impl Proxy {
    /// Returns whether a proxy is declared.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.http.is_some() || self.https.is_some()
    }
}
