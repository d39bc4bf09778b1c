//! `ctl logs`: the journal of a host, read by its minion. The master hides secrets in it, as in every
//! return.

use std::io;
use std::io::Write as _;

use anyhow::bail;
use halite_cli::output::CLOSED_PIPE;
use halite_proto::v1;
use serde::Deserialize;
use serde_json::json;

use crate::FAILED;
use crate::cli::{Global, Logs};
use crate::client;
use crate::client::Operator;
use crate::event_stream::{Heard, follow, kind};
use crate::output::Screen;

/// The function of the minion.
const FUNCTION: &str = "log.read";
/// The time after which a minion stops following, in seconds: a client that was lost cannot say so.
const FOLLOWED: u32 = 60 * 60;

/// An event of the job.
#[derive(Default, Deserialize)]
#[serde(default)]
struct LogEvent {
    jid: String,
    /// Of a progress event: the new lines.
    state: Lines,
    /// Of the return.
    #[serde(rename = "return")]
    value: Option<Lines>,
    success: bool,
    error: String,
}

/// Lines of a journal.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lines {
    lines: Vec<String>,
}

/// The end of the command.
enum End {
    /// The minion has answered.
    Returned { error: Option<String> },
    /// The reader of standard output has gone.
    ClosedPipe,
}

/// Runs `ctl logs`.
///
/// # Errors
/// The master does not answer or refuses, or the minion cannot read its journal.
pub async fn run(global: &Global, args: &Logs, screen: &mut Screen) -> anyhow::Result<u8> {
    if args.follow && !screen.is_for_people() {
        bail!("cannot follow a journal as one document; leave --follow or --output out");
    }
    let request = request(args);
    let start = async |mut operator: Operator| {
        let answer = operator.run(request.clone()).await;
        answer.map(|answer| answer.into_inner())
    };
    let mut lines = Vec::new();
    let mut job = String::new();
    let mut end = None;
    let followed = follow(global, start, |heard| {
        let event = match heard {
            Heard::Event(event) => event,
            Heard::Silence(line) => {
                screen.note(format!("! {line}"));
                return false;
            }
        };
        let data: LogEvent = serde_json::from_str(&event.data_json).unwrap_or_default();
        if job.is_empty() {
            job.clone_from(&data.jid);
        }
        let (new, is_end) = match kind(&event.tag) {
            "prog" => (data.state.lines, false),
            "ret" => {
                let error = (!data.success).then_some(data.error);
                end = Some(End::Returned { error });
                (data.value.unwrap_or_default().lines, false)
            }
            _ => (Vec::new(), event.last),
        };
        if args.follow && print(&new, screen).is_err() {
            end = Some(End::ClosedPipe);
            return true;
        }
        lines.extend(new);
        is_end
    });
    let interrupted = tokio::select! {
        done = followed => { done?; false }
        _ = tokio::signal::ctrl_c(), if args.follow => true,
    };
    let is_closed = matches!(end, Some(End::ClosedPipe));
    if interrupted || is_closed {
        cancel(global, job).await;
        if is_closed {
            std::process::exit(CLOSED_PIPE);
        }
        return Ok(0);
    }
    if let Some(End::Returned { error: Some(error) }) = end {
        screen.note(format!(
            "ctl: cannot read the journal of {}: {error}",
            args.host
        ));
        return Ok(FAILED);
    }
    if !args.follow {
        let document = json!({"host": args.host, "unit": args.unit, "lines": lines});
        screen.answer(&document, |_| {
            lines.iter().map(|line| format!("{line}\n")).collect()
        })?;
    }
    Ok(0)
}

fn request(args: &Logs) -> v1::RunRequest {
    let arguments = json!({
        "unit": args.unit,
        "lines": args.lines,
        "since_seconds": args.since.map(|since| since.as_secs()),
        "follow": args.follow,
    });
    v1::RunRequest {
        target: args.host.to_string(),
        target_kind: "list".to_owned(),
        function: FUNCTION.to_owned(),
        args_json: arguments.to_string(),
        timeout_seconds: if args.follow { FOLLOWED } else { 0 },
        request_id: uuid::Uuid::now_v7().to_string(),
        ..v1::RunRequest::default()
    }
}

/// Prints lines as they come; an error if the reader has gone.
fn print(lines: &[String], screen: &Screen) -> io::Result<()> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let mut out = io::stdout().lock();
    out.write_all(screen.rendered(&text).as_bytes())?;
    out.flush()
}

/// Ends the job, so that the minion does not read for nobody until its time is over.
async fn cancel(global: &Global, job: String) {
    if job.is_empty() {
        return;
    }
    if let Ok(mut operator) = client::operator(global).await {
        // It ends by itself, too.
        let _ = operator
            .cancel_job(v1::CancelJobRequest { job, force: false })
            .await;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::Value;

    use super::*;
    use crate::cli::{Cli, Command};

    fn arguments(line: &str) -> Logs {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        match cli.command {
            Command::Logs(args) => args,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn the_request_names_one_host_and_limits_what_follows() {
        let request = super::request(&arguments("ctl logs a kubelet --since 2h --lines 5"));
        let sent: Value = serde_json::from_str(&request.args_json).unwrap();
        let expected =
            json!({"unit": "kubelet", "lines": 5, "since_seconds": 7200, "follow": false});
        assert_eq!(sent, expected);
        assert_eq!((request.target.as_str(), request.timeout_seconds), ("a", 0));
        let request = super::request(&arguments("ctl logs a -f"));
        assert_eq!(request.timeout_seconds, FOLLOWED);
    }

    #[test]
    fn lines_are_in_progress_and_in_the_return() {
        let progress: LogEvent =
            serde_json::from_value(json!({"jid": "1", "minion": "a", "index": 0, "total": 0,
            "state": {"lines": ["x", "y"]}}))
            .unwrap();
        assert_eq!(progress.state.lines, ["x", "y"]);
        let lost = json!({"jid": "1", "minion": "a", "return": null, "success": false, "error": "not connected"});
        let lost: LogEvent = serde_json::from_value(lost).unwrap();
        assert!(lost.value.is_none() && lost.error == "not connected");
    }
}
