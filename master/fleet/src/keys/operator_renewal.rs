//! Certificates of the present CA of identities for operators whose certificates an earlier one has
//! signed. Their keys are on their own machines, so each operator's `ctl` asks for one.

use halite_core::app::App;
use halite_core::ca;
use halite_core::ca::{HALITE, Profile};
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_proto::identity::{Identity, IdentityKind};
use halite_proto::pki::Inspected;
use halite_store::{Certificate, Millis, Operator};

use super::operators::find;

fn owner(name: &str) -> String {
    format!("operator:{name}")
}

/// Signs another certificate for the key of an operator; returns it (PEM) and its end, which is
/// that of the operator's access. May be repeated.
///
/// # Errors
/// The operator has another key or is not valid, or a state of a host makes the certificate, or the
/// store fails.
pub async fn renew_operator(
    app: &App,
    name: &str,
    csr_pem: &str,
) -> Result<(String, Millis), Refusal> {
    let fingerprint =
        ca::request_fingerprint(csr_pem).map_err(|error| Refusal::invalid(chain(&error)))?;
    let _turn = app.enrolling.lock().await;
    let now = app.clock.now();
    let known = find(app, name).await?.filter(|known| known.is_valid(now));
    let known = known.filter(|known| known.fingerprint.as_ref() == Some(&fingerprint));
    let Some(known) = known else {
        return Err(Refusal::conflict(format!(
            "cannot renew the certificate of {name}: no valid operator has this name and key; an administrator makes the operator \
             again: `ctl operator create`"
        )));
    };
    let Some(expires) = known.expires else {
        return Err(Refusal::conflict(format!(
            "cannot renew the certificate of {name} by this call: a highstate of its host does it"
        )));
    };
    let newest = app.store.newest_certificate(HALITE, &owner(name)).await?;
    let is_present = |newest: &Certificate| {
        let found = Inspected::from_pem(&newest.pem);
        app.cas.has_signed_identity(&newest.pem)
            && found.is_ok_and(|found| found.fingerprint == fingerprint)
    };
    if let Some(newest) = newest.filter(is_present) {
        return Ok((newest.pem, newest.not_after));
    }
    let identity = Identity::new(&app.config.cluster, IdentityKind::Operator, name)
        .map_err(|error| Refusal::invalid(chain(&error)))?;
    let profile = Profile {
        ends: Some(expires.div_euclid(1000)),
        ..Profile::identity(&identity)
    };
    let issued = app
        .cas
        .sign(HALITE, csr_pem, &profile, now)
        .map_err(|error| Refusal::invalid(chain(&error)))?;
    let ends = issued.not_after.saturating_mul(1000);
    app.store
        .put_certificate(&Certificate {
            serial: issued.serial,
            ca: HALITE.to_owned(),
            subject: issued.subject,
            owner: owner(name),
            job: None,
            tag: String::new(),
            created: now,
            not_after: ends,
            pem: issued.certificate_pem.clone(),
        })
        .await?;
    tracing::info!(operator = name, "operator's certificate renewed");
    Ok((issued.certificate_pem, ends))
}

/// The valid operators whose newest certificate is not of the CA of identities that signs now, by
/// name. Those whose certificates are made on their hosts are left out.
///
/// # Errors
/// The store fails.
pub async fn with_another_ca(app: &App) -> Result<Vec<String>, Refusal> {
    let now = app.clock.now();
    let mut found = Vec::new();
    for operator in app.store.operators().await? {
        let is_own = |operator: &Operator| operator.expires.is_some() && operator.is_valid(now);
        if !is_own(&operator) {
            continue;
        }
        let owner = owner(&operator.name);
        let newest = app.store.newest_certificate(HALITE, &owner).await?;
        if newest.is_none_or(|newest| !app.cas.has_signed_identity(&newest.pem)) {
            found.push(operator.name);
        }
    }
    Ok(found)
}
