//! An event of the master on one line.

use halite_api::{EventData, PartReturned, PartState};
use halite_proto::v1;

use crate::job_watch::{minion_update, parallel_repair, progress, waiting};
use crate::output::count;

/// One line about an event.
pub fn line(event: &v1::Event) -> String {
    format!("{}  {}", event.time, text(event))
}

fn text(event: &v1::Event) -> String {
    let test = |test: bool| if test { " (test)" } else { "" };
    match EventData::read(&event.tag, &event.data_json) {
        EventData::JobCreated(data) => format!(
            "job {}  {} on {}{} by {}",
            data.job,
            data.function,
            data.target,
            test(data.test),
            data.operator
        ),
        EventData::PartStarted(data) => format!("job {}  {} has started", data.job, data.minion),
        EventData::StateProgress(data) => format!("job {}  {}", data.job, progress(&data)),
        EventData::JournalLines(data) => {
            let lines = count(data.lines.len(), "line");
            format!("job {}  {}: {lines} of its journal", data.job, data.minion)
        }
        EventData::PartReturned(data) => format!("job {}  {}", data.job, returned(&data)),
        EventData::Wait(wait) => match (&wait.job, &wait.run) {
            (Some(job), _) => format!("job {job}  {}", waiting(&wait)),
            (None, Some(run)) => format!("run {run}  {}", waiting(&wait)),
            (None, None) => waiting(&wait),
        },
        EventData::ParallelRepair(data) => {
            format!("job {}  {}", data.job, parallel_repair(&data))
        }
        EventData::MinionUpdate(data) => format!("job {}  {}", data.job, minion_update(&data)),
        EventData::JobEnded(data) => {
            let counts = [
                (data.succeeded.len(), "succeeded"),
                (data.failed.len(), "failed"),
                (data.lost.len(), "lost"),
            ];
            let counts = counts.into_iter().filter(|(count, _)| *count > 0);
            let counts = counts.map(|(count, what)| format!("{count} {what}"));
            let counts = counts.collect::<Vec<_>>().join(", ");
            format!("job {}  has ended: {counts}", data.job)
        }
        EventData::RunCreated(data) => format!(
            "run {}  {}{} by {}",
            data.run,
            data.sls,
            test(data.test),
            data.operator
        ),
        EventData::RunStep(data) => {
            let (step, detail) = (&data.step, &data.step.detail);
            let error = detail.error.as_ref();
            let error = error.map_or_else(String::new, |error| format!(": {error}"));
            format!("run {}  {} {}{error}", data.run, step.name, step.status)
        }
        EventData::RunJob(data) => {
            format!(
                "run {}  {} has created the job {}",
                data.run, data.step, data.job
            )
        }
        EventData::RunCancelled(data) => {
            format!("run {}  cancelled by {}", data.run, data.operator)
        }
        EventData::RunEnded(data) => format!("run {}  has ended: {}", data.run, data.status),
        EventData::KeyChanged(data) => {
            let reason = data.reason.as_ref();
            let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
            format!("the key of {} is {}{reason}", data.minion, data.action)
        }
        // An event of another version is printed unchanged.
        EventData::Other(value) => format!("{}  {value}", event.tag),
    }
}

/// The end of a part as text: `worker-1 succeeded: 12 states, 2 changes`.
fn returned(part: &PartReturned) -> String {
    let outcome = match (&part.state, part.success) {
        (PartState::Returned, true) => "succeeded".to_owned(),
        (PartState::Returned, false) => "failed".to_owned(),
        (state, _) => state.to_string(),
    };
    let counts = part.states.map(|states| {
        let changed = count(part.changed.unwrap_or_default(), "change");
        let failed = match part.failed.unwrap_or_default() {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        format!(": {}, {changed}{failed}", count(states, "state"))
    });
    format!("{} {outcome}{}", part.minion, counts.unwrap_or_default())
}
