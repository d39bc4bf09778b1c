//! Regular expressions as Python's `re.search` reads them, in the common part of both languages.

use regex_lite::{Regex, RegexBuilder};

use super::PatternError;

/// Most bytes of a compiled expression.
pub(super) const SIZE: usize = 1 << 20;

/// A regular expression that matches anywhere in a text; `.` also matches the end of a line.
#[derive(Debug, Clone)]
pub struct Expression(Regex);

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// A mistake in the expression, one of Python's features that are missing here (lookaround,
    /// backreferences), or a part that Python interprets differently.
    pub fn new(pattern: &str) -> Result<Self, PatternError> {
        if let Some((part, instead)) = other_in_python(pattern) {
            return Err(PatternError::Other {
                pattern: pattern.to_owned(),
                part,
                instead,
            });
        }
        RegexBuilder::new(pattern)
            .dot_matches_new_line(true)
            .size_limit(SIZE)
            .build()
            .map(Self)
            .map_err(|cause| PatternError::Regex {
                pattern: pattern.to_owned(),
                cause,
            })
    }

    /// Tests whether it matches somewhere in the text.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// An expression that matches the text itself.
    #[must_use]
    pub fn literally(text: &str) -> String {
        regex_lite::escape(text)
    }
}

/// The first part of an expression that has another meaning in Python, and its replacement.
pub(super) fn other_in_python(pattern: &str) -> Option<(String, &'static str)> {
    let letters: Vec<char> = pattern.chars().collect();
    // Position of the first letter of the set that is open.
    let mut set: Option<usize> = None;
    let mut at = 0;
    while let Some(letter) = letters.get(at).copied() {
        let next = letters.get(at + 1).copied().unwrap_or_default();
        let found = match (letter, next, set) {
            ('\\', '<' | '>', None) => Some("\\b"),
            // Python does not look at what follows a backslash in a set either.
            ('\\', _, _) => {
                at += 2;
                continue;
            }
            ('[', ':', Some(_)) => Some("a-zA-Z or 0-9"),
            ('[', _, Some(_)) => Some("\\["),
            ('&', '&', Some(_)) => Some("&"),
            ('~', '~', Some(_)) => Some("~"),
            ('-', '-', Some(_)) => Some("\\-"),
            ('*' | '+' | '?' | '}', '+', None) => Some("the expression without `+`"),
            _ => None,
        };
        if let Some(instead) = found {
            return Some(([letter, next].iter().collect(), instead));
        }
        match (letter, set) {
            ('[', None) => set = Some(at + 1 + usize::from(next == '^')),
            // A `]` that comes first belongs to the set.
            (']', Some(first)) if at > first => set = None,
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_match_anywhere() {
        for (pattern, text, wanted) in [
            ("b+", "abbc", true),
            ("^b", "abbc", false),
            ("a.c", "a\nc", true),
            ("(?i)ABC", "xabc", true),
            ("(?P<name>a)\\d{2,3}", "a12", true),
            ("[]x]", "]", true),
            ("\\bend\\b", "the end", true),
            ("[^]a]$", "]", false),
        ] {
            let expression = Expression::new(pattern).unwrap();
            assert_eq!(expression.is_match(text), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn expressions_that_python_reads_differently_are_refused() {
        for (pattern, part) in [
            ("\\<end", "\\<"),
            ("[[:alpha:]]", "[:"),
            ("[a[b]", "[b"),
            ("[a&&b]", "&&"),
            ("[a--b]", "--"),
            ("a++", "++"),
        ] {
            let error = Expression::new(pattern).unwrap_err().to_string();
            assert!(error.contains(&format!("has `{part}`")), "{error}");
        }
        for pattern in ["(a", "a(?=b)", "(a)\\1", "*a", "a{", "\\Z", "[z-a]"] {
            let error = Expression::new(pattern).unwrap_err();
            assert!(matches!(error, PatternError::Regex { .. }), "{pattern}");
        }
    }

    #[test]
    fn a_text_can_be_written_as_an_expression() {
        for text in ["foo(bar", "[section]", "a++", "\\<x", "1.2"] {
            let expression = Expression::new(&Expression::literally(text)).unwrap();
            assert!(expression.is_match(&format!("a {text} b")), "{text}");
        }
    }
}
