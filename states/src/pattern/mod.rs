//! Patterns in arguments of state functions, with Salt's meaning. The compiler reads them to refuse
//! those that it does not understand; the minion reads the same text to match with.
//!
//! Salt matches with Python's `fnmatch` and `re`. A pattern that would mean something else here is
//! an error that names the form to write.

mod commented;
mod expression;
mod glob;
mod substitution;

pub use self::commented::Commented;
pub use self::expression::Expression;
pub use self::glob::PathGlob;
pub use self::substitution::{Flags, Inexact, Substitution};

/// A pattern that is not understood.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PatternError {
    /// A regular expression with a mistake, or one that is too large.
    #[error("`{pattern}` is not a regular expression")]
    Regex {
        /// The expression as given.
        pattern: String,
        /// The mistake.
        #[source]
        cause: regex_lite::Error,
    },
    /// A regular expression with a part that Python interprets differently.
    #[error("`{pattern}` has `{part}`, which means something else in Salt; write `{instead}`")]
    Other {
        /// The expression as given.
        pattern: String,
        /// The part.
        part: String,
        /// The part with one meaning only.
        instead: &'static str,
    },
    /// A flag of an expression that is not known.
    #[error("unknown flag `{flag}`; use IGNORECASE, MULTILINE or DOTALL")]
    Flag {
        /// The flag as given.
        flag: String,
    },
    /// A replacement with a mistake.
    #[error("`{replacement}` is not a replacement: {why}")]
    Replacement {
        /// The replacement as given.
        replacement: String,
        /// The mistake.
        why: &'static str,
    },
    /// A sign of comments that is empty, or part of an expression.
    #[error("`{sign}` cannot be the sign of a comment: it is empty, or special in expressions")]
    Sign {
        /// The sign as given.
        sign: String,
    },
    /// A shell pattern with a set that means something else than in a shell, or nothing.
    #[error("`{pattern}` has the set `{set}`, {meaning}; write `{instead}`")]
    Set {
        /// The pattern as given.
        pattern: String,
        /// The set.
        set: String,
        /// The meaning that the set has in Salt.
        meaning: &'static str,
        /// A set that has the probable meaning.
        instead: String,
    },
}

/// A line of a file, as `match`, `before` and `after` of `file.line` name it: a regular expression
/// that matches anywhere in the line, or a part of the line.
#[derive(Debug, Clone)]
pub struct LinePattern {
    part: String,
    expression: Expression,
}

impl LinePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// The text is not a valid regular expression; as in Salt, this is an error even if the text is
    /// part of a line.
    pub fn new(pattern: &str) -> Result<Self, PatternError> {
        Ok(Self {
            part: pattern.to_owned(),
            expression: Expression::new(pattern)?,
        })
    }

    /// Tests whether a line, given without its end, matches.
    #[must_use]
    pub fn is_match(&self, line: &str) -> bool {
        // Python sees the end of the line: `x\s` matches there, and `x$` before it.
        line.contains(&self.part)
            || self.expression.is_match(line)
            || self.expression.is_match(&format!("{line}\n"))
    }
}

/// A relative path, as `exclude_pat` names it: a shell pattern, or a regular expression after `E@`
/// that matches anywhere in the path.
#[derive(Debug, Clone)]
pub enum PathPattern {
    /// A shell pattern for the whole path.
    Glob(PathGlob),
    /// A regular expression.
    Expression(Expression),
}

impl PathPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A regular expression with a mistake, or a set that is not understood.
    pub fn new(pattern: &str) -> Result<Self, PatternError> {
        match pattern.strip_prefix("E@") {
            Some(expression) => Expression::new(expression).map(Self::Expression),
            None => PathGlob::new(pattern).map(Self::Glob),
        }
    }

    /// Tests whether a path matches.
    #[must_use]
    pub fn is_match(&self, path: &str) -> bool {
        match self {
            Self::Glob(glob) => glob.is_match(path),
            Self::Expression(expression) => expression.is_match(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_expression_or_part() {
        for (pattern, line, wanted) in [
            ("^PermitRoot", "PermitRootLogin yes", true),
            ("^PermitRoot", "#PermitRootLogin yes", false),
            ("yes$", "PermitRootLogin yes", true),
            ("a.c", "a.c", true),
            ("a.c", "abc", true),
            ("[b]", "[b]", true),
            ("^$", "", true),
            ("x\\s", "x", true),
            ("what?", "what?", true),
        ] {
            let found = LinePattern::new(pattern).unwrap().is_match(line);
            assert_eq!(found, wanted, "{pattern} {line}");
        }
    }

    #[test]
    fn a_path_is_found_by_glob_or_expression() {
        for (pattern, path, wanted) in [
            ("E@onf$", "d/a.conf", true),
            ("E@^a", "d/a.conf", false),
            ("[ab].conf", "b.conf", true),
            ("[ab].conf", "d/b.conf", false),
        ] {
            let found = PathPattern::new(pattern).unwrap().is_match(path);
            assert_eq!(found, wanted, "{pattern} {path}");
        }
        assert!(PathPattern::new("E@(a").is_err());
        assert!(PathPattern::new("(a").is_ok());
    }
}
