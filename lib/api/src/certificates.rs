//! Certificates that are to be renewed.

use halite_proto::ids::{JobId, MinionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::word::words;

words! {
    /// Who renews certificates.
    RenewalMode {
        /// The master.
        Automatic = "automatic",
        /// An operator; the master reports.
        Report = "report",
    }
}

words! {
    /// The state of a renewal.
    RenewalState {
        /// An operator renews.
        Reported = "reported",
        /// It waits.
        Waits = "waits",
        /// A job renews.
        Runs = "runs",
        /// The last attempt failed.
        Failed = "failed",
    }
}

/// The certificates on the hosts that are to be renewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateRenewals {
    /// Who renews: `automatic` or `report`, as declared in `certificates.renew`.
    pub renew: RenewalMode,
    /// The time of the last check of the hosts. Absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<Time>,
    /// The time of the next check. Absent before the master has planned it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_check: Option<Time>,
    /// The hosts with certificates in the last third of their time.
    pub hosts: Vec<CertificateRenewal>,
}

/// A host with certificates that are to be renewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateRenewal {
    /// The host.
    #[schemars(with = "String")]
    pub host: MinionId,
    /// The end of the certificate that ends first.
    pub ends: Time,
    /// The state: `reported`, `waits`, `runs` or `failed`.
    pub state: RenewalState,
    /// The reason why it waits or failed. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The job that renews. Absent unless the state is `runs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub job: Option<JobId>,
    /// The time of the next attempt. Absent unless the state is `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<Time>,
}
