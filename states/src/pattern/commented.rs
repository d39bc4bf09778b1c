//! Lines that are commented, as Salt's `file.comment` and `file.uncomment` find them.

use regex_lite::Regex;

use super::PatternError;
use super::substitution::{Flags, Inexact, expression, is_same_in};

/// An expression for lines, and the sign of a comment in front of them.
#[derive(Debug, Clone)]
pub struct Commented {
    pattern: String,
    sign: String,
    /// Blanks and the expression, at the start of the rest of a text.
    plain: Regex,
    /// Blanks and the sign, at the start of the rest of a text.
    sign_first: Regex,
    /// The sign and the expression, anywhere.
    commented: Regex,
    /// The sign, spaces and the expression, anywhere.
    spaced: Regex,
    /// Spaces and the expression, at the start of a line.
    uncommented: Regex,
    /// The expression at the start of a line.
    of_line: Ends,
    /// The sign, blanks and the expression at the start of a line.
    of_comment: Ends,
}

/// An expression at the start of a line, which may have to reach its end.
#[derive(Debug, Clone)]
struct Ends {
    regex: Regex,
}

impl Ends {
    fn new(core: &str, to_end: bool) -> Result<Self, PatternError> {
        let end = if to_end { "\\n?\\z" } else { "" };
        let regex = expression(&format!("\\A(?:{core}){end}"), Flags::default())?;
        Ok(Self { regex })
    }

    fn is_match(&self, line: &str) -> bool {
        self.regex.is_match(line)
    }
}

impl Commented {
    /// Reads the expression of the lines, and the sign of a comment.
    ///
    /// # Errors
    /// A mistake in the expression, or a part that Python interprets differently.
    pub fn new(pattern: &str, sign: &str) -> Result<Self, PatternError> {
        let special = |letter: char| "\\.^$*+?{}[]|()".contains(letter);
        if sign.is_empty() || sign.contains(special) {
            return Err(PatternError::Sign {
                sign: sign.to_owned(),
            });
        }
        if let Some((part, instead)) = unclear(pattern) {
            return Err(PatternError::Other {
                pattern: pattern.to_owned(),
                part: part.to_owned(),
                instead,
            });
        }
        let start = pattern.trim_start_matches('^');
        let core = start.trim_end_matches('$');
        let to_end = pattern.ends_with('$');
        // Salt removes one `^` and one `$` for its searches.
        let searched = pattern.strip_prefix('^').unwrap_or(pattern);
        let searched = searched.strip_suffix('$').unwrap_or(searched);
        let read = |text: String| expression(&text, Flags::default());
        Ok(Self {
            pattern: pattern.to_owned(),
            sign: sign.to_owned(),
            plain: read(format!("\\A\\s*{searched}"))?,
            sign_first: read(format!("\\A\\s*{sign}"))?,
            commented: read(format!("{sign}{searched}"))?,
            spaced: read(format!("{sign}[ \\t]*{start}"))?,
            uncommented: read(format!("^[ \\t]*{start}"))?,
            of_line: Ends::new(core, to_end)?,
            of_comment: Ends::new(&format!("{sign}\\s*(?:{core})"), to_end)?,
        })
    }

    /// Tests whether a text can be searched exactly as Salt does.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(&self, text: &str) -> Result<(), Inexact> {
        if is_same_in(&self.pattern, Flags::default(), text) {
            Ok(())
        } else {
            Err(Inexact::NotAscii(self.pattern.clone()))
        }
    }

    /// Tests whether a text has such a line that is not commented, for `file.comment`.
    #[must_use]
    pub fn has_plain(&self, text: &str) -> bool {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
        let mut rests = starts.map(|at| &text[at..]);
        rests.any(|rest| !self.sign_first.is_match(rest) && self.plain.is_match(rest))
    }

    /// Tests whether a text has the expression directly behind the sign.
    #[must_use]
    pub fn has_commented(&self, text: &str) -> bool {
        self.commented.is_match(text)
    }

    /// Tests whether a text has the expression behind the sign, for `file.uncomment`.
    #[must_use]
    pub fn has_spaced(&self, text: &str) -> bool {
        self.spaced.is_match(text)
    }

    /// Tests whether a text has such a line that is not commented, for `file.uncomment`.
    #[must_use]
    pub fn has_uncommented(&self, text: &str) -> bool {
        self.uncommented.is_match(text)
    }

    /// The text with the sign in front of each such line.
    #[must_use]
    pub fn comment(&self, text: &str) -> String {
        each_line(text, |line, out| {
            if self.of_line.is_match(line) {
                out.push_str(&self.sign);
            }
            out.push_str(line);
        })
    }

    /// The text with the signs in front of each such line removed.
    #[must_use]
    pub fn uncomment(&self, text: &str) -> String {
        each_line(text, |line, out| {
            let line = if self.of_comment.is_match(line) {
                line.trim_start_matches(|letter| self.sign.contains(letter))
            } else {
                line
            };
            out.push_str(line);
        })
    }
}

fn each_line(text: &str, write: impl Fn(&str, &mut String)) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        write(line, &mut out);
    }
    out
}

/// A part whose effect depends on how Salt puts its own expressions together.
fn unclear(pattern: &str) -> Option<(&'static str, &'static str)> {
    if pattern.starts_with("(?") && !pattern.starts_with("(?:") && !pattern.starts_with("(?P<") {
        return Some(("(?", "the expression without flags"));
    }
    let mut depth = 0usize;
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                letters.next();
            }
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return Some(("|", "(a|b)")),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commented_and_uncommented() {
        let port = Commented::new("^port\\s*=.+", "#").unwrap();
        let text = "a\nport = 1\n#port = 2\n  port = 3\n";
        assert!(port.has_plain(text) && port.has_commented(text));
        assert_eq!(port.comment(text), "a\n#port = 1\n#port = 2\n  port = 3\n");
        assert_eq!(port.uncomment(text), "a\nport = 1\nport = 2\n  port = 3\n");
        let end = Commented::new("^a$", "//").unwrap();
        assert_eq!(end.comment("a\nab\n"), "//a\nab\n");
        assert_eq!(end.uncomment("// a\n//ab\n//a"), " a\n//ab\na");
        for (pattern, sign) in [("a|b", "#"), ("(?i)a", "#"), ("a", "."), ("(a", "#")] {
            assert!(Commented::new(pattern, sign).is_err(), "{pattern}");
        }
        assert!(Commented::new("(a|b)", ";").is_ok());
    }
}
