//! `ctl audit`: the audit log, filtered.

use halite_api::{AuditLine, AuditLog, Time};
use halite_core::app::App;
use halite_core::refusal::Refusal;
use halite_proto::v1::ReadAuditRequest;
use halite_store::AuditFilter;

/// The number of lines: default and maximum.
const LINES: (u32, u32) = (50, 10_000);
/// Callers of lines that belong to no call.
const OTHERS: [&str; 3] = ["handshake", "summary", "upkeep"];

/// Returns the requested audit lines, the newest first.
///
/// # Errors
/// The action does not exist, or the store failed.
pub async fn read(app: &App, request: &ReadAuditRequest) -> Result<AuditLog, Refusal> {
    let lines = app.store.audit(&filter(request)?).await?;
    let lines = lines.into_iter().map(|line| AuditLine {
        time: Time::from_millis(line.time),
        who: line.who,
        action: line.method,
        what: line.what,
        outcome: line.outcome,
    });
    Ok(AuditLog {
        audit: lines.collect(),
    })
}

fn filter(request: &ReadAuditRequest) -> Result<AuditFilter, Refusal> {
    let time = |time: i64| (time != 0).then_some(time);
    let operator = request.operator.as_str();
    Ok(AuditFilter {
        since: time(request.since),
        until: time(request.until),
        who: (!operator.is_empty()).then(|| format!("operator:{operator}")),
        method: match request.action.as_str() {
            "" => None,
            action => Some(method(action)?),
        },
        limit: match request.limit {
            0 => LINES.0,
            limit => limit.min(LINES.1),
        },
    })
}

/// All actions, in the audit's form: `Operator/Run`.
fn methods() -> impl Iterator<Item = &'static str> {
    let calls = halite_proto::METHODS.iter();
    calls
        .filter_map(|path| path.strip_prefix("/halite.v1."))
        .chain(OTHERS)
}

/// The action with this name: `Operator/ChangeKey`, or `ChangeKey` for short, in any case.
fn method(name: &str) -> Result<String, Refusal> {
    let is_named = |method: &&str| {
        let short = method.rsplit('/').next();
        method.eq_ignore_ascii_case(name) || short.is_some_and(|s| s.eq_ignore_ascii_case(name))
    };
    let found = methods().find(is_named);
    found.map(str::to_owned).ok_or_else(|| {
        let known: Vec<&str> = methods().collect();
        Refusal::invalid(format!(
            "the audit has no action {name:?}; its actions are {}",
            known.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_action_has_one_short_name() {
        let short: BTreeSet<&str> = methods()
            .filter_map(|method| method.rsplit('/').next())
            .collect();
        assert_eq!(short.len(), methods().count());
        for (name, wanted) in [
            ("ChangeKey", "Operator/ChangeKey"),
            ("changekey", "Operator/ChangeKey"),
            ("Operator/Run", "Operator/Run"),
            ("handshake", "handshake"),
        ] {
            assert_eq!(method(name).unwrap(), wanted);
        }
        let refused = method("ChangeKeys").unwrap_err();
        assert!(refused.message.contains("Operator/ChangeKey"), "{refused}");
    }

    #[test]
    fn fields_that_are_not_set_do_not_filter() {
        let all = filter(&ReadAuditRequest::default()).unwrap();
        assert_eq!(all, AuditFilter::newest(50));
        let request = ReadAuditRequest {
            limit: 1_000_000,
            since: 5,
            until: 9,
            operator: "alice".to_owned(),
            action: "run".to_owned(),
        };
        let wanted = AuditFilter {
            since: Some(5),
            until: Some(9),
            who: Some("operator:alice".to_owned()),
            method: Some("Operator/Run".to_owned()),
            limit: 10_000,
        };
        assert_eq!(filter(&request).unwrap(), wanted);
    }
}
