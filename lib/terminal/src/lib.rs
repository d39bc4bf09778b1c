//! The output of the programs that people run: one document at the end, as JSON, YAML or tables,
//! and on a terminal, until then, a live line for each thing that runs.
//!
//! Input: `serde_json` values and texts. Output: standard output and error. This crate does not
//! know the meaning of the documents.
//!
//! Values come from hosts and strangers. Everything that is printed passes through [`visible`], so
//! that no value moves the cursor, hides text or controls the terminal in any other way.

pub mod live;
pub mod paint;
pub mod table;

use std::fs::File;
use std::io;
use std::io::IsTerminal as _;
use std::sync::Arc;

use anstream::{AutoStream, ColorChoice};
use anyhow::Context as _;
use halite_cli::output;
pub use halite_cli::output::Format;
use halite_document::text::{escape, escape_json};
use serde_json::Value;

use crate::live::{Live, nowhere, own, size};
pub use crate::paint::{Paint, visible};
use crate::paint::{rendered, wrapped};

/// Standard output and error.
pub struct Screen {
    format: Format,
    out: Stream,
    err: Stream,
    /// The lines of what runs, on standard error.
    live: Arc<Live>,
}

/// An open file, with or without colours.
struct Stream {
    file: File,
    colour: bool,
}

impl Stream {
    /// Wraps a file. `NO_COLOR`, `CLICOLOR`, `CLICOLOR_FORCE` and `TERM` decide about colours.
    fn new(file: File) -> Self {
        let colour = AutoStream::choice(&file) != ColorChoice::Never;
        Self { file, colour }
    }

    fn print(&mut self, text: &str) -> io::Result<()> {
        output::write(&mut self.file, text)
    }
}

impl Screen {
    /// Creates the screen of this process.
    pub fn new(format: Format) -> Self {
        Self::on(format, own(&io::stdout()), own(&io::stderr()))
    }

    /// Makes a screen from two open files.
    pub fn on(format: Format, out: File, err: File) -> Self {
        let err = Stream::new(err);
        let lines = err.file.try_clone().unwrap_or_else(|_| nowhere());
        Self {
            format,
            out: Stream::new(out),
            live: Arc::new(Live::new(lines, err.colour)),
            err,
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

    /// Returns `true` if there are live lines.
    pub fn is_live(&self) -> bool {
        self.live.has_terminal()
    }

    /// The live lines, also for other threads. Nothing is displayed without a terminal.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Prints a line on standard output. Does nothing in the other formats, whose output is only
    /// the document.
    pub fn line(&mut self, text: impl AsRef<str>) {
        if self.is_for_people() {
            let Self { out, live, .. } = self;
            let text = rendered(text.as_ref(), out.colour) + "\n";
            // A terminal that was lost must not stop the command.
            let _ = live.above(|| out.print(&text));
        }
    }

    /// Prints a line on standard error.
    pub fn note(&mut self, text: impl AsRef<str>) {
        let Self { err, live, .. } = self;
        let text = rendered(text.as_ref(), err.colour) + "\n";
        // As for `line`.
        let _ = live.above(|| err.print(&text));
    }

    /// Prints a text on standard error, indented, with its lines broken at the width of the
    /// terminal.
    pub fn paragraph(&mut self, text: &str, indent: usize) {
        // A character in the last column makes some terminals wrap.
        let columns = size(&self.err.file).0.saturating_sub(1);
        self.note(wrapped(text, columns, indent));
    }

    /// Prints a question on standard error, without a line feed.
    pub fn ask(&mut self, question: &str) {
        let question = rendered(question, self.err.colour);
        // As for `line`.
        let _ = self.err.print(&question);
    }

    /// Prints a line for people: on standard output, or on standard error if that has only the
    /// document.
    pub fn news(&mut self, text: impl AsRef<str>) {
        if self.is_for_people() {
            self.line(text);
        } else {
            self.note(text);
        }
    }

    /// Replaces the live line of a command that does one step after the other.
    pub fn progress(&mut self, text: &str) {
        self.live.set("", text);
    }

    /// Removes the live lines.
    pub fn clear(&mut self) {
        self.live.retain(|_| false);
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
            // A program that reads YAML gets the values unchanged.
            Format::Yaml if self.out.file.is_terminal() => escape(&yaml(value)?).into_owned(),
            Format::Yaml => yaml(value)?,
            Format::Table => rendered(&people(&self.paint()), self.out.colour),
        };
        self.out.print(&text).context("cannot write the answer")
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
            Format::Yaml if self.out.file.is_terminal() => {
                format!("---\n{}", escape(&yaml(value)?))
            }
            Format::Yaml => format!("---\n{}", yaml(value)?),
            Format::Table => rendered(&people(&self.paint()), self.out.colour) + "\n",
        };
        self.out.print(&text).context("cannot write the answer")
    }

    /// Prints the answer as a document; for people, as tables.
    ///
    /// # Errors
    /// The answer cannot be written.
    pub fn document(&mut self, value: &Value) -> anyhow::Result<()> {
        self.answer(value, |_| table::document(value))
    }

    /// Makes a text safe for standard output.
    #[must_use]
    pub fn rendered(&self, text: &str) -> String {
        rendered(text, self.out.colour)
    }

    /// Prints a text that is the answer in every format.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn text(&mut self, text: &str) -> anyhow::Result<()> {
        self.clear();
        self.out.print(text).context("cannot write the answer")
    }

    /// The colours of this screen. A stream without colours drops them.
    pub fn paint(&self) -> Paint {
        Paint {
            colour: self.out.colour || self.err.colour,
        }
    }
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

/// Formats an age in seconds as `kubectl get` does, in the largest unit that gives at least 2:
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
