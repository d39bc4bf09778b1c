//! The options of a step that makes jobs: the targets that it leaves out, and the size of its
//! batches.

use halite_core::declared::Direction;
use halite_fleet::jobs::batch::{Batch, BatchError};
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;

/// The options of a step; by default it leaves no target out and makes one job.
#[derive(Debug, Default)]
pub(super) struct StepOptions {
    /// `true` if targets that are not connected are left out.
    pub(super) skips_offline: bool,
    /// `true` if the target may match no minion.
    pub(super) skips_unmatched: bool,
    /// `true` if targets on bare hosts are left out.
    pub(super) skips_bare: bool,
    /// The earlier step that leaves out the targets on which it has succeeded.
    pub(super) but_done_by: Option<String>,
    batch: Batch,
}

impl StepOptions {
    /// Reads the options of a step.
    ///
    /// # Errors
    /// An argument has a value of the wrong type; all such arguments are named.
    pub(super) fn new(chunk: &Chunk) -> Result<Self, Failure> {
        let mut wrong = Vec::new();
        let mut skips = |argument, usual| {
            skips(chunk, argument, usual).unwrap_or_else(|failure| {
                wrong.push(failure.text());
                false
            })
        };
        let (skips_offline, skips_bare) = (skips("offline", "fail"), skips("bare", "apply"));
        let skips_unmatched = skips("unmatched", "fail");
        let batch = batch(Args::new(chunk).text("batch")?.as_deref()).unwrap_or_else(|failure| {
            wrong.push(failure.text());
            Batch::All
        });
        if !wrong.is_empty() {
            return Err(Failure::new(wrong.join("\n")));
        }
        Ok(Self {
            skips_offline,
            skips_unmatched,
            skips_bare,
            but_done_by: Args::new(chunk).text("but_done_by")?,
            batch,
        })
    }

    /// The size of a batch for this many minions; at least one.
    pub(super) fn batch_size(&self, minions: usize) -> usize {
        self.batch.size(minions)
    }
}

/// The direction of a step that gives hosts another bundle, from the argument `back`.
///
/// # Errors
/// The argument is not a boolean.
pub(super) fn direction(chunk: &Chunk) -> Result<Direction, Failure> {
    Ok(match Args::new(chunk).flag("back", false)? {
        true => Direction::Back,
        false => Direction::Forward,
    })
}

/// Returns whether the argument `offline` is `skip`.
///
/// # Errors
/// It is neither `fail` nor `skip`.
pub(super) fn skips_offline(chunk: &Chunk) -> Result<bool, Failure> {
    skips(chunk, "offline", "fail")
}

fn skips(chunk: &Chunk, argument: &str, usual: &str) -> Result<bool, Failure> {
    match Args::new(chunk).text(argument)?.as_deref() {
        None => Ok(false),
        Some("skip") => Ok(true),
        Some(other) if other == usual => Ok(false),
        Some(other) => Err(Failure::new(format!(
            "{argument}: {other:?} is neither `{usual}` nor `skip`"
        ))),
    }
}

/// A number of minions, or a percentage of all.
fn batch(given: Option<&str>) -> Result<Batch, Failure> {
    let read = given.map(str::parse::<Batch>).transpose();
    read.map(Option::unwrap_or_default)
        .map_err(|error: BatchError| Failure::new(format!("batch: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn options(args: &Value) -> Result<StepOptions, Failure> {
        let chunk = json!({"state": "halite", "fun": "state", "id": "step", "name": "step", "sls": "own",
            "source": {"file": "own.sls", "line": 1, "column": 1}, "args": args});
        StepOptions::new(&serde_json::from_value(chunk).unwrap())
    }

    #[test]
    fn batches_by_number_and_percentage() {
        let size = |batch: Value| options(&json!({"batch": batch})).unwrap().batch_size(5);
        assert_eq!(size(Value::Null), 5);
        assert_eq!(size(json!(2)), 2);
        assert_eq!(size(json!("40%")), 2);
        assert_eq!(size(json!("1%")), 1);
        assert_eq!(StepOptions::default().batch_size(0), 1);
    }

    #[test]
    fn all_options_that_are_not_understood_are_in_one_failure() {
        let args =
            json!({"offline": "maybe", "unmatched": "pass", "bare": "fail", "batch": "half"});
        let text = options(&args).unwrap_err().text();
        for wanted in [
            "offline: \"maybe\" is neither `fail` nor `skip`",
            "unmatched: \"pass\" is neither `fail` nor `skip`",
            "bare: \"fail\" is neither `apply` nor `skip`",
            "batch: \"half\" is neither a number nor a percentage",
        ] {
            assert!(text.contains(wanted), "{text}");
        }
        let usual = options(&json!({"offline": "fail", "bare": "apply"})).unwrap();
        assert!(!usual.skips_offline && !usual.skips_unmatched && !usual.skips_bare);
        let all = json!({"offline": "skip", "unmatched": "skip", "bare": "skip"});
        let all = options(&all).unwrap();
        assert!(all.skips_offline && all.skips_unmatched && all.skips_bare);
    }
}
