//! `ctl logs`: the journal of a host, read by its minion. The master hides secrets in it, as in
//! every return.

use std::cell::{Cell, OnceCell};
use std::io;
use std::io::Write as _;
use std::pin::pin;
use std::time::Duration;

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

/// The longest wait for the id of an interrupted job: its first event, which the master sends at
/// once.
const NAMED: Duration = Duration::from_secs(5);

/// The job of this command.
#[derive(Default)]
struct ReadingJob {
    /// Its id; empty before the first event.
    id: OnceCell<JobId>,
    /// The operator has interrupted the command.
    is_ending: Cell<bool>,
}

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
    let job = ReadingJob::default();
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
            job.id.get_or_init(|| id);
            if job.is_ending.get() {
                return true;
            }
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
    let interrupt = async {
        match args.follow {
            true => drop(tokio::signal::ctrl_c().await),
            false => std::future::pending().await,
        }
    };
    let interrupted = until(interrupt, followed, &job).await?;
    let is_closed = matches!(end, Some(End::ClosedPipe));
    if interrupted || is_closed {
        cancel(global, job.id.into_inner()).await;
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

/// Follows until the end, or until an interrupt; returns `true` for the latter. If the job is not
/// known by then, it waits for its id: without it, the job could not be cancelled.
async fn until(
    interrupt: impl Future<Output = ()>,
    followed: impl Future<Output = anyhow::Result<()>>,
    job: &ReadingJob,
) -> anyhow::Result<bool> {
    let mut followed = pin!(followed);
    tokio::select! {
        done = followed.as_mut() => return done.map(|()| false),
        () = interrupt => job.is_ending.set(true),
    }
    if job.id.get().is_none() {
        // A master that does not answer has probably made no job.
        let _ = tokio::time::timeout(NAMED, followed).await;
    }
    Ok(true)
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

    #[tokio::test]
    async fn an_interrupt_before_the_first_event_waits_for_the_job() {
        let job = ReadingJob::default();
        let (master, answer) = tokio::sync::oneshot::channel::<JobId>();
        let followed = async {
            let id = answer.await?;
            job.id.get_or_init(|| id);
            assert!(job.is_ending.get(), "the answer comes after the interrupt");
            Ok(())
        };
        let interrupt = async {
            let id = "20261121000000123000".parse().unwrap();
            // Received when the interrupt has been handled.
            master.send(id).unwrap();
        };
        let interrupted = until(interrupt, followed, &job).await.unwrap();
        assert!(interrupted && job.id.get().is_some());
    }

    #[tokio::test]
    async fn an_interrupt_of_a_known_job_and_an_end_wait_for_nothing() {
        let job = ReadingJob::default();
        let never = || std::future::pending::<()>();
        let ended = until(never(), async { Ok(()) }, &job).await;
        assert!(!ended.unwrap());
        job.id
            .get_or_init(|| "20261121000000123000".parse().unwrap());
        let followed = async {
            never().await;
            Ok(())
        };
        assert!(until(async {}, followed, &job).await.unwrap());
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
