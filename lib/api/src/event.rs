//! Events: news of jobs, runs and keys, each with a tag and a time.

use halite_proto::ids::{JobId, MinionId};
use halite_proto::v1;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::document::document;
use crate::event_data::EventData;

/// An event as JSON (`ctl events`, one on each line).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Its position among the stored events. Absent for an event that is not stored, such as
    /// progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// The tag, for example `halite/job/JOB/new`.
    pub tag: String,
    /// The time, RFC 3339 in UTC.
    pub time: String,
    /// `true` if it is the last event of a job or run.
    pub last: bool,
    /// 0 or 1: the outcome of the job or run. Absent unless it is the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retcode: Option<i32>,
    /// The data, in the form that belongs to the tag.
    #[schemars(with = "Map<String, Value>")]
    pub data: Value,
}

document!(Event);

impl From<v1::Event> for Event {
    fn from(event: v1::Event) -> Self {
        Self {
            sequence: u64::try_from(event.seq).ok().filter(|seq| *seq > 0),
            tag: event.tag,
            time: event.time,
            last: event.last,
            retcode: event.last.then_some(event.retcode),
            data: serde_json::from_str(&event.data_json).unwrap_or_default(),
        }
    }
}

/// The parts of an event's tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventTag<'a> {
    /// `halite/job/JOB/KIND` or `halite/job/JOB/KIND/MINION`.
    Job {
        /// The job.
        job: JobId,
        /// The kind: `new`, `start`, `prog`, `log`, `ret`, `wait`, `repair`, `minion`, `done`.
        kind: &'a str,
        /// The minion.
        minion: Option<MinionId>,
    },
    /// `halite/run/RUN/KIND`.
    Run {
        /// The run.
        run: JobId,
        /// The kind: `new`, `step`, `job`, `wait`, `cancel`, `done`.
        kind: &'a str,
    },
    /// `halite/key/MINION`.
    Key(MinionId),
    /// A tag that this version does not know.
    Other,
}

impl<'a> EventTag<'a> {
    /// The parts of a tag.
    #[must_use]
    pub fn parse(tag: &'a str) -> Self {
        Self::known(tag).unwrap_or(Self::Other)
    }

    fn known(tag: &'a str) -> Option<Self> {
        let mut parts = tag.strip_prefix("halite/")?.split('/');
        let (subject, id) = (parts.next()?, parts.next()?);
        let kind = parts.next();
        let rest = parts.next();
        match (subject, kind, rest) {
            ("job", Some(kind), rest) => Some(Self::Job {
                job: id.parse().ok()?,
                kind,
                minion: match rest {
                    Some(minion) => Some(minion.parse().ok()?),
                    None => None,
                },
            }),
            ("run", Some(kind), None) => Some(Self::Run {
                run: id.parse().ok()?,
                kind,
            }),
            ("key", None, None) => Some(Self::Key(id.parse().ok()?)),
            _ => None,
        }
    }
}

impl EventData {
    /// The tag of an event with this data. `None` for data that this version does not know.
    #[must_use]
    pub fn tag(&self) -> Option<String> {
        let job = |job: &JobId, kind: &str| Some(format!("halite/job/{job}/{kind}"));
        let part = |job: &JobId, kind: &str, minion: &MinionId| {
            Some(format!("halite/job/{job}/{kind}/{minion}"))
        };
        let run = |run: &JobId, kind: &str| Some(format!("halite/run/{run}/{kind}"));
        match self {
            Self::JobCreated(data) => job(&data.job, "new"),
            Self::PartStarted(data) => part(&data.job, "start", &data.minion),
            Self::StateProgress(data) => part(&data.job, "prog", &data.minion),
            Self::JournalLines(data) => part(&data.job, "log", &data.minion),
            Self::PartReturned(data) => part(&data.job, "ret", &data.minion),
            Self::Wait(data) => match (&data.job, &data.minion, &data.run) {
                (Some(id), Some(minion), _) => part(id, "wait", minion),
                (Some(id), None, _) => job(id, "wait"),
                (None, _, Some(id)) => run(id, "wait"),
                (None, _, None) => None,
            },
            Self::ParallelRepair(data) => job(&data.job, "repair"),
            Self::MinionUpdate(data) => job(&data.job, "minion"),
            Self::JobEnded(data) => job(&data.job, "done"),
            Self::RunCreated(data) => run(&data.run, "new"),
            Self::RunStep(data) => run(&data.run, "step"),
            Self::RunJob(data) => run(&data.run, "job"),
            Self::RunCancelled(data) => run(&data.run, "cancel"),
            Self::RunEnded(data) => run(&data.run, "done"),
            Self::KeyChanged(data) => Some(format!("halite/key/{}", data.minion)),
            Self::Other(_) => None,
        }
    }

    /// The data as JSON text.
    #[must_use]
    pub fn to_text(&self) -> String {
        // The keys of each variant are text.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the data of an event with this tag. Data of an unknown form is kept unchanged.
    #[must_use]
    pub fn read(tag: &str, text: &str) -> Self {
        Self::from_value(tag, serde_json::from_str(text).unwrap_or_default())
    }

    /// Like [`EventData::read`], from a value.
    #[must_use]
    pub fn from_value(tag: &str, value: Value) -> Self {
        fn to<T: DeserializeOwned>(
            value: &Value,
            make: impl FnOnce(T) -> EventData,
        ) -> Option<EventData> {
            T::deserialize(value).ok().map(make)
        }
        let known = match EventTag::parse(tag) {
            EventTag::Job { kind, .. } => match kind {
                "new" => to(&value, Self::JobCreated),
                "start" => to(&value, Self::PartStarted),
                "prog" => to(&value, |data| Self::StateProgress(Box::new(data))),
                "log" => to(&value, Self::JournalLines),
                "ret" => to(&value, |data| Self::PartReturned(Box::new(data))),
                "wait" => to(&value, Self::Wait),
                "repair" => to(&value, Self::ParallelRepair),
                "minion" => to(&value, Self::MinionUpdate),
                "done" => to(&value, Self::JobEnded),
                _ => None,
            },
            EventTag::Run { kind, .. } => match kind {
                "new" => to(&value, Self::RunCreated),
                "step" => to(&value, |data| Self::RunStep(Box::new(data))),
                "job" => to(&value, Self::RunJob),
                "wait" => to(&value, Self::Wait),
                "cancel" => to(&value, Self::RunCancelled),
                "done" => to(&value, |data| Self::RunEnded(Box::new(data))),
                _ => None,
            },
            EventTag::Key(_) => to(&value, Self::KeyChanged),
            EventTag::Other => None,
        };
        known.unwrap_or(Self::Other(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobEnded, KeyAction, KeyChanged, PartStarted, StepWait};

    const JOB: &str = "20261121000000123000";

    fn job() -> JobId {
        JOB.parse().unwrap()
    }

    fn minion() -> MinionId {
        "worker-1".parse().unwrap()
    }

    #[test]
    fn data_reads_back_by_its_tag() {
        let wait = |job: Option<JobId>, run: Option<JobId>, minion: Option<MinionId>| {
            EventData::Wait(StepWait {
                job,
                run,
                minion,
                step: "turn".to_owned(),
                ..StepWait::default()
            })
        };
        for (data, tag) in [
            (
                EventData::PartStarted(PartStarted {
                    job: job(),
                    minion: minion(),
                }),
                format!("halite/job/{JOB}/start/worker-1"),
            ),
            (
                EventData::JobEnded(JobEnded {
                    job: job(),
                    retcode: 0,
                    succeeded: vec![minion()],
                    failed: Vec::new(),
                    lost: Vec::new(),
                }),
                format!("halite/job/{JOB}/done"),
            ),
            (
                wait(Some(job()), None, None),
                format!("halite/job/{JOB}/wait"),
            ),
            (
                wait(Some(job()), None, Some(minion())),
                format!("halite/job/{JOB}/wait/worker-1"),
            ),
            (
                wait(None, Some(job()), None),
                format!("halite/run/{JOB}/wait"),
            ),
            (
                EventData::KeyChanged(KeyChanged {
                    minion: minion(),
                    action: KeyAction::Pending,
                    fingerprint: Some("ab:cd".to_owned()),
                    token: None,
                    reason: None,
                }),
                "halite/key/worker-1".to_owned(),
            ),
        ] {
            assert_eq!(data.tag().as_deref(), Some(tag.as_str()));
            assert_eq!(EventData::read(&tag, &data.to_text()), data);
        }
    }

    #[test]
    fn data_of_another_version_is_kept() {
        for tag in [
            "halite/job/1/new",
            "halite/job/20261121000000123000/moved",
            "x",
        ] {
            let data = EventData::read(tag, r#"{"a":1}"#);
            assert_eq!(data, EventData::Other(serde_json::json!({"a": 1})), "{tag}");
            assert_eq!(data.to_text(), r#"{"a":1}"#);
        }
    }

    #[test]
    fn only_stored_events_have_a_sequence_and_only_the_last_a_retcode() {
        let wire = v1::Event {
            tag: "t".to_owned(),
            seq: 7,
            retcode: 1,
            data_json: "{}".to_owned(),
            ..v1::Event::default()
        };
        let event = Event::from(wire.clone());
        assert_eq!((event.sequence, event.retcode), (Some(7), None));
        let last = Event::from(v1::Event {
            seq: 0,
            last: true,
            ..wire
        });
        assert_eq!((last.sequence, last.retcode), (None, Some(1)));
    }
}
