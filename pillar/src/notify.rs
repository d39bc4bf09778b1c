//! Notifications: the receivers of the findings of `ctl health`.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::field_schemas;

/// The notifications of the cluster: the master sends each new finding of `ctl health` to each
/// sink, and its resolution.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Notify {
    /// The receivers, each under a name of your choice. Without any, nothing is sent.
    #[schemars(schema_with = "sinks")]
    pub sinks: BTreeMap<String, NotifySink>,
}

/// A receiver of notifications: an HTTP server of the site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NotifySink {
    /// The form of the requests.
    pub form: SinkForm,
    /// The address to which they are sent with POST: `https://alerts.example.com:9093`. The
    /// master's host and its standbys must reach it.
    pub url: Option<String>,
    /// Instead of `url`: the name in `secrets` of an address that contains a key, as those of chats
    /// do. That secret needs no roles or nodes.
    #[schemars(schema_with = "field_schemas::optional_secret_name")]
    pub url_secret: Option<String>,
    /// The authority of the server's certificate (PEM). Default: the authorities that the master's
    /// host trusts; see `trust.certificates`.
    pub ca: Option<String>,
    /// A header that proves to the server who sends.
    pub header: Option<SinkHeader>,
    /// The time after which a finding that persists is sent again, from `10m` to `7d`. Default:
    /// `12h`. An Alertmanager repeats by its own configuration.
    #[schemars(schema_with = "field_schemas::optional_interval")]
    pub repeat: Option<String>,
    /// The least severity of the findings that are sent.
    pub severity: NoticeSeverity,
}

/// A header with a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SinkHeader {
    /// Its name.
    #[serde(default = "authorization")]
    #[schemars(schema_with = "field_schemas::header_name")]
    pub name: String,
    /// The name in `secrets` of its whole value, for example `Bearer …`. That secret needs no roles
    /// or nodes.
    #[schemars(schema_with = "field_schemas::secret_name")]
    pub secret: String,
}

fn authorization() -> String {
    "Authorization".to_owned()
}

/// The form of the requests to a sink.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(schema_with = "field_schemas::sink_form")]
pub enum SinkForm {
    /// The API of an Alertmanager (`/api/v2/alerts`).
    Alertmanager,
    /// The requests that an Alertmanager sends to its webhooks (version 4).
    Webhook,
    /// A JSON object with a `text`, as chats take it, and the list of the findings.
    #[default]
    Plain,
}

impl SinkForm {
    /// The word in documents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alertmanager => "alertmanager",
            Self::Webhook => "webhook",
            Self::Plain => "plain",
        }
    }
}

/// The severity of a finding.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(schema_with = "field_schemas::notice_severity")]
pub enum NoticeSeverity {
    /// Something will fail, or could be better.
    #[default]
    Warning,
    /// Something is wrong.
    Failure,
}

impl NoticeSeverity {
    /// The word in documents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Failure => "failure",
        }
    }
}

impl NotifySink {
    /// The names of the secrets that the sink uses.
    pub fn secrets(&self) -> impl Iterator<Item = &String> {
        let header = self.header.as_ref().map(|header| &header.secret);
        self.url_secret.iter().chain(header)
    }
}

fn sinks(generator: &mut SchemaGenerator) -> Schema {
    let one = generator.subschema_for::<NotifySink>();
    json_schema!({"type": "object", "propertyNames": {"format": "sink-name"}, "additionalProperties": one})
}
