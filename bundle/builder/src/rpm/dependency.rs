//! The syntax of rpm's dependencies (rpm.org, "Dependencies" and "Boolean Dependencies").

use std::cmp::Ordering;

use halite_fetch::yum::{Flag, Need, Version};

/// A requirement of a package. (`unless` is only for conflicts.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dependency {
    /// A name, possibly with a bound on its version.
    One(Need),
    /// All parts: `(a and b)`.
    And(Vec<Dependency>),
    /// Any part: `(a or b)`.
    Or(Vec<Dependency>),
    /// The first if the second holds, otherwise the third: `(a if b else c)`.
    If(Box<Dependency>, Box<Dependency>, Option<Box<Dependency>>),
    /// All parts, satisfied by one package: `(a with b)`.
    With(Vec<Dependency>),
    /// The first, satisfied by a package that does not satisfy the second: `(a without b)`.
    Without(Box<Dependency>, Box<Dependency>),
}

/// A dependency that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot parse the dependency {text:?}: {problem} at {rest:?}")]
pub struct InvalidDependency {
    text: String,
    problem: Problem,
    /// The text from the problem on.
    rest: String,
}

/// The reason why a dependency cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("unexpected text")]
    Rest,
    #[error("missing end")]
    NoEnd,
    #[error("unknown operator {0:?}, or too many parts")]
    Word(String),
    #[error("missing name")]
    NoName,
    #[error("unknown operator")]
    Operator,
    #[error("missing version")]
    NoVersion,
}

impl Dependency {
    /// Parses an entry of an index, in which a boolean dependency may replace the name.
    ///
    /// # Errors
    /// The part that is invalid.
    pub fn of(need: &Need) -> Result<Self, InvalidDependency> {
        if need.name.starts_with('(') {
            Self::parse(&need.name)
        } else {
            Ok(Self::One(need.clone()))
        }
    }

    /// Parses `NAME`, `NAME OPERATOR VERSION`, or a boolean dependency.
    ///
    /// # Errors
    /// The part that is invalid.
    pub fn parse(text: &str) -> Result<Self, InvalidDependency> {
        let mut reader = Reader {
            text,
            rest: text.trim(),
        };
        let found = reader.operand()?;
        if reader.rest.is_empty() {
            Ok(found)
        } else {
            Err(reader.wrong(Problem::Rest))
        }
    }
}

/// Parses `NAME` or `NAME OPERATOR VERSION`.
///
/// # Errors
/// The part that is invalid.
pub fn need(text: &str) -> Result<Need, InvalidDependency> {
    match Dependency::parse(text)? {
        Dependency::One(need) => Ok(need),
        _ => Ok(Need {
            name: text.trim().to_owned(),
            version: None,
        }),
    }
}

/// Parses `[EPOCH:]VERSION[-RELEASE]`.
pub fn version(text: &str) -> Version {
    let (epoch, rest) = match text.split_once(':') {
        Some((epoch, rest)) => (epoch.parse().unwrap_or(0), rest),
        None => (0, text),
    };
    let (version, release) = rest.rsplit_once('-').unwrap_or((rest, ""));
    Version {
        epoch,
        version: version.to_owned(),
        release: release.to_owned(),
    }
}

/// Returns `true` if a provided name satisfies a need: the same name, and bounds with a version in
/// common. If one of the two names no version, the other's version does not matter.
pub fn matches(provided: &Need, needed: &Need) -> bool {
    if provided.name != needed.name {
        return false;
    }
    let (Some((have, at)), Some((want, bound))) = (&provided.version, &needed.version) else {
        return true;
    };
    let up = |flag: &Flag| matches!(flag, Flag::Gt | Flag::Ge);
    let down = |flag: &Flag| matches!(flag, Flag::Lt | Flag::Le);
    let exact = |flag: &Flag| matches!(flag, Flag::Eq | Flag::Le | Flag::Ge);
    match at.order(bound) {
        Ordering::Less => up(have) || down(want),
        Ordering::Greater => down(have) || up(want),
        Ordering::Equal => {
            exact(have) && exact(want) || up(have) && up(want) || down(have) && down(want)
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn wrong(&self, problem: Problem) -> InvalidDependency {
        InvalidDependency {
            text: self.text.to_owned(),
            problem,
            rest: self.rest.to_owned(),
        }
    }

    fn operand(&mut self) -> Result<Dependency, InvalidDependency> {
        match self.rest.strip_prefix('(') {
            Some(rest) => {
                self.rest = rest.trim_start();
                let found = self.inside()?;
                self.rest = self
                    .rest
                    .strip_prefix(')')
                    .ok_or_else(|| self.wrong(Problem::NoEnd))?
                    .trim_start();
                Ok(found)
            }
            None => self.one().map(Dependency::One),
        }
    }

    /// Parses the text between parentheses.
    fn inside(&mut self) -> Result<Dependency, InvalidDependency> {
        let first = self.operand()?;
        let word = self.word();
        if word.is_empty() {
            return Ok(first);
        }
        let mut operands = vec![first];
        let mut next = word;
        while next == word {
            self.rest = self.rest[word.len()..].trim_start();
            operands.push(self.operand()?);
            next = self.word();
        }
        let otherwise = match (word, next) {
            ("if", "else") => {
                self.rest = self.rest["else".len()..].trim_start();
                Some(Box::new(self.operand()?))
            }
            _ => None,
        };
        let wrong = self.wrong(Problem::Word(word.to_owned()));
        let two = |mut operands: Vec<Dependency>| match (
            operands.pop(),
            operands.pop(),
            operands.pop(),
        ) {
            (Some(second), Some(first), None) => Ok((Box::new(first), Box::new(second))),
            _ => Err(wrong.clone()),
        };
        Ok(match word {
            "and" => Dependency::And(operands),
            "or" => Dependency::Or(operands),
            "with" => Dependency::With(operands),
            "if" => two(operands).map(|(a, b)| Dependency::If(a, b, otherwise))?,
            "without" => two(operands).map(|(a, b)| Dependency::Without(a, b))?,
            _ => return Err(wrong),
        })
    }

    fn word(&self) -> &'a str {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(self.rest.len());
        &self.rest[..end]
    }

    fn one(&mut self) -> Result<Need, InvalidDependency> {
        let name = self.token();
        if name.is_empty() {
            return Err(self.wrong(Problem::NoName));
        }
        let end = self
            .rest
            .find(|c| !"<>=".contains(c))
            .unwrap_or(self.rest.len());
        let flag = match &self.rest[..end] {
            "" => {
                return Ok(Need {
                    name: name.to_owned(),
                    version: None,
                });
            }
            "<" => Flag::Lt,
            "<=" | "=<" => Flag::Le,
            "=" | "==" => Flag::Eq,
            ">=" | "=>" => Flag::Ge,
            ">" => Flag::Gt,
            _ => return Err(self.wrong(Problem::Operator)),
        };
        self.rest = self.rest[end..].trim_start();
        let bound = self.token();
        if bound.is_empty() {
            return Err(self.wrong(Problem::NoVersion));
        }
        Ok(Need {
            name: name.to_owned(),
            version: Some((flag, version(bound))),
        })
    }

    /// Reads up to a space, or to a parenthesis that was not opened in the token: names may contain
    /// parentheses.
    fn token(&mut self) -> &'a str {
        let mut depth = 0;
        let end = self.rest.find(|c: char| {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            depth < 0 || c.is_whitespace()
        });
        let (token, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.trim_start();
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Dependency {
        Dependency::One(need(text).unwrap())
    }

    #[test]
    fn boolean_dependencies_are_taken_apart() {
        let two = |a: &str, b: &str| (Box::new(one(a)), Box::new(one(b)));
        for (text, expected) in [
            (
                "libc.so.6(GLIBC_2.4)(64bit)",
                one("libc.so.6(GLIBC_2.4)(64bit)"),
            ),
            (
                "(a(x) >= 1:2.0-3 and b)",
                Dependency::And(vec![one("a(x) >= 1:2.0-3"), one("b")]),
            ),
            ("(a or (b and c) or d)", {
                Dependency::Or(vec![
                    one("a"),
                    Dependency::And(vec![one("b"), one("c")]),
                    one("d"),
                ])
            }),
            ("(a if b)", {
                let (a, b) = two("a", "b");
                Dependency::If(a, b, None)
            }),
            ("(a = 1 if b else c(d))", {
                let (a, b) = two("a = 1", "b");
                Dependency::If(a, b, Some(Box::new(one("c(d)"))))
            }),
            (
                "(a with b < 2)",
                Dependency::With(vec![one("a"), one("b < 2")]),
            ),
            ("((a or b) without c)", {
                let either = Dependency::Or(vec![one("a"), one("b")]);
                Dependency::Without(Box::new(either), Box::new(one("c")))
            }),
            ("(a)", one("a")),
        ] {
            assert_eq!(Dependency::parse(text).unwrap(), expected, "{text}");
        }
        for text in [
            "",
            "(a",
            "(a xor b)",
            "(a and b or c)",
            "a >< 1",
            "a >=",
            "(a if b if c)",
            "(a unless b)",
            "a)",
            "a b",
        ] {
            let error = Dependency::parse(text).unwrap_err().to_string();
            assert!(
                error.contains("cannot parse the dependency"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn bounds_match_as_in_rpm() {
        for (provided, needed, expected) in [
            ("a", "a > 1", true),
            ("a = 1", "a", true),
            ("a = 1", "b", false),
            ("a = 1.0-3", "a = 1.0", true),
            ("a = 1.0-3", "a > 1.0", false),
            ("a = 1.0-3", "a >= 1.0-4", false),
            ("a = 1:1", "a >= 2", true),
            ("a = 2", "a < 2", false),
            ("a <= 2", "a >= 2", true),
            ("a < 2", "a >= 2", false),
            ("a < 2", "a <= 1", true),
            ("a > 2", "a > 3", true),
            ("a > 2", "a = 2", false),
            ("a >= 2", "a < 2", false),
            ("a >= 2", "a <= 2", true),
        ] {
            let found = matches(&need(provided).unwrap(), &need(needed).unwrap());
            assert_eq!(found, expected, "{provided:?} for {needed:?}");
        }
    }
}
