//! The certificates that Halite makes on the hosts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::field_schemas;

/// The certificates that Halite makes on the hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Certificates {
    /// The way in which a certificate near its end is renewed: with `automatic`, the master renews
    /// it in its last third; with `report`, `ctl health` and `ctl status` report it, and you renew
    /// it. A highstate renews it in any case.
    pub renew: Renewal,
}

/// The way in which a certificate near its end is renewed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(schema_with = "field_schemas::renewal")]
pub enum Renewal {
    /// The master renews it in its last third.
    #[default]
    Automatic,
    /// `ctl health` and `ctl status` report it, and an operator renews it.
    Report,
}
