//! Creates, lists and revokes operators. The certificate contains the name; the store has the role
//! and the only key that the name may have, and the gate checks both for each connection.

use halite_api::{OperatorAccount, OperatorList, OperatorRevocation, OperatorState, Time};
use halite_core::app::App;
use halite_core::ca::{HALITE, Profile};
use halite_core::gate::Removal;
use halite_core::own_operator;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_proto::identity::{Identity, IdentityKind, is_root_of_host};
use halite_proto::role::Role;
use halite_store::{Certificate, Millis, Operator};

/// The validity of an operator's certificate in days: default and maximum.
const DAYS: (u32, u32) = (90, 365);

/// A request for a new operator.
#[derive(Debug, Clone, Default)]
pub struct NewOperator {
    /// The name.
    pub name: String,
    /// The name of the role.
    pub role: String,
    /// Validity in days; 0 for the default.
    pub days: u32,
    /// Certificate request, PEM.
    pub csr_pem: String,
}

/// Creates an operator; returns the certificate, PEM, and its end.
///
/// # Errors
/// The name, role, validity or request is invalid, the name belongs to a valid operator, or the
/// store fails.
pub async fn create(
    app: &App,
    by: &str,
    wanted: &NewOperator,
) -> Result<(String, Millis), Refusal> {
    let name = wanted.name.as_str();
    let identity = Identity::new(&app.config.cluster, IdentityKind::Operator, name)
        .map_err(|error| Refusal::invalid(chain(&error)))?;
    if is_root_of_host(name) {
        return Err(Refusal::invalid(format!(
            "cannot create {name}: operators of that form are created by the states of their hosts; use another name"
        )));
    }
    let role = role(&wanted.role)?;
    let days = match wanted.days {
        0 => DAYS.0,
        days if days <= DAYS.1 => days,
        days => {
            return Err(Refusal::invalid(format!(
                "cannot create an operator for {days} days: the maximum is {}; create the operator again after that time",
                DAYS.1
            )));
        }
    };
    let _turn = app.enrolling.lock().await;
    let now = app.clock.now();
    let known = find(app, name).await?;
    if known.is_some_and(|known| known.is_valid(now)) {
        return Err(Refusal::conflict(format!(
            "the operator {name} already exists; for another key or role: ctl operator revoke {name}, then create it again"
        )));
    }
    let profile = Profile {
        days,
        ..Profile::identity(&identity)
    };
    let issued = app
        .cas
        .sign(HALITE, &wanted.csr_pem, &profile, now)
        .map_err(|error| Refusal::invalid(chain(&error)))?;
    let expires = issued.not_after.saturating_mul(1000);
    app.store
        .put_certificate(&Certificate {
            serial: issued.serial,
            ca: HALITE.to_owned(),
            subject: issued.subject,
            owner: format!("operator:{name}"),
            job: None,
            tag: String::new(),
            created: now,
            not_after: expires,
            pem: issued.certificate_pem.clone(),
        })
        .await?;
    let operator = Operator {
        name: name.to_owned(),
        role,
        fingerprint: Some(issued.fingerprint),
        created: now,
        creator: by.to_owned(),
        expires: Some(expires),
        revoked: None,
    };
    app.store.put_operator(&operator).await?;
    app.gate.open_for_operator(&operator);
    tracing::info!(operator = name, %role, by, "operator made");
    Ok((issued.certificate_pem, expires))
}

fn role(name: &str) -> Result<Role, Refusal> {
    Role::find(name).ok_or_else(|| {
        let known: Vec<&str> = Role::ALL.iter().map(|role| role.as_str()).collect();
        Refusal::invalid(format!(
            "unknown role {name:?}; the roles are {}",
            known.join(", ")
        ))
    })
}

pub(super) async fn find(app: &App, name: &str) -> Result<Option<Operator>, Refusal> {
    let all = app.store.operators().await?;
    Ok(all.into_iter().find(|operator| operator.name == name))
}

/// All operators.
///
/// # Errors
/// The store fails.
pub async fn list_operators(app: &App) -> Result<OperatorList, Refusal> {
    let now = app.clock.now();
    let operators = app.store.operators().await?;
    let shown = operators.into_iter().map(|operator| OperatorAccount {
        state: match &operator {
            Operator {
                revoked: Some(_), ..
            } => OperatorState::Revoked,
            operator if operator.is_valid(now) => OperatorState::Valid,
            _ => OperatorState::Expired,
        },
        name: operator.name,
        role: operator.role.as_str().into(),
        expires: operator.expires.map(Time::from_millis),
        revoked: operator.revoked.map(Time::from_millis),
        // Unknown for the operator of a new store.
        created: (operator.created > 0).then(|| Time::from_millis(operator.created)),
        by: operator.creator,
        fingerprint: operator.fingerprint,
    });
    Ok(OperatorList {
        operators: shown.collect(),
    })
}

/// Ends an operator's access and connections. Does nothing if the operator is already revoked.
///
/// # Errors
/// The operator does not exist, is `by` themselves or the last administrator, or the store fails:
/// then the operator is cut off until the master restarts.
pub async fn revoke(app: &App, by: &str, name: &str) -> Result<OperatorRevocation, Refusal> {
    let now = app.clock.now();
    if by == name && app.gate.has_other_admin(name, now) {
        return Err(Refusal::conflict(format!(
            "cannot revoke {name}: the answer would not reach you; another administrator can"
        )));
    }
    // Before anything that can wait or fail: the store may be slow or full.
    if app.gate.remove_operator(name, now) == Removal::LastAdmin {
        return Err(Refusal::conflict(format!(
            "cannot revoke {name}, the last administrator; first: ctl operator create NAME --role admin"
        )));
    }
    record(app, name, now).await.map_err(|error| {
        // For a missing operator, nothing was cut off.
        if error.kind == halite_core::refusal::RefusalKind::NotFound {
            return error;
        }
        Refusal::new(
            error.kind,
            format!(
                "{name} is cut off until the master restarts, but the order cannot be stored: {}; then repeat the order",
                error.message
            ),
        )
    })?;
    tracing::info!(operator = name, by, "operator revoked");
    Ok(OperatorRevocation {
        name: name.to_owned(),
        state: OperatorState::Revoked,
    })
}

/// Stores a revocation.
async fn record(app: &App, name: &str, now: Millis) -> Result<(), Refusal> {
    let _turn = app.enrolling.lock().await;
    let mut operator = find(app, name).await?.ok_or_else(|| {
        Refusal::not_found(format!(
            "there is no operator {name:?}; `ctl operator list` shows them"
        ))
    })?;
    if operator.revoked.is_some() {
        return Ok(());
    }
    operator.revoked = Some(now);
    if operator.fingerprint.is_none() {
        // It identifies a key that root makes later as a different one.
        operator.fingerprint = own_operator::fingerprint(&app.config, name);
    }
    app.store.put_operator(&operator).await?;
    Ok(())
}
