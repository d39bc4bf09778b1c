//! Shell patterns as Python's `fnmatch` reads them, and regular expressions anchored as Python's
//! `re.match`.
//!
//! The patterns are Salt's, so the `globset` crate cannot replace this module: there `{a,b}` is an
//! alternative, `\` escapes, `[^a]` negates, `**` is special, `?` takes one byte, and a `[` without
//! `]` is an error; in `fnmatch` the first four are ordinary characters, `?` takes one character,
//! and an open `[` is a letter.

use regex::{Regex, RegexBuilder};

/// A pattern of `*`, `?`, `[abc]` and `[!abc]`, for a whole text, case-sensitive.
#[derive(Debug, Clone)]
pub(crate) enum Glob {
    /// `*`.
    Any,
    /// A text without special characters.
    Text(String),
    /// Letters, `*` and `?` only.
    Wild(Vec<char>),
    /// A pattern with sets, as a regular expression.
    Pattern(Regex),
}

/// A pattern that cannot be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PatternError {
    /// A shell pattern with a set like `[z-a]`.
    #[error("`{pattern}` is not a shell pattern")]
    Glob {
        /// The pattern as given.
        pattern: String,
        /// The mistake in the set.
        #[source]
        cause: RegexError,
    },
    /// A regular expression with a mistake, or one that is too large.
    #[error("`{pattern}` is not a regular expression")]
    Regex {
        /// The expression as given.
        pattern: String,
        /// The mistake.
        #[source]
        cause: RegexError,
    },
}

/// The reason of a [`regex::Error`] in one line, without its drawing of the place.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}", reason(.0))]
pub struct RegexError(#[from] regex::Error);

fn reason(error: &regex::Error) -> String {
    let error = error.to_string();
    let last = error.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A set like `[z-a]`, whose ends are reversed.
    pub(crate) fn new(pattern: &str) -> Result<Self, PatternError> {
        // A regular expression takes longer to compile than to match.
        match pattern {
            "*" => Ok(Self::Any),
            text if !Self::is_pattern(text) => Ok(Self::Text(text.to_owned())),
            wild if !wild.contains('[') => Ok(Self::Wild(wild.chars().collect())),
            _ => expression(pattern).map(Self::Pattern),
        }
    }

    /// Tests whether the whole text matches.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Text(whole) => whole == text,
            Self::Wild(pattern) => wild(pattern, text),
            Self::Pattern(regex) => regex.is_match(text),
        }
    }

    /// Tests whether a text has a special character.
    pub(crate) fn is_pattern(text: &str) -> bool {
        text.contains(['*', '?', '['])
    }
}

/// Matches a pattern of letters, `*` and `?`. After a letter that does not match, the last `*`
/// takes one letter more.
fn wild(pattern: &[char], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut here) = (0, 0);
    let mut last: Option<(usize, usize)> = None;
    while here < text.len() {
        match pattern.get(at) {
            Some('*') => {
                at += 1;
                last = Some((at, here));
            }
            Some(c) if *c == '?' || *c == text[here] => (at, here) = (at + 1, here + 1),
            _ => {
                let Some((after, taken)) = last else {
                    return false;
                };
                (at, here) = (after, taken + 1);
                last = Some((at, here));
            }
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

/// Any pattern as a regular expression.
fn expression(pattern: &str) -> Result<Regex, PatternError> {
    let mut regex = String::from("(?s)^");
    let chars: Vec<char> = pattern.chars().collect();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        at += 1;
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '[' => {
                let negated = chars.get(at) == Some(&'!');
                let first = at + usize::from(negated);
                // A `]` that comes first belongs to the set; without an end the bracket is a
                // letter.
                let end = (first + 1..chars.len()).find(|end| chars[*end] == ']');
                let Some(end) = end else {
                    regex.push_str("\\[");
                    continue;
                };
                regex.push_str(if negated { "[^" } else { "[" });
                for c in &chars[first..end] {
                    if matches!(c, '\\' | '[' | ']' | '^' | '&' | '~') {
                        regex.push('\\');
                    }
                    regex.push(*c);
                }
                regex.push(']');
                at = end + 1;
            }
            c => regex.push_str(&regex::escape(&c.to_string())),
        }
    }
    regex.push('$');
    compile(&regex).map_err(|cause| PatternError::Glob {
        pattern: pattern.to_owned(),
        cause,
    })
}

/// A regular expression that must match at the start of the text.
///
/// # Errors
/// A mistake in the expression, or an expression that is too large.
pub(crate) fn anchored(pattern: &str) -> Result<Regex, PatternError> {
    compile(&format!("^(?:{pattern})")).map_err(|cause| PatternError::Regex {
        pattern: pattern.to_owned(),
        cause,
    })
}

fn compile(pattern: &str) -> Result<Regex, RegexError> {
    Ok(RegexBuilder::new(pattern).size_limit(1 << 20).build()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_pattern_without_sets_matches_what_its_expression_matches(pattern in "[ab*?]{0,6}", text in "[ab\n]{0,6}") {
            let glob = Glob::new(&pattern).unwrap();
            prop_assert_eq!(glob.is_match(&text), expression(&pattern).unwrap().is_match(&text));
        }
    }

    #[test]
    fn patterns_are_fnmatchs() {
        for (pattern, text, wanted) in [
            ("*", "", true),
            ("web*", "web-1.prod", true),
            ("web?", "web12", false),
            ("web[12]", "web2", true),
            ("web[!12]", "web2", false),
            ("[]]", "]", true),
            ("a.c", "abc", false),
            ("a[", "a[", true),
            ("{a,b}", "a", false),
            ("Web", "web", false),
        ] {
            assert_eq!(
                Glob::new(pattern).unwrap().is_match(text),
                wanted,
                "{pattern} {text}"
            );
        }
        assert!(Glob::new("[z-a]").is_err());
    }
}
