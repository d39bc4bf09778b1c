//! The function `cmd.run`: a shell command that an operator has a minion run.

use std::time::Duration;

use halite_errors::chain;
use serde_json::{Value, json};

use super::failed;
use crate::host::Stop;
use crate::host::effect::Command;
use crate::host::linux::command;
use crate::journal::JobAnswer;
use crate::modules::UMASK;

/// The limit of a command without its own.
const COMMAND: Duration = Duration::from_secs(300);

/// Runs the command of `{"cmd": "…", "cwd", "runas", "timeout"}`, of Salt's `{"arg": ["…"]}`, or
/// the line itself; `stop` ends it.
pub(super) async fn run(args_json: &str, stop: &Stop) -> JobAnswer {
    let args: Value = serde_json::from_str(args_json).unwrap_or(Value::Null);
    let text = |key: &str| args.get(key).and_then(Value::as_str).map(str::to_owned);
    let first = |list: Option<&Value>| {
        list.and_then(|l| l.get(0))
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let line = args
        .as_str()
        .map(str::to_owned)
        .or_else(|| text("cmd"))
        .or_else(|| text("name"));
    let Some(line) = line
        .or_else(|| first(args.get("arg")))
        .or_else(|| first(Some(&args)))
    else {
        return failed(1, "cmd.run needs the command: {\"cmd\": \"…\"}");
    };
    let command = Command {
        argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), line],
        cwd: text("cwd"),
        runas: text("runas"),
        timeout: args.get("timeout").and_then(Value::as_u64),
        umask: Some(UMASK),
        ..Command::default()
    };
    match command::run_until(&command, Some(COMMAND), stop).await {
        Ok(output) => JobAnswer {
            retcode: i32::from(output.code != 0),
            return_json:
                json!({"retcode": output.code, "stdout": output.stdout, "stderr": output.stderr})
                    .to_string(),
            error: String::new(),
        },
        Err(error) => failed(1, &chain(&error)),
    }
}
