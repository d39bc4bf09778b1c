//! Replacements as Python's `re.sub` makes them, in the common part of both languages.

use std::borrow::Cow;

use regex_lite::{Captures, Regex, RegexBuilder};
use serde_json::Value;

use super::PatternError;
use super::expression::{SIZE, other_in_python};

/// Python's flags of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags {
    ignore_case: bool,
    multi_line: bool,
    dot_all: bool,
}

impl Default for Flags {
    /// Salt's default: `^` and `$` match at each line.
    fn default() -> Self {
        Self {
            ignore_case: false,
            multi_line: true,
            dot_all: false,
        }
    }
}

impl Flags {
    /// Reads `flags`: names, or the sum of Python's numbers.
    ///
    /// # Errors
    /// A flag that does not exist here.
    pub fn read(value: Option<&Value>) -> Result<Self, PatternError> {
        let mut flags = Self {
            multi_line: false,
            ..Self::default()
        };
        let unknown = |flag: String| PatternError::Flag { flag };
        let names: Vec<&Value> = match value {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Number(number)) => {
                let bits = number.as_u64().filter(|bits| bits & !(2 | 8 | 16) == 0);
                let bits = bits.ok_or_else(|| unknown(number.to_string()))?;
                return Ok(Self {
                    ignore_case: bits & 2 != 0,
                    multi_line: bits & 8 != 0,
                    dot_all: bits & 16 != 0,
                });
            }
            Some(Value::Array(names)) => names.iter().collect(),
            Some(name) => vec![name],
        };
        for name in names {
            let text = name.as_str().unwrap_or_default();
            match text.to_uppercase().as_str() {
                "I" | "IGNORECASE" => flags.ignore_case = true,
                "M" | "MULTILINE" => flags.multi_line = true,
                "S" | "DOTALL" => flags.dot_all = true,
                _ => return Err(unknown(text.to_owned())),
            }
        }
        Ok(flags)
    }
}

/// Reads an expression with flags.
pub(super) fn expression(pattern: &str, flags: Flags) -> Result<Regex, PatternError> {
    let other = other_in_python(pattern).or_else(|| {
        // Without `MULTILINE`, Python's `$` also matches before a newline at the end.
        let end = !flags.multi_line && pattern.contains('$');
        end.then(|| ("$".to_owned(), "flags: [MULTILINE]"))
    });
    if let Some((part, instead)) = other {
        return Err(PatternError::Other {
            pattern: pattern.to_owned(),
            part,
            instead,
        });
    }
    RegexBuilder::new(pattern)
        .case_insensitive(flags.ignore_case)
        .multi_line(flags.multi_line)
        .dot_matches_new_line(flags.dot_all)
        .size_limit(SIZE)
        .build()
        .map_err(|cause| PatternError::Regex {
            pattern: pattern.to_owned(),
            cause,
        })
}

/// Tests whether an expression matches the same in both languages: in a text that is not ASCII,
/// Python compares bytes, or knows letters of other alphabets.
pub(super) fn is_same_in(pattern: &str, flags: Flags, text: &str) -> bool {
    let by_class = [
        ".", "\\w", "\\W", "\\d", "\\D", "\\s", "\\S", "\\b", "\\B", "[^",
    ];
    text.is_ascii() && pattern.is_ascii()
        || !flags.ignore_case && !by_class.iter().any(|class| pattern.contains(class))
}

/// A part of a replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Group(usize),
}

/// An expression with its replacement.
#[derive(Debug, Clone)]
pub struct Substitution {
    pattern: String,
    flags: Flags,
    regex: Regex,
    parts: Vec<Part>,
}

/// A text in which a replacement would not be the one that Salt makes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Inexact {
    /// The expression matches where there is nothing.
    #[error("`{0}` matches an empty text")]
    Empty(String),
    /// The text has letters that the expression would find in Python only.
    #[error("`{0}` has no exact meaning in a text that is not ASCII")]
    NotAscii(String),
}

impl Substitution {
    /// Reads an expression and its replacement, in which `\1` and `\g<name>` are groups unless it
    /// is `literal`.
    ///
    /// # Errors
    /// A mistake in one of them, or a part that Python interprets differently.
    pub fn new(
        pattern: &str,
        replacement: &str,
        flags: Flags,
        literal: bool,
    ) -> Result<Self, PatternError> {
        let regex = expression(pattern, flags)?;
        let parts = if literal {
            vec![Part::Text(replacement.to_owned())]
        } else {
            parts(&regex, replacement).map_err(|why| PatternError::Replacement {
                replacement: replacement.to_owned(),
                why,
            })?
        };
        Ok(Self {
            pattern: pattern.to_owned(),
            flags,
            regex,
            parts,
        })
    }

    /// The text with its first `most` matches replaced (0: all), and the number of matches.
    ///
    /// # Errors
    /// The replacement would not be Salt's.
    pub fn replace<'t>(
        &self,
        text: &'t str,
        most: usize,
    ) -> Result<(Cow<'t, str>, usize), Inexact> {
        if !is_same_in(&self.pattern, self.flags, text) {
            return Err(Inexact::NotAscii(self.pattern.clone()));
        }
        let mut replaced = String::new();
        let (mut end, mut count) = (0, 0);
        while (most == 0 || count < most)
            && let Some(found) = self.captures_at(text, end)
        {
            let Some(whole) = found.get(0) else { break };
            if whole.range().is_empty() {
                return Err(Inexact::Empty(self.pattern.clone()));
            }
            replaced.push_str(&text[end..whole.start()]);
            for part in &self.parts {
                match part {
                    Part::Text(text) => replaced.push_str(text),
                    Part::Group(group) => {
                        replaced.push_str(found.get(*group).map_or("", |group| group.as_str()));
                    }
                }
            }
            end = whole.end();
            count += 1;
        }
        if count == 0 {
            return Ok((Cow::Borrowed(text), 0));
        }
        replaced.push_str(&text[end..]);
        Ok((Cow::Owned(replaced), count))
    }

    fn captures_at<'t>(&self, text: &'t str, start: usize) -> Option<Captures<'t>> {
        self.regex.captures_at(text, start)
    }
}

/// Python's replacement, with its escapes and references to groups.
fn parts(regex: &Regex, replacement: &str) -> Result<Vec<Part>, &'static str> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut letters = replacement.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        let group = match letters.next() {
            Some('n') => {
                text.push('\n');
                continue;
            }
            Some('t') => {
                text.push('\t');
                continue;
            }
            Some('r') => {
                text.push('\r');
                continue;
            }
            Some('\\') => {
                text.push('\\');
                continue;
            }
            Some('g') => {
                if letters.next() != Some('<') {
                    return Err("`\\g` needs a group: `\\g<1>`");
                }
                let name: String = letters.by_ref().take_while(|c| *c != '>').collect();
                let by_name = || regex.capture_names().position(|known| known == Some(&name));
                name.parse().ok().or_else(by_name)
            }
            Some(digit @ '1'..='9') => {
                let mut number = digit.to_digit(10).unwrap_or_default() as usize;
                while let Some(digit) = letters.peek().and_then(|next| next.to_digit(10)) {
                    letters.next();
                    number = number.saturating_mul(10).saturating_add(digit as usize);
                }
                Some(number)
            }
            Some(letter) if letter.is_ascii_alphanumeric() => {
                return Err("a backslash before this letter has no meaning; write it twice");
            }
            Some(other) => {
                text.extend(['\\', other]);
                continue;
            }
            None => return Err("it ends with a backslash; write it twice"),
        };
        match group.filter(|group| *group < regex.captures_len()) {
            Some(group) => {
                parts.push(Part::Text(std::mem::take(&mut text)));
                parts.push(Part::Group(group));
            }
            None => return Err("the expression has no such group"),
        }
    }
    parts.push(Part::Text(text));
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn replaced(pattern: &str, with: &str, text: &str) -> String {
        let substitution = Substitution::new(pattern, with, Flags::default(), false);
        let substitution = substitution.map_err(|error| error.to_string()).unwrap();
        match substitution.replace(text, 0) {
            Ok((text, _)) => text.into_owned(),
            Err(inexact) => inexact.to_string(),
        }
    }

    #[test]
    fn replacements_are_pythons() {
        for (pattern, with, text, wanted) in [
            (
                "ENABLED=0$",
                "ENABLED=1",
                "a\nENABLED=0\nb\n",
                "a\nENABLED=1\nb\n",
            ),
            (
                "^(\\w+)\\t+(\\w)",
                "\\1 \\2",
                "a\tb\nc\t\td\n",
                "a b\nc d\n",
            ),
            ("(?P<k>a)(b)?", "[\\g<k>\\2\\g<0>]", "a ab", "[aa] [abab]"),
            ("a", "\\\\\\n\\-$1", "a", "\\\n\\-$1"),
            ("x*", "y", "axb", "`x*` matches an empty text"),
            (
                "a.b",
                "y",
                "aéb",
                "`a.b` has no exact meaning in a text that is not ASCII",
            ),
            ("b", "y", "éb", "éy"),
        ] {
            assert_eq!(replaced(pattern, with, text), wanted, "{pattern}");
        }
        for (pattern, with) in [
            ("a", "\\1"),
            ("a", "\\q"),
            ("a", "x\\"),
            ("(a", "b"),
            ("a++", "b"),
        ] {
            assert!(
                Substitution::new(pattern, with, Flags::default(), false).is_err(),
                "{pattern} {with}"
            );
        }
    }

    #[test]
    fn flags_are_names_or_pythons_numbers() {
        let all = Flags {
            ignore_case: true,
            multi_line: true,
            dot_all: true,
        };
        for (value, wanted) in [
            (json!(["MULTILINE", "ignorecase", "DOTALL"]), all),
            (json!(26), all),
            (json!(8), Flags::default()),
            (json!("MULTILINE"), Flags::default()),
        ] {
            assert_eq!(Flags::read(Some(&value)).unwrap(), wanted);
        }
        assert!(Flags::read(Some(&json!(1))).is_err());
        assert!(Flags::read(Some(&json!("VERBOSE"))).is_err());
    }
}
