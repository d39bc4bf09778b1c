//! `file.line`

use halite_states::low::Chunk;

use super::edit::Text;
use crate::host::Host;
use crate::modules::args::Args;
use crate::modules::{Failure, Plan, fail};

pub(in crate::modules) async fn line(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let file = Text::open(host, chunk, args.flag("create", false)?).await?;
    let spec = LineSpec::read(&args)?;
    let lines: Vec<String> = file.text.lines().map(str::to_owned).collect();
    let new = match spec.edit(&lines) {
        Ok(new) => new,
        // An earlier state of this plan may bring the lines that the edit refers to.
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
    let text = if new.is_empty() {
        String::new()
    } else {
        new.join("\n") + "\n"
    };
    Ok(file.plan_for(
        &text,
        args.show()?,
        Vec::new(),
        "Changes would be made".into(),
        "Changes were made".into(),
    ))
}

/// The edit that the arguments ask for cannot be made.
#[derive(Debug, thiserror::Error)]
enum LineError {
    #[error("`mode` is ensure, replace, insert or delete, not `{0}`")]
    Mode(String),
    #[error("`location` is start or end, not `{0}`")]
    Location(String),
    #[error("no line contains `{0}`")]
    NoLine(String),
    #[error("`mode: ensure` needs `after` or `before`")]
    EnsureWhere,
    #[error("`mode: insert` needs `location`, `after` or `before`")]
    InsertWhere,
}

/// The arguments of the state.
struct LineSpec {
    mode: String,
    content: String,
    matching: String,
    before: Option<String>,
    after: Option<String>,
    location: Option<String>,
    indent: bool,
}

impl LineSpec {
    fn read(args: &Args<'_>) -> Result<Self, Failure> {
        let mode = args.required("mode")?;
        let content = args.text("content")?.unwrap_or_default();
        let matching = args.text("match")?.unwrap_or_else(|| content.clone());
        if content.contains('\n') {
            return fail(
                "file.line: `content` must be one line; use file.append or file.blockreplace for more",
            );
        }
        if matching.is_empty() || (content.is_empty() && mode != "delete") {
            return fail("file.line: `content` is missing (with `mode: delete`, `match` will do)");
        }
        Ok(Self {
            mode,
            content,
            matching,
            before: args.text("before")?,
            after: args.text("after")?,
            location: args.text("location")?,
            indent: args.flag("indent", true)?,
        })
    }

    /// The lines after the edit.
    fn edit(&self, lines: &[String]) -> Result<Vec<String>, LineError> {
        match self.mode.as_str() {
            "delete" => Ok(lines
                .iter()
                .filter(|line| !line.contains(&self.matching))
                .cloned()
                .collect()),
            "replace" => Ok(lines
                .iter()
                .map(|line| {
                    if line.contains(&self.matching) {
                        self.indented_like(line)
                    } else {
                        line.clone()
                    }
                })
                .collect()),
            "ensure" => self.ensure(lines),
            "insert" => self.insert(lines),
            other => Err(LineError::Mode(other.to_owned())),
        }
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

    /// The lines that `after` and `before` name.
    fn neighbours(&self, lines: &[String]) -> Result<(Option<usize>, Option<usize>), LineError> {
        let find = |text: &Option<String>, from: usize| match text {
            None => Ok(None),
            Some(text) => match lines.iter().skip(from).position(|line| line.contains(text)) {
                Some(at) => Ok(Some(from + at)),
                None => Err(LineError::NoLine(text.clone())),
            },
        };
        let after = find(&self.after, 0)?;
        let before = find(&self.before, after.map_or(0, |at| at + 1))?;
        Ok((after, before))
    }

    fn ensure(&self, lines: &[String]) -> Result<Vec<String>, LineError> {
        let (after, before) = self.neighbours(lines)?;
        let (from, to) = (after.map_or(0, |at| at + 1), before.unwrap_or(lines.len()));
        if (from..to).any(|at| self.is_content(lines.get(at))) {
            return Ok(lines.to_vec());
        }
        match (after, before) {
            (Some(after), _) => Ok(self.with(lines, after + 1, after)),
            (None, Some(before)) => Ok(self.with(lines, before, before)),
            (None, None) => Err(LineError::EnsureWhere),
        }
    }

    fn insert(&self, lines: &[String]) -> Result<Vec<String>, LineError> {
        match self.location.as_deref() {
            Some("start") if self.is_content(lines.first()) => return Ok(lines.to_vec()),
            Some("end") if self.is_content(lines.last()) => return Ok(lines.to_vec()),
            Some("start") => return Ok(self.with(lines, 0, usize::MAX)),
            Some("end") => return Ok(self.with(lines, lines.len(), usize::MAX)),
            Some(other) => return Err(LineError::Location(other.to_owned())),
            None => {}
        }
        match self.neighbours(lines)? {
            (Some(after), _) if self.is_content(lines.get(after + 1)) => Ok(lines.to_vec()),
            (Some(after), _) => Ok(self.with(lines, after + 1, after)),
            (None, Some(before)) if before > 0 && self.is_content(lines.get(before - 1)) => {
                Ok(lines.to_vec())
            }
            (None, Some(before)) => Ok(self.with(lines, before, before)),
            (None, None) => Err(LineError::InsertWhere),
        }
    }

    /// The lines with the content at `at`, indented like line `neighbour`.
    fn with(&self, lines: &[String], at: usize, neighbour: usize) -> Vec<String> {
        let line = lines
            .get(neighbour)
            .map_or_else(|| self.content.clone(), |line| self.indented_like(line));
        let (head, tail) = (lines.iter().take(at), lines.iter().skip(at));
        head.cloned().chain([line]).chain(tail.cloned()).collect()
    }
}
