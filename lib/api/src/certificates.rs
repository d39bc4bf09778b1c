//! The certificates of a cluster, and those that are due for renewal.

use halite_proto::ids::{JobId, MinionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::document::document;
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
    pub expires: Time,
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

words! {
    /// The actor that renews a certificate.
    Renewer {
        /// The master, in the last third of the certificate's time.
        Master = "master",
        /// The program that uses it: a minion, a kubelet, the master.
        Owner = "owner",
        /// An operator, by a command.
        Operator = "operator",
        /// Halite does not renew it.
        Nothing = "none",
    }
}

words! {
    /// The state of the next CA of a name.
    PreparedState {
        /// Its key exists, and a request for its certificate.
        Requested = "requested",
        /// The next rotation takes it.
        Imported = "imported",
        /// It was removed.
        Discarded = "discarded",
    }
}

/// The next CA of a name, which an operator has prepared (`ctl certs import`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreparedCa {
    /// Its name: `kubernetes`, `etcd` or `front-proxy`.
    pub name: String,
    /// Its state: `requested`, `imported`, or as the answer of `--discard` `discarded`.
    pub state: PreparedState,
    /// The name in its certificate. Absent unless it is imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The end of its certificate. Absent as `subject`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Time>,
    /// The whole days until then. Absent as `subject`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days_left: Option<i64>,
    /// A limit of its certificate that a later rotation meets. Absent without one, and in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

document!(PreparedCa);

/// The request for the certificate of the next CA of a name (`ctl certs csr`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaRequest {
    /// Its name: `kubernetes`, `etcd` or `front-proxy`.
    pub name: String,
    /// The request, PEM. The master keeps its key.
    pub request: String,
}

document!(CaRequest);

/// The certificates of the cluster (`ctl certs list`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateList {
    /// The CAs of the cluster, two of a name while one is rotated; empty if a target was given.
    pub authorities: Vec<CertificateAuthority>,
    /// The next CAs that an operator has requested or imported, and no rotation has taken yet.
    /// Absent without any, and if a target was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepared: Vec<PreparedCa>,
    /// The identities of the master and of operators; empty if a target was given.
    pub identities: Vec<IdentityCertificate>,
    /// The certificates on the hosts, by host. Copies of the CAs above are left out.
    pub hosts: Vec<HostCertificates>,
    /// The hosts whose minions did not answer: their certificates are unknown.
    #[schemars(with = "Vec<String>")]
    pub silent: Vec<MinionId>,
}

document!(CertificateList);

/// A CA of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateAuthority {
    /// Its name: `halite`, `site`, `kubernetes`, `etcd` or `front-proxy`.
    pub name: String,
    /// The name in its certificate.
    pub subject: String,
    /// The end of its certificate.
    pub expires: Time,
    /// The whole days until then; negative if it has expired.
    pub days_left: i64,
    /// `false` if it is only trusted, while the other CA of this name signs: the CA is being
    /// rotated.
    pub signs: bool,
}

/// The certificate of the master or of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityCertificate {
    /// Its owner: `master`, or `operator NAME`.
    pub owner: String,
    /// The end of the certificate.
    pub expires: Time,
    /// The whole days until then; negative if it has expired.
    pub days_left: i64,
    /// The CA that signed it.
    pub signed_by: String,
    /// The actor that renews it: `master`, `owner`, `operator` or `none`.
    pub renewed_by: Renewer,
}

/// The certificates on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostCertificates {
    /// The host.
    #[schemars(with = "String")]
    pub host: MinionId,
    /// The certificates, by file.
    pub certificates: Vec<HostCertificate>,
}

/// A certificate on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostCertificate {
    /// The file that contains it.
    pub file: String,
    /// The name in it. Absent if the minion is of an earlier version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The end of the certificate.
    pub expires: Time,
    /// The whole days until then; negative if it has expired.
    pub days_left: i64,
    /// The CA that signed it: its name, or for a foreign one its subject. Absent as `subject`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<String>,
    /// The actor that renews it: `master`, `owner`, `operator` or `none`.
    pub renewed_by: Renewer,
}
