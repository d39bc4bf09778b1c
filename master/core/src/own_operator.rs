//! The operator that `halite-master init` creates on the master's host: root, who has the CAs
//! there. So a new key in that place restores access when all administrators are lost.

use halite_errors::chain;
use halite_proto::identity::IdentityKind;
use halite_proto::pki::Inspected;
use halite_proto::role::Role;
use halite_store::{Audit, Millis, Operator, Store, StoreError};

use crate::config::Config;

/// The certificate, below the configuration directory.
const CERTIFICATE: &str = "operator/operator.crt";

/// The fingerprint of the key that `halite-master init` created for this operator; `None` if it
/// created none.
pub fn fingerprint(config: &Config, name: &str) -> Option<String> {
    let (own, fingerprint) = read(config)?;
    (own == name).then_some(fingerprint)
}

/// Name and fingerprint in the certificate.
fn read(config: &Config) -> Option<(String, String)> {
    let pem = std::fs::read_to_string(config.config_dir.join(CERTIFICATE)).ok()?;
    let found = Inspected::from_pem(&pem).ok()?;
    let identity = found.identity().ok()?;
    let name = identity.id().to_owned();
    (identity.kind() == IdentityKind::Operator).then_some((name, found.fingerprint))
}

/// Makes the operator of `halite-master init` an administrator if it is unknown, or was revoked
/// with another key. A revoked key stays out.
pub async fn admit_own_operator(config: &Config, store: &Store, now: Millis) {
    let Some((name, fingerprint)) = read(config) else {
        return;
    };
    if let Err(error) = admit(store, &name, fingerprint, now).await {
        // The master must run all the more: the other administrators may still connect.
        tracing::error!(
            operator = name,
            error = chain(&error),
            "cannot store the operator of halite-master init"
        );
    }
}

async fn admit(
    store: &Store,
    name: &str,
    fingerprint: String,
    now: Millis,
) -> Result<(), StoreError> {
    let known = store.operators().await?;
    let known = known.iter().find(|operator| operator.name == name);
    let is_new = known.is_none_or(|known| {
        known.revoked.is_some() && known.fingerprint.as_ref() != Some(&fingerprint)
    });
    if !is_new {
        return Ok(());
    }
    let line = Audit {
        time: now,
        who: "halite-master init".to_owned(),
        method: "Operator/CreateOperator".to_owned(),
        what: format!("{name} as {}, by root on the master's host", Role::Admin),
        outcome: "ok".to_owned(),
    };
    store.append_audit(&line).await?;
    let operator = Operator {
        name: name.to_owned(),
        role: Role::Admin,
        fingerprint: Some(fingerprint),
        created: now,
        creator: "halite-master init".to_owned(),
        expires: None,
        revoked: None,
    };
    store.put_operator(&operator).await?;
    tracing::warn!(
        operator = name,
        "the operator of halite-master init may connect with its new key"
    );
    Ok(())
}
