//! The function `log.read`: the journal of this host, for `ctl logs`.

use std::time::Duration;

use halite_errors::chain;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{done, failed};
use crate::host::effect::Command;
use crate::host::linux::command;
use crate::host::{HostError, Stop};
use crate::journal::JobAnswer;

/// The name of the function.
pub(super) const FUNCTION: &str = "log.read";
/// Limit of one run of journalctl.
const READ: Duration = Duration::from_secs(60);
/// Between two looks at a journal that is followed.
const PAUSE: Duration = Duration::from_secs(1);
/// The most lines of one answer.
const MOST: u32 = 10_000;
/// The beginning of the line in which journalctl prints its place in the journal.
const CURSOR: &str = "-- cursor: ";

/// The arguments.
#[derive(Debug, Deserialize)]
struct Arguments {
    /// A unit of systemd; none: the whole journal.
    unit: Option<String>,
    /// The number of the newest lines.
    lines: u32,
    /// Only lines of the last seconds.
    since_seconds: Option<u64>,
    /// Report new lines until the job is cancelled or its time is over.
    follow: bool,
}

/// Lines of a journal, and the place behind them.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    lines: Vec<String>,
    cursor: Option<String>,
}

/// Reads the journal. While it is followed, new lines go to `report`; `stop` ends it.
pub(super) async fn read(args_json: &str, stop: &Stop, report: impl Fn(Value)) -> JobAnswer {
    let args: Arguments = match serde_json::from_str(args_json) {
        Ok(args) => args,
        Err(error) => return failed(1, &format!("{FUNCTION}: {error}")),
    };
    match read_with(&args, stop, report).await {
        Ok(lines) => done(&json!({"lines": lines})),
        // The end of following may come while journalctl runs.
        Err(HostError::Stopped { .. }) if args.follow => done(&json!({"lines": []})),
        Err(error) => failed(1, &chain(&error)),
    }
}

async fn read_with(
    args: &Arguments,
    stop: &Stop,
    report: impl Fn(Value),
) -> Result<Vec<String>, HostError> {
    // The place before the first lines, in case that the unit has none.
    let mut cursor = match args.follow {
        true => newest(stop).await?,
        false => None,
    };
    let first = run(first(args), stop).await?;
    if !args.follow {
        return Ok(first.lines);
    }
    cursor = behind(&first, cursor, stop).await?;
    report(json!({"lines": first.lines}));
    loop {
        tokio::select! {
            biased;
            _ = stop.requested() => return Ok(Vec::new()),
            () = tokio::time::sleep(PAUSE) => {}
        }
        let next = run(next(args, cursor.as_deref()), stop).await?;
        if !next.lines.is_empty() {
            report(json!({"lines": next.lines}));
        }
        cursor = behind(&next, cursor, stop).await?;
    }
}

/// The place behind the lines of a part that began behind `before`. An output that was cut has
/// lines, the last of which says so, but no place: continue with the newest line, because the same
/// output would be cut again.
async fn behind(
    part: &Part,
    before: Option<String>,
    stop: &Stop,
) -> Result<Option<String>, HostError> {
    match &part.cursor {
        Some(cursor) => Ok(Some(cursor.clone())),
        None if part.lines.is_empty() => Ok(before),
        None => newest(stop).await,
    }
}

/// The place behind the newest line of the journal.
async fn newest(stop: &Stop) -> Result<Option<String>, HostError> {
    Ok(run(vec!["--lines=1".to_owned()], stop).await?.cursor)
}

/// The options for the first lines.
fn first(args: &Arguments) -> Vec<String> {
    let mut words = vec![format!("--lines={}", args.lines.min(MOST))];
    words.extend(
        args.since_seconds
            .map(|seconds| format!("--since=-{seconds}s")),
    );
    words.extend(unit(args));
    words
}

/// The options for the lines behind a place.
fn next(args: &Arguments, cursor: Option<&str>) -> Vec<String> {
    let behind = match cursor {
        Some(cursor) => format!("--after-cursor={cursor}"),
        None => "--boot".to_owned(),
    };
    [behind].into_iter().chain(unit(args)).collect()
}

fn unit(args: &Arguments) -> Option<String> {
    // One word with its option, so that a name that begins with a hyphen is a name.
    args.unit.as_ref().map(|unit| format!("--unit={unit}"))
}

async fn run(words: Vec<String>, stop: &Stop) -> Result<Part, HostError> {
    let fixed = [
        "journalctl",
        "--quiet",
        "--no-pager",
        "--output=short-iso",
        "--show-cursor",
    ];
    let argv = fixed.into_iter().map(str::to_owned).chain(words).collect();
    let command = Command {
        argv,
        ..Command::default()
    };
    let output = command::run_until(&command, Some(READ), stop).await?;
    if output.code != 0 {
        return Err(HostError::refused(format!(
            "journalctl failed: {}",
            output.stderr.trim()
        )));
    }
    Ok(part(&output.stdout))
}

fn part(text: &str) -> Part {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let cursor = lines.pop_if(|line| line.starts_with(CURSOR));
    Part {
        lines,
        cursor: cursor.map(|line| line[CURSOR.len()..].trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_is_not_a_line_of_the_journal() {
        let text = "2026-11-28T09:00:00+00:00 a kubelet[1]: x\n-- cursor: s=1;i=2\n";
        let found = part(text);
        assert_eq!(found.lines, ["2026-11-28T09:00:00+00:00 a kubelet[1]: x"]);
        assert_eq!(found.cursor.as_deref(), Some("s=1;i=2"));
        let none = part("");
        assert!(none.lines.is_empty() && none.cursor.is_none());
        // One that a program has written is not the last line.
        let hostile = part("a b[1]: c\n-- cursor: s=9\n-- cursor: s=1\n");
        assert_eq!(hostile.cursor.as_deref(), Some("s=1"));
        assert_eq!(hostile.lines.len(), 2);
    }

    #[test]
    fn a_unit_is_never_an_option_and_the_lines_have_a_limit() {
        let args = Arguments {
            unit: Some("--vacuum-size=1".to_owned()),
            lines: u32::MAX,
            since_seconds: Some(60),
            follow: true,
        };
        assert_eq!(
            first(&args),
            ["--lines=10000", "--since=-60s", "--unit=--vacuum-size=1"]
        );
        assert_eq!(
            next(&args, Some("s=1")),
            ["--after-cursor=s=1", "--unit=--vacuum-size=1"]
        );
    }
}
