//! The page about events: one row and one section for each kind of data.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{description, example_text, schema, section};
use crate::*;

const HEAD: &str = include_str!("events_head.txt");
const ALWAYS: &str = "yes";
const OF_STATES: &str = "of jobs that apply states";
const NEVER: &str = "no";
const NOT_REFUSED: &str = "unless it was `refused`";
const OF_THE_CALL: &str = "no: only sent to the command that created the job";

/// The variant of the data. A new variant fails to compile here; it needs a row, too.
fn kind(data: &EventData) -> &'static str {
    match data {
        EventData::JobCreated(_) => "JobCreated",
        EventData::PartStarted(_) => "PartStarted",
        EventData::StateProgress(_) => "StateProgress",
        EventData::JournalLines(_) => "JournalLines",
        EventData::PartReturned(_) => "PartReturned",
        EventData::Wait(_) => "StepWait",
        EventData::ParallelRepair(_) => "ParallelRepair",
        EventData::MinionUpdate(_) => "MinionUpdate",
        EventData::JobEnded(_) => "JobEnded",
        EventData::RunCreated(_) => "RunCreated",
        EventData::RunStep(_) => "RunStep",
        EventData::RunJob(_) => "RunJob",
        EventData::RunCancelled(_) => "RunCancelled",
        EventData::RunEnded(_) => "RunEnded",
        EventData::KeyChanged(_) => "KeyChanged",
        EventData::Other(_) => "Other",
    }
}

/// The page under construction.
#[derive(Default)]
struct Page {
    rows: String,
    sections: String,
    kinds: BTreeSet<&'static str>,
}

impl Page {
    /// Adds the events with data of one type. `example` is a real one; its data must be of the type
    /// and its tag one of those in the type's description.
    fn add<T: schemars::JsonSchema>(
        &mut self,
        name: &'static str,
        example: &str,
        stored: &str,
        confidential: &[&str],
    ) {
        let schema = schema::<T>();
        let description = description(&schema);
        let tags: Vec<&str> = description
            .split('`')
            .filter(|word| word.starts_with("halite/"))
            .collect();
        let event: Event = from_text(&example_text(example)).unwrap();
        assert_eq!(kind(&EventData::from_value(&event.tag, event.data)), name);
        let tag = general(&event.tag);
        assert!(
            tags.contains(&tag.as_str()),
            "{name}: {tag} is not in {tags:?}"
        );
        let fields = schema["properties"].as_object().unwrap();
        for field in confidential {
            assert!(fields.contains_key(*field), "{name} has no {field}");
        }
        let code = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            words.join(", ")
        };
        // The description begins with the moment, and then names the tags.
        let (moment, _) = description.split_once(": `halite/").unwrap();
        let anchor = name.to_lowercase();
        let _ = writeln!(
            self.rows,
            "| {} | {moment} | [{name}](#{anchor}) | {stored} | {} |",
            code(&tags),
            code(confidential)
        );
        section::<T>(name, Some(example), &mut self.sections);
        assert!(self.kinds.insert(name), "{name} is there twice");
    }
}

/// A tag with placeholders for its ids.
fn general(tag: &str) -> String {
    let parts: Vec<&str> = tag.split('/').collect();
    let placeholder = |(at, part): (usize, &&str)| match (parts[1], at) {
        ("job", 2) => "JOB".to_owned(),
        ("run", 2) => "RUN".to_owned(),
        ("job", 4) | ("key", 2) => "MINION".to_owned(),
        _ => (*part).to_owned(),
    };
    let parts: Vec<String> = parts.iter().enumerate().map(placeholder).collect();
    parts.join("/")
}

fn reference() -> String {
    let mut page = Page::default();
    let p = &mut page;
    p.add::<JobCreated>("JobCreated", "event-job-new", OF_STATES, &[]);
    p.add::<PartStarted>("PartStarted", "event-job-start", NEVER, &[]);
    p.add::<StateProgress>("StateProgress", "event-job-prog", NEVER, &["state"]);
    p.add::<JournalLines>("JournalLines", "event-job-log", NEVER, &["lines"]);
    p.add::<PartReturned>("PartReturned", "event-job-ret", OF_STATES, &["digest"]);
    p.add::<StepWait>("StepWait", "event-job-wait", NEVER, &[]);
    p.add::<ParallelRepair>("ParallelRepair", "event-job-repair", NEVER, &[]);
    p.add::<MinionUpdate>("MinionUpdate", "event-job-minion", OF_THE_CALL, &[]);
    p.add::<JobEnded>("JobEnded", "event-job-done", OF_STATES, &[]);
    p.add::<RunCreated>("RunCreated", "event-run-new", ALWAYS, &[]);
    p.add::<RunStep>("RunStep", "event-run-step", ALWAYS, &[]);
    p.add::<RunJob>("RunJob", "event-run-job", NEVER, &[]);
    p.add::<RunCancelled>("RunCancelled", "event-run-cancel", NEVER, &[]);
    p.add::<RunEnded>("RunEnded", "event-run-done", ALWAYS, &[]);
    p.add::<KeyChanged>("KeyChanged", "event-key", NOT_REFUSED, &[]);
    let mut out = HEAD.to_owned();
    out.push_str(
        "\n| tag | sent when | data | stored | administrators only |\n|---|---|---|---|---|\n",
    );
    out.push_str(&page.rows);
    out.push_str("\n## The event\n");
    section::<Event>("Event", None, &mut out);
    out.push_str("\n## Its data\n");
    out.push_str(&page.sections);
    out
}

#[test]
fn the_page_about_events_is_current() {
    halite_golden::check_reference("events.md", &reference());
}
