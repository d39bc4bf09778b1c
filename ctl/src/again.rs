//! The command line that repeats a command. The master joins a running run, or resumes a stopped
//! one, only if all words are the same.

use std::fmt::Display;
use std::time::Duration;

use halite_api::Run;
use halite_cli::duration::shown;
use serde_json::Value;

use crate::cli::{DrainedPods, NodeRemove};

/// The default time limit of a drain, which needs no option.
const DRAIN: Duration = Duration::from_mins(15);

/// A command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine(String);

impl CommandLine {
    /// A command with its fixed words.
    pub fn new(command: impl Into<String>) -> Self {
        Self(command.into())
    }

    /// Adds a flag if it was given.
    pub fn flag(mut self, given: bool, name: &str) -> Self {
        if given {
            self.0.push_str(&format!(" --{name}"));
        }
        self
    }

    /// Adds an option with its value, if there is one.
    pub fn option(mut self, name: &str, value: Option<impl Display>) -> Self {
        if let Some(value) = value {
            let value = quoted(&value.to_string());
            self.0.push_str(&format!(" --{name} {value}"));
        }
        self
    }

    /// Adds an option with a list, unless it is empty.
    pub fn list(self, name: &str, values: &[String]) -> Self {
        self.option(name, (!values.is_empty()).then(|| values.join(",")))
    }

    /// Adds the time limit of a drain, unless it is the default.
    pub fn drain_limit(self, name: &str, limit: Duration) -> Self {
        let given = (limit != DRAIN).then(|| shown(limit));
        self.option(name, given)
    }

    /// Adds the options of a drain.
    pub fn pods(self, pods: &DrainedPods) -> Self {
        self.flag(pods.delete_emptydir_data, "delete-emptydir-data")
            .option("grace-period", pods.grace_period.map(shown))
            .drain_limit("timeout", pods.timeout)
    }

    /// Adds the options of a host that leaves the cluster.
    pub fn departure(self, args: &NodeRemove) -> Self {
        self.flag(args.force, "force")
            .option("cluster", args.force.then_some(&args.cluster))
            .flag(args.packages, "packages")
            .flag(args.wipe_data, "wipe-data")
            .pods(&args.pods)
    }

    /// The text.
    pub fn text(self) -> String {
        self.0
    }
}

/// The command that repeats a run with its values over the pillar.
pub fn orchestration(
    sls: &str,
    pillar: impl IntoIterator<Item = impl Display>,
    test: bool,
) -> CommandLine {
    let command = CommandLine::new(format!("ctl orchestrate {sls}"));
    let pillar = pillar.into_iter();
    let command = pillar.fold(command, |command, value| {
        command.option("pillar", Some(value))
    });
    command.flag(test, "test")
}

/// The command that repeats a recorded run. An operator to whom its values are withheld gets it
/// without them.
pub fn same_run(run: &Run) -> CommandLine {
    let has_values = |pillar: &&Value| pillar.as_object().is_some_and(|map| !map.is_empty());
    orchestration(&run.sls, run.pillar.iter().filter(has_values), run.test)
}

/// A value as a word of a shell.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    if !value.is_empty() && value.chars().all(is_plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use halite_api::{RunStatus, Time};
    use halite_proto::ids::JobId;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_command_to_repeat_a_run_has_its_values_and_its_test() {
        let texts = ["node=worker-1", r#"{"a": [1]}"#];
        assert_eq!(
            orchestration("custom.roll", texts, true).text(),
            r#"ctl orchestrate custom.roll --pillar node=worker-1 --pillar '{"a": [1]}' --test"#
        );
        let mut run = Run {
            run: JobId::from_number(1),
            sls: "custom.roll".to_owned(),
            pillar: Some(json!({"node": "worker-1"})),
            test: true,
            operator: "alice".to_owned(),
            status: RunStatus::Running,
            cancelled_by: None,
            paused_by: None,
            created: Time::from_millis(1),
            changed: Time::from_millis(1),
            withheld: None,
            steps: Vec::new(),
        };
        assert_eq!(
            same_run(&run).text(),
            r#"ctl orchestrate custom.roll --pillar '{"node":"worker-1"}' --test"#
        );
        (run.pillar, run.test) = (Some(json!({})), false);
        assert_eq!(same_run(&run).text(), "ctl orchestrate custom.roll");
    }
}
