//! `ctl operator` and `ctl audit`.

use anyhow::Context as _;
use halite_api::{
    AuditLine, AuditLog, NewOperator, OperatorAccount, OperatorList, OperatorRevocation, to_value,
};
use halite_proto::pki::PrivateKey;
use halite_proto::v1;
use jiff::{SignedDuration, Timestamp};

use crate::FAILED;
use crate::cli::{Audit, Global, Operator, OperatorCreate};
use crate::client;
use crate::client::{document, refused};
use crate::confirm::confirmed;
use crate::identity::NewIdentity;
use crate::output::{Screen, or_dash, path_text, table};

/// Runs `ctl operator`.
///
/// # Errors
/// The master does not answer or refuses, or the identity cannot be written.
pub async fn run(global: &Global, command: Operator, screen: &mut Screen) -> anyhow::Result<u8> {
    let mut operator = client::operator(global).await?;
    match command {
        Operator::Create(args) => {
            let made = create(&mut operator, args).await?;
            screen.answer(&to_value(&made), |_| new_operator(&made))?;
        }
        Operator::List => {
            let answer = operator.list_operators(v1::ListOperatorsRequest {}).await;
            let operators: OperatorList = document(answer)?;
            screen.answer(&to_value(&operators), |_| list(&operators))?;
        }
        Operator::Revoke { name, yes } => {
            let question =
                format!("Revoke {name}? Its access and its running commands end at once.");
            if !confirmed(&question, yes, screen)? {
                return Ok(FAILED);
            }
            let request = v1::RevokeOperatorRequest { name };
            let revoked: OperatorRevocation = document(operator.revoke_operator(request).await)?;
            screen.answer(&to_value(&revoked), |_| revocation(&revoked))?;
        }
    }
    Ok(0)
}

/// Creates an operator. The key is created here and only stored in the file; the master gets a
/// certificate request.
async fn create(
    operator: &mut client::Operator,
    args: OperatorCreate,
) -> anyhow::Result<NewOperator> {
    let key = PrivateKey::generate().context("cannot make a key")?;
    let csr_pem = key
        .request(&args.name)
        .context("cannot make a certificate request")?;
    // Before the call: an operator whose key cannot be written would be useless.
    let file = NewIdentity::begin(&args.out)?;
    let request = v1::CreateOperatorRequest {
        name: args.name.clone(),
        role: args.role.clone(),
        days: args.ttl,
        csr_pem,
    };
    let reply = operator.create_operator(request).await;
    let reply = reply.map_err(|status| refused(&status))?.into_inner();
    file.finish(&key, &reply.certificate_pem, &reply.ca_pem)
        .with_context(|| {
            format!(
                "the operator was made without its file; remove it with ctl operator revoke {}",
                args.name
            )
        })?;
    created(args, &reply)
}

/// The new operator, with the master's reply.
///
/// # Errors
/// Its end is not a time.
pub fn created(
    args: OperatorCreate,
    reply: &v1::CreateOperatorReply,
) -> anyhow::Result<NewOperator> {
    Ok(NewOperator {
        name: args.name,
        role: args.role.into(),
        expires: client::time(&reply.expires)?,
        identity: path_text(&args.out),
    })
}

/// Formats a new operator.
pub fn new_operator(made: &NewOperator) -> String {
    table::fields(&[
        ("name", made.name.clone()),
        ("role", made.role.to_string()),
        ("expires", made.expires.to_string()),
        ("identity", made.identity.clone()),
    ])
}

/// Formats operators as a table.
pub fn list(operators: &OperatorList) -> String {
    let heading = ["name", "role", "state", "expires", "created", "by"];
    let row = |operator: &OperatorAccount| {
        vec![
            operator.name.clone(),
            operator.role.to_string(),
            operator.state.to_string(),
            or_dash(operator.expires),
            or_dash(operator.created),
            operator.by.clone(),
        ]
    };
    table::rows(&heading, operators.operators.iter().map(row))
}

/// Formats the revocation of an operator.
pub fn revocation(revoked: &OperatorRevocation) -> String {
    format!("the operator {} is {}\n", revoked.name, revoked.state)
}

/// Runs `ctl audit`.
///
/// # Errors
/// A time is invalid, or the master does not answer or refuses.
pub async fn audit(global: &Global, args: Audit, screen: &mut Screen) -> anyhow::Result<u8> {
    let now = Timestamp::now();
    let millis = |option: &str, text: Option<&String>| -> anyhow::Result<i64> {
        text.map_or(Ok(0), |text| Ok(time(option, text, now)?.as_millisecond()))
    };
    let request = v1::ReadAuditRequest {
        limit: args.limit,
        since: millis("--since", args.since.as_ref())?,
        until: millis("--until", args.until.as_ref())?,
        operator: args.operator.unwrap_or_default(),
        action: args.action.unwrap_or_default(),
    };
    let mut operator = client::operator(global).await?;
    let log: AuditLog = document(operator.read_audit(request).await)?;
    screen.answer(&to_value(&log), |_| lines(&log))?;
    Ok(0)
}

/// Formats lines of the audit log as a table.
pub fn lines(log: &AuditLog) -> String {
    let heading = ["time", "who", "action", "what", "outcome"];
    let row = |line: &AuditLine| {
        vec![
            line.time.to_string(),
            line.who.clone(),
            line.action.clone(),
            line.what.clone(),
            line.outcome.clone(),
        ]
    };
    table::rows(&heading, log.audit.iter().map(row))
}

/// Reads a time: RFC 3339, or a time before now such as `2h` or `1d`.
fn time(option: &str, text: &str, now: Timestamp) -> anyhow::Result<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let bad = || {
        format!(
            "cannot read {option} {text}: give a time such as 2026-11-23T08:00:00Z, or one before now such as 30m, 2h or 72h"
        )
    };
    let before: SignedDuration = text.parse().ok().with_context(bad)?;
    anyhow::ensure!(!before.is_negative(), bad());
    now.checked_sub(before).ok().with_context(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_absolute_or_before_now() {
        let now: Timestamp = "2026-11-23T08:00:00Z".parse().unwrap();
        for (text, wanted) in [
            ("2026-11-22T01:02:03Z", "2026-11-22T01:02:03Z"),
            ("2026-11-22T01:02:03+01:00", "2026-11-22T00:02:03Z"),
            ("2h", "2026-11-23T06:00:00Z"),
            ("72h", "2026-11-20T08:00:00Z"),
            ("1h 30m", "2026-11-23T06:30:00Z"),
        ] {
            assert_eq!(time("--since", text, now).unwrap().to_string(), wanted);
        }
        for bad in ["", "x", "-1h", "2026-11-22", "9999999999h"] {
            let error = time("--since", bad, now).unwrap_err().to_string();
            assert!(error.contains("--since"), "{bad}: {error}");
        }
    }
}
