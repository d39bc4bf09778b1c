//! `file.line`, with Salt's rules (`_set_line` in `salt/modules/file.py`) where an edit is complete
//! after one run: an existing line is not added again, and an edit that would change another line
//! in the next run is refused.

use halite_errors::chain;
use halite_states::args::Args;
use halite_states::low::Chunk;
use halite_states::pattern::{Expression, LinePattern};

use super::edit::{Text, lines};
use crate::host::Host;
use crate::modules::{Failure, Plan, fail, failure};

pub(in crate::modules) async fn line(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let file = Text::open(host, chunk, args.flag("create", false)?).await?;
    let spec = LineSpec::read(&args)?;
    let (lines, end_of_line) = lines(&file.text);
    let lines: Vec<String> = lines.into_iter().map(str::to_owned).collect();
    let new = match spec.edit(&lines).and_then(|new| spec.finished(new)) {
        Ok(new) => new,
        // An earlier state of this plan may add the lines that the edit refers to.
        Err(_) if host.uncertain() => lines
            .iter()
            .cloned()
            .chain([spec.content.clone()])
            .collect(),
        Err(reason) => return fail(format!("{}: {reason}", file.name)),
    };
    if new == lines && file.exists {
        return Ok(Plan::nothing("No changes needed to be made"));
    }
    // A file whose last line has no newline stays that way.
    let end = if new.is_empty() || (!file.text.is_empty() && !file.text.ends_with('\n')) {
        ""
    } else {
        end_of_line
    };
    let text = new.join(end_of_line) + end;
    Ok(file.plan_for(
        &text,
        args.show()?,
        Vec::new(),
        "Changes would be made".into(),
        "Changes were made".into(),
    ))
}

/// The requested edit cannot be made.
#[derive(Debug, thiserror::Error)]
enum LineError {
    #[error("`mode` is ensure, replace, insert or delete, not `{0}`")]
    Mode(String),
    #[error("`location` is start or end, not `{0}`")]
    Location(String),
    #[error("no line matches `{0}`")]
    NoLine(String),
    #[error("lines {0} and {1} match `{2}`; make it match one line only{3}")]
    Several(usize, usize, String, String),
    #[error("`before` matches line {0}, which is not after line {1} that `after` matches")]
    Reversed(usize, usize),
    #[error(
        "there is more than one line between `after` and `before` (lines {0} and {1}); use `mode: insert`, which allows others there"
    )]
    Between(usize, usize),
    #[error(
        "line {0} matches `match` too, so the next run would change it; make `match` match one line only"
    )]
    Unfinished(usize),
    #[error("`mode: ensure` needs `after` or `before`")]
    EnsureWhere,
    #[error("`mode: insert` needs `location`, `after` or `before`")]
    InsertWhere,
}

/// A pattern with its text, for messages.
struct Named {
    text: String,
    pattern: LinePattern,
}

impl Named {
    fn read(args: &Args<'_>, key: &str) -> Result<Option<Self>, Failure> {
        args.text(key)?.map(|text| Self::new(key, text)).transpose()
    }

    fn new(key: &str, text: String) -> Result<Self, Failure> {
        let pattern = LinePattern::new(&text).map_err(|error| {
            failure(format!(
                "file.line: `{key}` is not understood: {}",
                chain(&error)
            ))
        })?;
        Ok(Self { text, pattern })
    }

    /// The first line that matches.
    fn first(&self, lines: &[String]) -> Option<usize> {
        lines.iter().position(|line| self.pattern.is_match(line))
    }

    /// The one line that matches.
    fn only(&self, lines: &[String]) -> Result<usize, LineError> {
        let mut found = (0..)
            .zip(lines)
            .filter(|(_, line)| self.pattern.is_match(line));
        match (found.next(), found.next()) {
            (Some((at, _)), None) => Ok(at),
            (None, _) => Err(LineError::NoLine(self.text.clone())),
            (Some((one, _)), Some((two, _))) => {
                let literally = Expression::literally(&self.text);
                let hint = if literally == self.text {
                    String::new()
                } else {
                    format!(" (for the text itself write `{literally}`)")
                };
                Err(LineError::Several(
                    one + 1,
                    two + 1,
                    self.text.clone(),
                    hint,
                ))
            }
        }
    }
}

/// The arguments of the state.
struct LineSpec {
    mode: String,
    content: String,
    /// The line to replace or delete.
    matching: Option<Named>,
    before: Option<Named>,
    after: Option<Named>,
    location: Option<String>,
    indent: bool,
}

impl LineSpec {
    fn read(args: &Args<'_>) -> Result<Self, Failure> {
        let mode = args.required("mode")?.to_lowercase();
        let content = args.text("content")?.unwrap_or_default();
        let matching = args.text("match")?;
        if content.contains('\n') {
            return fail(
                "file.line: `content` must be one line; use file.append or file.blockreplace for more",
            );
        }
        let is_missing = match mode.as_str() {
            "delete" => matching.is_none() && content.is_empty(),
            _ => content.is_empty(),
        };
        if is_missing || matching.as_ref().is_some_and(String::is_empty) {
            return fail("file.line: `content` is missing (with `mode: delete`, `match` will do)");
        }
        let (before, after) = (Named::read(args, "before")?, Named::read(args, "after")?);
        let by_neighbour = before.is_some() || after.is_some();
        if by_neighbour && matches!(mode.as_str(), "delete" | "replace") {
            return fail(format!(
                "file.line: `mode: {mode}` has no `before` and `after`; `match` names the line"
            ));
        }
        let matching = match matching {
            Some(matching) => Some(Named::new("match", matching)?),
            // `ensure` and `insert` compare the content literally, never as an expression.
            None if matches!(mode.as_str(), "delete" | "replace") => {
                Some(Named::new("content", content.clone())?)
            }
            None => None,
        };
        Ok(Self {
            mode,
            content,
            matching,
            before,
            after,
            location: args.text("location")?,
            indent: args.flag("indent", true)?,
        })
    }

    /// The lines after the edit.
    fn edit(&self, lines: &[String]) -> Result<Vec<String>, LineError> {
        match self.mode.as_str() {
            "delete" => Ok(match self.matching(lines) {
                // Lines that are equal to the first one are deleted with it.
                Some(first) => lines
                    .iter()
                    .filter(|line| **line != lines[first])
                    .cloned()
                    .collect(),
                None => lines.to_vec(),
            }),
            "replace" => Ok(match self.matching(lines) {
                Some(first) => self.instead_of(lines, first),
                None => lines.to_vec(),
            }),
            "ensure" | "insert" => self.present(lines),
            other => Err(LineError::Mode(other.to_owned())),
        }
    }

    /// The line to replace or delete.
    fn matching(&self, lines: &[String]) -> Option<usize> {
        self.matching.as_ref()?.first(lines)
    }

    /// Refuses an edit that the next run would continue at another line.
    fn finished(&self, new: Vec<String>) -> Result<Vec<String>, LineError> {
        if self.edit(&new)? == new {
            return Ok(new);
        }
        let next = self.matching(&new).unwrap_or_default();
        Err(LineError::Unfinished(next + 1))
    }

    /// The content with the indentation of a neighbour.
    fn indented_like(&self, neighbour: &str) -> String {
        if !self.indent {
            return self.content.clone();
        }
        let blank = neighbour.len() - neighbour.trim_start().len();
        format!(
            "{}{}",
            neighbour.get(..blank).unwrap_or_default(),
            self.content.trim_start()
        )
    }

    fn is_content(&self, line: Option<&String>) -> bool {
        line.is_some_and(|line| {
            if self.indent {
                line.trim() == self.content.trim()
            } else {
                *line == self.content
            }
        })
    }

    /// `ensure` and `insert`.
    fn present(&self, lines: &[String]) -> Result<Vec<String>, LineError> {
        let insert = self.mode == "insert";
        match self.location.as_deref().filter(|_| insert) {
            Some("start") if self.is_content(lines.first()) => return Ok(lines.to_vec()),
            Some("end") if self.is_content(lines.last()) => return Ok(lines.to_vec()),
            Some("start") => return Ok(self.with(lines, 0, None)),
            Some("end") => return Ok(self.with(lines, lines.len(), None)),
            Some(other) => return Err(LineError::Location(other.to_owned())),
            None => {}
        }
        let only =
            |named: &Option<Named>| named.as_ref().map(|named| named.only(lines)).transpose();
        match (only(&self.after)?, only(&self.before)?) {
            (Some(after), Some(before)) => self.between(lines, after, before),
            (Some(after), None) if self.is_content(lines.get(after + 1)) => Ok(lines.to_vec()),
            (Some(after), None) => Ok(self.with(lines, after + 1, Some(after))),
            (None, Some(before)) if before > 0 && self.is_content(lines.get(before - 1)) => {
                Ok(lines.to_vec())
            }
            // Salt indents an inserted line like the one after it, but an ensured line like the one
            // above.
            (None, Some(before)) if insert => Ok(self.with(lines, before, Some(before))),
            (None, Some(before)) => Ok(self.with(lines, before, before.checked_sub(1))),
            (None, None) if insert => Err(LineError::InsertWhere),
            (None, None) => Err(LineError::EnsureWhere),
        }
    }

    fn between(
        &self,
        lines: &[String],
        after: usize,
        before: usize,
    ) -> Result<Vec<String>, LineError> {
        if before <= after {
            return Err(LineError::Reversed(before + 1, after + 1));
        }
        if (after + 1..before).any(|at| self.is_content(lines.get(at))) {
            return Ok(lines.to_vec());
        }
        match before - after {
            _ if self.mode == "insert" => Ok(self.with(lines, before, Some(before))),
            1 => Ok(self.with(lines, before, Some(after))),
            2 => {
                let mut new = lines.to_vec();
                new[after + 1] = self.indented_like(&lines[after]);
                Ok(new)
            }
            _ => Err(LineError::Between(after + 2, before)),
        }
    }

    /// The lines with the content in the place of line `at`.
    fn instead_of(&self, lines: &[String], at: usize) -> Vec<String> {
        let mut new = lines.to_vec();
        new[at] = self.indented_like(&lines[at]);
        new
    }

    /// The lines with the content at `at`, indented like line `neighbour`.
    fn with(&self, lines: &[String], at: usize, neighbour: Option<usize>) -> Vec<String> {
        let line = neighbour
            .and_then(|neighbour| lines.get(neighbour))
            .map_or_else(|| self.content.clone(), |line| self.indented_like(line));
        let (head, tail) = (lines.iter().take(at), lines.iter().skip(at));
        head.cloned().chain([line]).chain(tail.cloned()).collect()
    }
}
