//! A problem in an input: its place, the message and the remedy. Readers collect all
//! problems of an input instead of stopping at the first.

use std::fmt;

use crate::position::Position;

/// One problem in a file that a person wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file as the reader knows it: a path in the state tree, or a path on disk.
    pub file: String,
    /// Line in that file, from 1; 0 if the problem has no place (for example a missing file).
    pub line: u32,
    /// Column, from 1; 0 if only the line is known.
    pub column: u32,
    /// Dotted path in the document, for example `networks.pods`; empty if there is none.
    pub path: String,
    /// The problem in one sentence.
    pub message: String,
    /// The remedy; may be empty.
    pub hint: String,
    /// The source line; may be empty.
    pub excerpt: String,
}

impl Problem {
    /// A problem at a position.
    #[must_use]
    pub fn at(position: &Position, message: impl Into<String>) -> Self {
        Self {
            file: position.file.clone(),
            line: position.line,
            column: position.column,
            message: message.into(),
            ..Self::default()
        }
    }

    /// A problem of a whole file, or of a name.
    #[must_use]
    pub fn in_file(file: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// Adds the remedy.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Adds the dotted path in the document.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Takes the excerpt from the text of the file, unless the problem already has one.
    #[must_use]
    pub fn excerpt_from(self, text: &str) -> Self {
        if self.excerpt.is_empty() && self.line > 0 {
            let line = text.lines().nth(self.line as usize - 1).unwrap_or_default();
            return self.excerpt_of(line);
        }
        self
    }

    /// Adds the source line, cut after 160 characters.
    #[must_use]
    pub fn excerpt_of(mut self, line: &str) -> Self {
        self.excerpt = line.trim_end().chars().take(160).collect();
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.is_empty(), self.line, self.column) {
            (true, ..) => {}
            (false, 0, _) => write!(f, "{}: ", self.file)?,
            (false, line, 0) => write!(f, "{}:{line}: ", self.file)?,
            (false, line, column) => write!(f, "{}:{line}:{column}: ", self.file)?,
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if !self.excerpt.is_empty() {
            write!(f, "\n   | {}", self.excerpt)?;
        }
        if !self.hint.is_empty() {
            write!(f, "\n   = {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_place_excerpt_and_hint() {
        let position = Position {
            file: "base/etcd.sls".into(),
            line: 2,
            column: 3,
        };
        let problem = Problem::at(&position, "unknown argument `contentz`")
            .hint("did you mean `contents`?")
            .excerpt_from("a:\n  - contentz: x\n");
        assert_eq!(
            problem.to_string(),
            "base/etcd.sls:2:3: unknown argument `contentz`\n   |   - contentz: x\n   = did you mean `contents`?"
        );
    }
}
