//! Access to the master and the cluster: keys of minions, tokens, operators, kubeconfigs.

use halite_proto::ids::MinionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::document::document;
use crate::word::words;

words! {
    /// The state of a minion's key.
    KeyState {
        /// It waits for an operator's decision.
        Pending = "pending",
        /// Its minion may connect.
        Accepted = "accepted",
        /// An operator rejected it.
        Rejected = "rejected",
        /// It was deleted.
        Deleted = "deleted",
    }
}

/// The keys of all minions (`ctl key list`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyList {
    /// The keys, by minion.
    pub keys: Vec<MinionKey>,
}

document!(KeyList);

/// The key of a minion. The host's information about itself is unverified until the key is
/// accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MinionKey {
    /// The minion.
    #[schemars(with = "String")]
    pub minion: MinionId,
    /// The state: `pending`, `accepted` or `rejected`.
    pub state: KeyState,
    /// SHA-256 of the public key, in pairs of hexadecimal digits with colons.
    pub fingerprint: String,
    /// `true` if the minion is connected.
    pub connected: bool,
    /// The serial number of its newest certificate. Absent while the key is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The roles that its token allows; empty without a token.
    pub roles: Vec<String>,
    /// The host's full name. Absent if the host did not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The host's distribution, for example `Debian-12`. Absent if the host did not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// The address from which the key came. Absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The time at which the key first arrived.
    pub created: Time,
    /// The time of its last change.
    pub changed: Time,
}

/// The answer to a change of a key (`ctl key accept`, `reject`, `delete`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyChange {
    /// The minion.
    #[schemars(with = "String")]
    pub minion: MinionId,
    /// The new state: `accepted`, `rejected` or `deleted`.
    pub state: KeyState,
    /// The tokens of this minion that were revoked with the key; left out if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revoked_tokens: Vec<String>,
}

document!(KeyChange);

words! {
    /// The state of a token.
    TokenState {
        /// It can be used.
        Valid = "valid",
        /// It has expired.
        Expired = "expired",
        /// It has no uses left.
        UsedUp = "used up",
        /// It was revoked.
        Revoked = "revoked",
    }
}

/// The tokens for enrolment (`ctl token list`), without their secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenList {
    /// The tokens.
    pub tokens: Vec<Token>,
}

document!(TokenList);

/// A token for enrolment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// The public part of the token, which names it.
    pub token: String,
    /// The state: `valid`, `expired` or `used up`.
    pub state: TokenState,
    /// The time at which it expires.
    pub expires: Time,
    /// The number of remaining enrolments.
    pub uses_left: u32,
    /// The roles that a host that enrols with it may have; empty: the roles in its document.
    pub roles: Vec<String>,
    /// The only minion that may use it. Absent if any minion may.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub minion: Option<MinionId>,
    /// The time of its creation.
    pub created: Time,
    /// The operator who created it.
    pub operator: String,
}

/// The answer to `ctl token revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenRevocation {
    /// The public part of the token.
    pub token: String,
    /// The state: `revoked`.
    pub state: TokenState,
}

document!(TokenRevocation);

words! {
    /// The role of an operator, as in [`halite_proto::role::Role`]. Each includes the permissions
    /// of the previous ones.
    OperatorRole {
        /// Reads; sees references in place of secrets.
        Viewer = "viewer",
        /// Applies declared states. Reads no secret, and changes no key, token, node or operator.
        Deployer = "deployer",
        /// Does everything.
        Admin = "admin",
    }
}

words! {
    /// The state of an operator.
    OperatorState {
        /// The operator may call the master.
        Valid = "valid",
        /// The certificate has expired.
        Expired = "expired",
        /// The operator was revoked.
        Revoked = "revoked",
    }
}

/// The operators (`ctl operator list`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorList {
    /// The operators.
    pub operators: Vec<OperatorAccount>,
}

document!(OperatorList);

/// An operator: a person or program that calls the master.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorAccount {
    /// The name in the certificate.
    pub name: String,
    /// The role: `viewer`, `deployer` or `admin`.
    pub role: OperatorRole,
    /// The state: `valid`, `expired` or `revoked`.
    pub state: OperatorState,
    /// The end of the certificate. Absent for the operator of a host, whose certificate is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Time>,
    /// The time of the revocation. Absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Time>,
    /// The time at which the operator was created. Absent for the operator of a new store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    /// The operator who created this one.
    pub by: String,
    /// SHA-256 of the public key. Absent if any key with a certificate of this name may be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// The answer to `ctl operator revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorRevocation {
    /// The operator.
    pub name: String,
    /// The state: `revoked`.
    pub state: OperatorState,
}

document!(OperatorRevocation);

/// The kubeconfigs that have not expired, the newest first (`ctl kubeconfig list`). They cannot be
/// revoked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigList {
    /// The kubeconfigs.
    pub kubeconfigs: Vec<Kubeconfig>,
}

document!(KubeconfigList);

/// A certificate for the Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kubeconfig {
    /// The operator who has it.
    pub operator: String,
    /// The time of its creation.
    pub created: Time,
    /// The time at which it expires.
    pub expires: Time,
    /// The serial number of the certificate.
    pub serial: String,
}
