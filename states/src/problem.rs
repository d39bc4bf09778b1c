//! What is wrong with an input, where, and what to do about it. Nothing stops at the first one:
//! they are collected.

use std::fmt;

use crate::low::Position;

/// One problem in a file that a person wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file as the reader knows it: a path in the state tree, or a path on disk.
    pub file: String,
    /// Line in that file, from 1; 0 when the problem has no place (a missing file).
    pub line: u32,
    /// Column, from 1; 0 when only the line is known.
    pub column: u32,
    /// Dotted path in the document, for example `networks.pods`; empty when there is none.
    pub path: String,
    /// What is wrong, one sentence.
    pub message: String,
    /// What to do; may be empty.
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

    /// Adds what to do.
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

    /// Takes the excerpt from the text of the file, unless there is one already.
    #[must_use]
    pub fn excerpt_from(self, text: &str) -> Self {
        if self.excerpt.is_empty() && self.line > 0 {
            let line = text.lines().nth(self.line as usize - 1).unwrap_or_default();
            return self.excerpt_of(line);
        }
        self
    }

    /// Adds the line that is shown.
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

/// The candidate that was probably meant: the nearest by edit distance, if near enough.
#[must_use]
pub fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= limit && *candidate != word)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edit distance with transpositions of neighbours counted as one (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1)
                .min(rows[i][j - 1] + 1)
                .min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

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

    #[test]
    fn suggests_only_what_is_near() {
        assert_eq!(
            did_you_mean("contentz", ["contents", "context"]),
            Some("contents")
        );
        assert_eq!(
            did_you_mean("managde", ["managed", "absent"]),
            Some("managed")
        );
        assert_eq!(did_you_mean("xyz", ["managed", "absent"]), None);
    }
}
