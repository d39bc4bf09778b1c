//! Certificates that are due for renewal.

use halite_proto::ids::{JobId, MinionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::word::words;

words! {
    /// The actor that renews certificates.
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
        /// It is left to an operator.
        Reported = "reported",
        /// It has not started yet.
        Waits = "waits",
        /// A job is renewing them.
        Runs = "runs",
        /// The last attempt failed.
        Failed = "failed",
    }
}

/// The certificates on the hosts that are due for renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateRenewals {
    /// The actor that renews: `automatic` or `report`, as declared in `certificates.renew`.
    pub renew: RenewalMode,
    /// The time of the last check of the hosts. Absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<Time>,
    /// The time of the next check. Absent before the master has planned it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_check: Option<Time>,
    /// The hosts with certificates in the last third of their lifetime.
    pub hosts: Vec<CertificateRenewal>,
}

/// A host with certificates that are due for renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateRenewal {
    /// The host.
    #[schemars(with = "String")]
    pub host: MinionId,
    /// The end of the certificate that expires first.
    pub ends: Time,
    /// The state: `reported`, `waits`, `runs` or `failed`.
    pub state: RenewalState,
    /// The reason for the wait or the failure. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The job that renews them. Absent unless the state is `runs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub job: Option<JobId>,
    /// The time of the next attempt. Absent unless the state is `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<Time>,
}
