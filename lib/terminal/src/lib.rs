//! The output of the programs that people run: one document at the end, as JSON, YAML or tables,
//! and a progress line on a terminal until then.
//!
//! Input: `serde_json` values and texts. Output: standard output and error. This crate does not
//! know the meaning of the documents.
//!
//! Values come from hosts and strangers. Everything that is printed passes through [`visible`], so
//! that no value moves the cursor, hides text or controls the terminal in any other way.

pub mod table;

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::ValueEnum;
use halite_document::text::{escape, escape_json};
use serde_json::Value;

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// Text and tables for people.
    Table,
}

/// Standard output and error.
pub struct Screen {
    format: Format,
    /// `true` if standard error is a terminal, which shows a line of progress.
    live: bool,
    colour: bool,
    /// `true` while that line is not empty. Shared with the tickers.
    displayed: Arc<AtomicBool>,
}

/// Writes the line of progress, from any thread.
pub struct Ticker {
    live: bool,
    displayed: Arc<AtomicBool>,
}

impl Ticker {
    /// Replaces the line of progress. Does nothing without a terminal.
    pub fn show(&self, text: &str) {
        if !self.live {
            return;
        }
        let width = std::env::var("COLUMNS")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(100usize);
        let line = text.replace('\n', " ");
        let line: String = escape(&line)
            .chars()
            .take(width.saturating_sub(1))
            .collect();
        let mut out = std::io::stderr().lock();
        // A lost terminal must not stop the command.
        let _ = write!(out, "\r\x1b[2K{line}").and_then(|()| out.flush());
        self.displayed.store(true, Ordering::Relaxed);
    }
}

impl Screen {
    /// Creates the screen of this process.
    pub fn new(format: Format) -> Self {
        let live = std::io::stderr().is_terminal();
        let people = format == Format::Table && std::io::stdout().is_terminal();
        let colour = people && std::env::var_os("NO_COLOR").is_none();
        Self {
            format,
            live,
            colour,
            displayed: Arc::default(),
        }
    }

    /// The requested format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns `true` if the format is for people. Otherwise only the document is printed.
    pub fn is_for_people(&self) -> bool {
        self.format == Format::Table
    }

    /// Returns `true` if there is a line of progress.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Prints a line on standard output. Does nothing in the other formats, whose output is only
    /// the document.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.clear();
        if self.is_for_people() {
            println!("{}", visible(text.as_ref()));
        }
    }

    /// Prints a line on standard error.
    pub fn note(&mut self, text: impl AsRef<str>) {
        self.clear();
        eprintln!("{}", visible(text.as_ref()));
    }

    /// Replaces the line of progress. Does nothing without a terminal.
    pub fn progress(&mut self, text: &str) {
        self.ticker().show(text);
    }

    /// A writer of the line of progress, for other threads.
    pub fn ticker(&self) -> Ticker {
        Ticker {
            live: self.live,
            displayed: Arc::clone(&self.displayed),
        }
    }

    /// Removes the line of progress.
    pub fn clear(&mut self) {
        if self.displayed.swap(false, Ordering::Relaxed) {
            eprint!("\r\x1b[2K");
            let _ = std::io::stderr().flush();
        }
    }

    /// Prints the answer as a document; for people, as the text of `people`.
    ///
    /// # Errors
    /// The answer cannot be written.
    pub fn answer(
        &mut self,
        value: &Value,
        people: impl FnOnce(&Paint) -> String,
    ) -> anyhow::Result<()> {
        self.clear();
        let text = match self.format {
            Format::Json => escape_json(&serde_json::to_string_pretty(value)?).into_owned() + "\n",
            // A program that reads YAML gets the values as they are.
            Format::Yaml if std::io::stdout().is_terminal() => escape(&yaml(value)?).into_owned(),
            Format::Yaml => yaml(value)?,
            Format::Table => visible(&people(&Paint {
                colour: self.colour,
            })),
        };
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .context("cannot write the answer")
    }

    /// Prints one of an unknown number of answers: as JSON on one line, as a YAML document, or for
    /// people as the line of `people`.
    ///
    /// # Errors
    /// The answer cannot be written.
    pub fn item(
        &mut self,
        value: &Value,
        people: impl FnOnce(&Paint) -> String,
    ) -> anyhow::Result<()> {
        self.clear();
        let text = match self.format {
            Format::Json => escape_json(&serde_json::to_string(value)?).into_owned() + "\n",
            Format::Yaml => format!("---\n{}", visible(&yaml(value)?)),
            Format::Table => visible(&people(&self.paint())) + "\n",
        };
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .context("cannot write the answer")
    }

    /// Prints the answer as a document; for people, as tables.
    ///
    /// # Errors
    /// The answer cannot be written.
    pub fn document(&mut self, value: &Value) -> anyhow::Result<()> {
        self.answer(value, |_| table::document(value))
    }

    /// The colours of this screen.
    pub fn paint(&self) -> Paint {
        Paint {
            colour: self.colour,
        }
    }
}

/// Placeholders for the start of each colour and for its end: noncharacters of Unicode, which no
/// text contains. The printer replaces them, so that colours are the only escape sequences on the
/// screen.
const COLOURS: [(char, &str); 4] = [
    ('\u{fdd0}', "\x1b[0m"),
    ('\u{fdd1}', "\x1b[31m"),
    ('\u{fdd2}', "\x1b[32m"),
    ('\u{fdd3}', "\x1b[33m"),
];

/// Makes a text safe for a terminal: deceptive characters of values become visible, and the colours
/// of [`Paint`] become escape sequences.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut safe = escape(text).into_owned();
    for (mark, sequence) in COLOURS {
        if safe.contains(mark) {
            safe = safe.replace(mark, sequence);
        }
    }
    safe
}

/// Formats a value as YAML.
///
/// # Errors
/// The value cannot be written as YAML.
pub fn yaml(value: &Value) -> anyhow::Result<String> {
    let mut text = serde_saphyr::to_string(value).context("cannot write the answer as YAML")?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Colours of texts, if the screen has colours.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    /// `true` if the screen has colours.
    pub colour: bool,
}

impl Paint {
    fn with(self, colour: usize, text: &str) -> String {
        if self.colour {
            format!("{}{text}{}", COLOURS[colour].0, COLOURS[0].0)
        } else {
            text.to_owned()
        }
    }

    /// Colours a success.
    pub fn good(self, text: &str) -> String {
        self.with(2, text)
    }

    /// Colours a failure.
    pub fn bad(self, text: &str) -> String {
        self.with(1, text)
    }

    /// Colours a change or a warning.
    pub fn notable(self, text: &str) -> String {
        self.with(3, text)
    }
}

/// Formats a duration: `5.1 s`, `2 min 3 s`.
pub fn seconds(seconds: f64) -> String {
    if seconds < 10.0 {
        format!("{seconds:.1} s")
    } else if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else {
        format!(
            "{:.0} min {:.0} s",
            (seconds / 60.0).floor(),
            seconds % 60.0
        )
    }
}

/// Formats an age in seconds as `kubectl get` does, in its largest unit of which there are at least two:
/// `119s`, `2m`, `47h`, `2d`.
pub fn age(seconds: u64) -> String {
    const UNITS: [(u64, char); 3] = [(24 * 60 * 60, 'd'), (60 * 60, 'h'), (60, 'm')];
    let unit = UNITS.into_iter().find(|(unit, _)| seconds >= 2 * unit);
    let (unit, letter) = unit.unwrap_or((1, 's'));
    format!("{}{letter}", seconds / unit)
}

/// `8.1 MB`.
pub fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

/// Formats a number with its noun: `1 change`, `2 changes`.
pub fn count(number: usize, one: &str) -> String {
    if number == 1 {
        format!("1 {one}")
    } else {
        format!("{number} {one}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!(seconds(0.04), "0.0 s");
        assert_eq!(seconds(41.4), "41 s");
        assert_eq!(seconds(123.0), "2 min 3 s");
        let ages = [0, 119, 120, 7_199, 7_200, 172_799, 172_800];
        let shown = ["0s", "119s", "2m", "119m", "2h", "47h", "2d"];
        assert_eq!(ages.map(age), shown);
    }

    #[test]
    fn colours_are_the_only_sequences_that_reach_a_terminal() {
        let paint = Paint { colour: true };
        let text = paint.bad("a\x1b[2J\u{9b}31m\u{202e}b") + &paint.good("c");
        assert_eq!(
            visible(&text),
            "\x1b[31ma\\u{1b}[2J\\u{9b}31m\\u{202e}b\x1b[0m\x1b[32mc\x1b[0m"
        );
        let plain = Paint { colour: false };
        assert_eq!(visible(&plain.notable("x\r\ny")), "x\\r\ny");
    }

    #[test]
    fn yaml_reads_back() {
        let value = serde_json::json!({"a": ["yes", "0644", null, true, 1.5, "x: y", "line\nline\n"], "b": {}, "c": "", "d": "1.36"});
        let text = yaml(&value).unwrap();
        assert_eq!(
            halite_document::yaml::parse("t", &text).unwrap().to_json(),
            value,
            "{text}"
        );
    }
}
