//! `ctl logs`: the journal of a host, read by its minion. The master hides secrets in it, as in
//! every return.

use std::io;
use std::io::Write as _;

use anyhow::bail;
use halite_api::{EventData, EventTag, HostJournal, MinionAnswer, to_value};
use halite_cli::output::CLOSED_PIPE;
use halite_proto::ids::JobId;
use halite_proto::v1;
use serde_json::json;

use crate::FAILED;
use crate::cli::{Global, Logs};
use crate::client;
use crate::client::Operator;
use crate::event_stream::{CallNews, follow};
use crate::output::Screen;

/// The function of the minion.
const FUNCTION: &str = "log.read";
/// The time after which a minion stops following, in seconds: a lost client cannot cancel the job.
const FOLLOWED: u32 = 60 * 60;

/// The end of the command.
enum End {
    /// The minion has answered.
    Returned { error: Option<String> },
    /// The reader of standard output has closed it.
    ClosedPipe,
}

/// Runs `ctl logs`.
///
/// # Errors
/// The master does not answer or refuses, or the minion cannot read its journal.
pub async fn run(global: &Global, args: &Logs, screen: &mut Screen) -> anyhow::Result<u8> {
    if args.follow && !screen.is_for_people() {
        bail!("cannot follow a journal as one document; omit --follow or --output");
    }
    let request = request(args);
    let start = async |mut operator: Operator| {
        let answer = operator.run(request.clone()).await;
        answer.map(|answer| Some(answer.into_inner()))
    };
    let mut lines = Vec::new();
    let mut job = None;
    let mut end = None;
    let followed = follow(global, start, |heard| {
        let event = match heard {
            CallNews::Event(event) => event,
            CallNews::Silence(line) => {
                screen.note(format!("! {line}"));
                return false;
            }
        };
        if let EventTag::Job { job: id, .. } = EventTag::parse(&event.tag) {
            job.get_or_insert(id);
        }
        let new = match EventData::read(&event.tag, &event.data_json) {
            EventData::JournalLines(journal) => journal.lines,
            EventData::PartReturned(part) => {
                let error = part.error.unwrap_or_else(|| "it failed".to_owned());
                let error = (!part.success).then_some(error);
                end = Some(End::Returned { error });
                let lines = part.answer.as_ref().and_then(MinionAnswer::journal_lines);
                lines.unwrap_or_default()
            }
            _ => Vec::new(),
        };
        if args.follow && print(&new, screen).is_err() {
            end = Some(End::ClosedPipe);
            return true;
        }
        lines.extend(new);
        event.last
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
        let journal = HostJournal {
            host: args.host.clone(),
            unit: args.unit.clone(),
            lines,
        };
        screen.answer(&to_value(&journal), |_| text(&journal.lines))?;
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

/// Prints lines as they arrive; an error if the reader has closed standard output.
fn print(lines: &[String], screen: &Screen) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(screen.rendered(&text(lines)).as_bytes())?;
    out.flush()
}

fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Ends the job, so that the minion does not continue to read until its time is over.
async fn cancel(global: &Global, job: Option<JobId>) {
    let Some(job) = job else {
        return;
    };
    if let Ok(mut operator) = client::operator(global).await {
        let request = v1::CancelJobRequest {
            job: job.into(),
            force: false,
        };
        // Without this, it ends by itself after its time.
        let _ = operator.cancel_job(request).await;
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
}
