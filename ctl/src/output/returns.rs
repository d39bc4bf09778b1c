//! The returns of state runs, as text for people.

use halite_states::low::{RunReturn, StateReturn};

use super::{Paint, changes, count, seconds, short_digest, table};

/// Options of the text.
#[derive(Debug, Clone, Copy, Default)]
pub struct View {
    /// `true` for a prediction.
    pub test: bool,
    /// `true` if unchanged states are shown, too.
    pub verbose: bool,
}

/// Formats one minion's run: a heading, then every state that failed or changed something.
pub fn run(name: &str, done: &RunReturn, view: View, paint: &Paint) -> String {
    let mut text = format!("{name}: {}\n", summary(done, view));
    for state in &done.states {
        let failed = state.result == Some(false);
        let changed = is_change(state);
        if failed || changed || view.verbose {
            text.push_str(&one(state, failed, changed, view, paint));
        }
    }
    text
}

/// Formats the summary of a run: `143 states, 2 to change, 1 failed (1.2 s)`.
pub fn summary(done: &RunReturn, view: View) -> String {
    let changed = if view.test {
        format!("{} to change", done.changed())
    } else {
        count(done.changed(), "change")
    };
    let number = |count: usize, what: &str| match count {
        0 => String::new(),
        count => format!(", {count} {what}"),
    };
    let failed = number(done.failed(), "failed") + &number(done.handled(), "failed and handled");
    // `sum` of an empty list is -0.
    let duration = done
        .states
        .iter()
        .fold(0.0, |sum, state| sum + state.duration)
        / 1000.0;
    format!(
        "{}, {changed}{failed} ({})",
        count(done.states.len(), "state"),
        seconds(duration)
    )
}

/// Returns true if a state changed something, or would change something.
pub fn is_change(state: &StateReturn) -> bool {
    state.result.is_none() || !state.changes.is_empty()
}

fn one(state: &StateReturn, failed: bool, changed: bool, view: View, paint: &Paint) -> String {
    let mark = match (failed, changed) {
        (true, _) => paint.bad("✗"),
        (false, true) => paint.notable(if view.test { "~" } else { "●" }),
        (false, false) => paint.good("✓"),
    };
    let id = if state.id == state.name {
        String::new()
    } else {
        format!("  [{}]", table::line(&state.id))
    };
    let mut text = format!(
        "  {mark} {} {}{id}  ({})\n",
        state.function,
        table::line(&short_digest(&state.name)),
        table::line(&state.sls)
    );
    if failed || view.verbose || state.changes.is_empty() {
        for line in state.comment.lines() {
            text.push_str(&format!("      {line}\n"));
        }
    }
    for line in changes::lines(&state.changes, *paint) {
        text.push_str(&format!("      {line}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn state(name: &str, result: Option<bool>, changed: bool) -> StateReturn {
        let changes = json!({"mode": {"old": "0644", "new": "0600"}})
            .as_object()
            .cloned()
            .unwrap_or_default();
        StateReturn {
            index: 0,
            id: name.into(),
            name: name.into(),
            function: "file.managed".into(),
            sls: "base.x".into(),
            result,
            changes: if changed { changes } else { Map::new() },
            comment: "said so".into(),
            start_time: String::new(),
            duration: 500.0,
            run_num: 0,
            ran: true,
            fail_run: true,
        }
    }

    #[test]
    fn only_failures_and_changes_are_shown() {
        let done = RunReturn {
            states: vec![
                state("/a", Some(true), false),
                state("/b", Some(true), true),
                state("/c", Some(false), false),
            ],
        };
        let text = run("w", &done, View::default(), &Paint { colour: false });
        assert_eq!(
            text,
            "w: 3 states, 1 change, 1 failed (1.5 s)\n  ● file.managed /b  (base.x)\n      mode: 0644 → 0600\n  ✗ \
             file.managed /c  (base.x)\n      said so\n"
        );
    }

    #[test]
    fn a_name_of_a_host_does_not_write_further_lines() {
        let hostile = state("/a\n  ✓ file.managed /b", Some(false), false);
        let done = RunReturn {
            states: vec![hostile],
        };
        let text = run("w", &done, View::default(), &Paint { colour: false });
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn a_handled_failure_is_shown_and_not_counted_as_one() {
        let mut failed = state("/a", Some(false), false);
        failed.fail_run = false;
        let done = RunReturn {
            states: vec![failed],
        };
        assert_eq!(
            run("w", &done, View::default(), &Paint { colour: false }),
            "w: 1 state, 0 changes, 1 failed and handled (0.5 s)\n  ✗ file.managed /a  (base.x)\n      said so\n"
        );
    }

    #[test]
    fn a_run_without_changes_has_a_summary() {
        let done = RunReturn {
            states: vec![state("/a", Some(true), false)],
        };
        assert_eq!(
            run("w", &done, View::default(), &Paint { colour: false }),
            "w: 1 state, 0 changes (0.5 s)\n"
        );
        let test = View {
            test: true,
            verbose: false,
        };
        assert_eq!(summary(&done, test), "1 state, 0 to change (0.5 s)");
    }
}
