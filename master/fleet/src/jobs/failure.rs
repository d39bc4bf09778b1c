//! Success of a minion's part of a job, and a description of its failure for people.

use halite_states::low::RunReturn;
use halite_store::{JobRow, RowState};
use serde_json::Value;

/// The number of failed states of one minion that a message names.
const NAMED: usize = 3;

/// Returns whether a part has returned successfully.
#[must_use]
pub fn succeeded(row: &JobRow) -> bool {
    row.state == RowState::Returned && row.retcode == Some(0)
}

/// Describes the failure of a part: minion, state and comment.
#[must_use]
pub fn failure(row: &JobRow) -> String {
    if !row.error.is_empty() {
        return if row.error.starts_with(row.minion.as_str()) {
            row.error.clone()
        } else {
            format!("{}: {}", row.minion, row.error)
        };
    }
    let value: Value = row
        .return_json
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let Ok(run) = serde_json::from_value::<RunReturn>(value.clone()) else {
        return format!("{}: failed with {value}", row.minion);
    };
    let bad: Vec<_> = run
        .states
        .iter()
        .filter(|state| state.result == Some(false) && state.fail_run)
        .collect();
    // Skip states that failed only because another one failed.
    let causes: Vec<_> = bad.iter().filter(|state| state.ran).collect();
    let shown = if causes.is_empty() {
        bad.iter().collect()
    } else {
        causes
    };
    let mut texts: Vec<String> = shown
        .iter()
        .take(NAMED)
        .map(|state| {
            format!(
                "{}: {} ({}, {}): {}",
                row.minion,
                state.id,
                state.function,
                state.sls,
                state.comment.trim()
            )
        })
        .collect();
    if bad.len() > texts.len() {
        texts.push(format!(
            "{}: {} more states failed",
            row.minion,
            bad.len() - texts.len()
        ));
    }
    texts.join("\n")
}

#[cfg(test)]
mod tests {
    use halite_core::names::minion;
    use halite_proto::ids::JobId;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failure_names_minion_state_and_comment() {
        let state = |id: &str, ran: bool, comment: &str| {
            json!({"index": 0, "__id__": id, "name": id, "function": "file.managed", "__sls__": "halite.base.etcd",
                "result": false, "changes": {}, "comment": comment, "start_time": "", "duration": 0.0,
                "__run_num__": 0, "__state_ran__": ran})
        };
        let mut row = JobRow::queued(&JobId::from_number(1), &minion("worker-1"), None);
        row.return_json = Some(
            json!({"states": [state("manifest", true, "no space left on /etc"), state("later", false, "requisite failed")]})
                .to_string(),
        );
        let text = failure(&row);
        assert_eq!(
            text,
            "worker-1: manifest (file.managed, halite.base.etcd): no space left on /etc\nworker-1: 1 more states failed"
        );
        row.error = "worker-1 is not connected".into();
        assert_eq!(failure(&row), "worker-1 is not connected");
    }
}
