//! Shell patterns as Python's `fnmatch` reads them, matched without a regular expression.

use super::PatternError;

/// A pattern of `*`, `?`, `[abc]`, `[a-c]` and `[!abc]` for a whole text, case-sensitive. `*` also
/// matches slashes.
#[derive(Debug, Clone)]
pub struct PathGlob(Vec<Part>);

#[derive(Debug, Clone, PartialEq)]
enum Part {
    /// `*`.
    Any,
    /// `?`.
    One,
    Letter(char),
    Set {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Part {
    /// Tests whether the part, which is not `*`, takes the letter.
    fn takes(&self, letter: char) -> bool {
        match self {
            Self::Any | Self::One => true,
            Self::Letter(own) => *own == letter,
            Self::Set { negated, ranges } => {
                let within = |(from, to): &(char, char)| (*from..=*to).contains(&letter);
                ranges.iter().any(within) != *negated
            }
        }
    }
}

impl PathGlob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A set like `[[:alpha:]]`, `[^a]` or `[z-a]`: its meaning in a shell is not Python's.
    pub fn new(pattern: &str) -> Result<Self, PatternError> {
        let letters: Vec<char> = pattern.chars().collect();
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(letter) = letters.get(at) {
            at += 1;
            parts.push(match letter {
                '*' => Part::Any,
                '?' => Part::One,
                '[' => {
                    // A `]` that comes first belongs to the set.
                    let first = at + usize::from(letters.get(at) == Some(&'!'));
                    let length = letters
                        .iter()
                        .skip(first + 1)
                        .position(|letter| *letter == ']');
                    match length {
                        // Without an end the bracket is a letter.
                        None => Part::Letter('['),
                        Some(length) => {
                            let end = first + 1 + length;
                            let inner: String = letters.iter().skip(at).take(end - at).collect();
                            at = end + 1;
                            set(pattern, &inner)?
                        }
                    }
                }
                letter => Part::Letter(*letter),
            });
        }
        Ok(Self(parts))
    }

    /// Tests whether the whole text matches.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut at, mut here) = (0, 0);
        // After a letter that does not match, the last `*` takes one letter more.
        let mut last: Option<(usize, usize)> = None;
        while let Some(letter) = text.get(here) {
            match self.0.get(at) {
                Some(Part::Any) => {
                    at += 1;
                    last = Some((at, here));
                }
                Some(part) if part.takes(*letter) => (at, here) = (at + 1, here + 1),
                _ => {
                    let Some((after, taken)) = last else {
                        return false;
                    };
                    (at, here) = (after, taken + 1);
                    last = Some((at, here));
                }
            }
        }
        self.0.iter().skip(at).all(|part| *part == Part::Any)
    }
}

/// A set without its brackets.
fn set(pattern: &str, inner: &str) -> Result<Part, PatternError> {
    let wrong = |meaning, instead: String| {
        Err(PatternError::Set {
            pattern: pattern.to_owned(),
            set: format!("[{inner}]"),
            meaning,
            instead,
        })
    };
    if inner.starts_with("[:") && inner.ends_with(':') {
        return wrong(
            "whose class Salt does not know",
            "[a-z], [A-Z] or [0-9]".to_owned(),
        );
    }
    if let Some(rest) = inner.strip_prefix('^').filter(|rest| !rest.is_empty()) {
        return wrong("in which Salt takes ^ as a letter", format!("[!{rest}]"));
    }
    let (negated, inner) = match inner.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, inner),
    };
    let letters: Vec<char> = inner.chars().collect();
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(from) = letters.get(at).copied() {
        match (letters.get(at + 1), letters.get(at + 2).copied()) {
            (Some('-'), Some(to)) if from > to => {
                return wrong("whose range is empty", format!("[{to}-{from}]"));
            }
            (Some('-'), Some(to)) => {
                ranges.push((from, to));
                at += 3;
            }
            _ => {
                ranges.push((from, from));
                at += 1;
            }
        }
    }
    Ok(Part::Set { negated, ranges })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_fnmatchs() {
        for (pattern, text, wanted) in [
            ("*", "", true),
            ("*.conf", "a/b.conf", true),
            ("*.conf", "b.confx", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a*b*c", "aXbbYc", true),
            ("a*b*c", "acb", false),
            ("web[12]", "web2", true),
            ("web[!12]", "web2", false),
            ("web[!12]", "web3", true),
            ("[a-c]x", "bx", true),
            ("[a-c]x", "dx", false),
            ("[a-]x", "-x", true),
            ("[]]", "]", true),
            ("[!]]", "]", false),
            ("*[0-9].bak", "a/b7.bak", true),
            ("a.c", "abc", false),
            ("a[", "a[", true),
            ("{a,b}", "a", false),
            ("Web", "web", false),
        ] {
            let glob = PathGlob::new(pattern).unwrap();
            assert_eq!(glob.is_match(text), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn a_set_that_means_something_else_in_a_shell_is_refused_with_one_that_does_not() {
        for (pattern, instead) in [
            ("[[:alpha:]].conf", "[a-z], [A-Z] or [0-9]"),
            ("[^ab].conf", "[!ab]"),
            ("[z-a]", "[a-z]"),
        ] {
            let error = PathGlob::new(pattern).unwrap_err().to_string();
            assert!(error.ends_with(&format!("write `{instead}`")), "{error}");
        }
        assert!(PathGlob::new("[!ab].conf").is_ok());
    }
}
