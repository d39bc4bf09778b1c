//! Compound expressions: `G@os:Debian and not ( web* or E@db\d+ )`. `not` binds tighter than `and`,
//! `and` than `or`.

use std::iter::Peekable;

use super::error::TargetError;

/// A word of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Open,
    Close,
    And,
    Or,
    Not,
    Match(String),
}

/// The kinds behind Salt's letters.
const LETTERS: &[(char, &str)] = &[
    ('G', "grain"),
    ('P', "grain_pcre"),
    ('I', "pillar"),
    ('J', "pillar_pcre"),
    ('L', "list"),
    ('E', "pcre"),
    ('S', "ipcidr"),
];

/// Evaluates an expression; `test` evaluates each matcher (kind, expression), without short cuts,
/// so that every mistake is found.
pub(super) fn evaluate(
    expression: &str,
    test: &mut dyn FnMut(&str, &str) -> Result<bool, TargetError>,
) -> Result<bool, TargetError> {
    let words = words(expression);
    if words.is_empty() {
        return Ok(false);
    }
    let mut parser = Parser {
        words: words.into_iter().peekable(),
        test,
        depth: 0,
    };
    let result = parser.or()?;
    match parser.words.next() {
        None => Ok(result),
        Some(Word::Close) => Err(TargetError::Unopened(expression.to_owned())),
        Some(_) => Err(TargetError::MissingOperator(expression.to_owned())),
    }
}

/// Splits an expression at blanks; parentheses may touch a word, except those of a regular
/// expression.
fn words(expression: &str) -> Vec<Word> {
    let mut words = Vec::new();
    for mut part in expression.split_whitespace() {
        while let Some(rest) = part.strip_prefix('(') {
            words.push(Word::Open);
            part = rest;
        }
        let mut closing = 0;
        while part.ends_with(')') && part.matches(')').count() > part.matches('(').count() {
            part = &part[..part.len() - 1];
            closing += 1;
        }
        match part {
            "" => {}
            "and" => words.push(Word::And),
            "or" => words.push(Word::Or),
            "not" => words.push(Word::Not),
            other => words.push(Word::Match(other.to_owned())),
        }
        words.extend(std::iter::repeat_n(Word::Close, closing));
    }
    words
}

struct Parser<'a, I: Iterator<Item = Word>> {
    words: Peekable<I>,
    test: &'a mut dyn FnMut(&str, &str) -> Result<bool, TargetError>,
    depth: usize,
}

impl<I: Iterator<Item = Word>> Parser<'_, I> {
    fn or(&mut self) -> Result<bool, TargetError> {
        let mut result = self.and()?;
        while self.words.next_if_eq(&Word::Or).is_some() {
            result |= self.and()?;
        }
        Ok(result)
    }

    fn and(&mut self) -> Result<bool, TargetError> {
        let mut result = self.not()?;
        while self.words.next_if_eq(&Word::And).is_some() {
            result &= self.not()?;
        }
        Ok(result)
    }

    fn not(&mut self) -> Result<bool, TargetError> {
        let mut negated = false;
        while self.words.next_if_eq(&Word::Not).is_some() {
            negated = !negated;
        }
        Ok(self.single()? != negated)
    }

    fn single(&mut self) -> Result<bool, TargetError> {
        match self.words.next() {
            Some(Word::Match(word)) => self.matcher(&word),
            Some(Word::Open) => {
                self.depth += 1;
                if self.depth > 32 {
                    return Err(TargetError::TooDeep);
                }
                let result = self.or()?;
                self.depth -= 1;
                match self.words.next() {
                    Some(Word::Close) => Ok(result),
                    _ => Err(TargetError::Unclosed),
                }
            }
            Some(Word::And | Word::Or | Word::Close) | None => Err(TargetError::MissingMatcher),
            Some(Word::Not) => self.not(),
        }
    }

    fn matcher(&mut self, word: &str) -> Result<bool, TargetError> {
        let mut chars = word.chars();
        let (letter, rest) = match (chars.next(), chars.next()) {
            (Some(letter), Some('@')) => (letter, chars.as_str()),
            _ => return (self.test)("glob", word),
        };
        match LETTERS.iter().find(|(known, _)| *known == letter) {
            Some((_, kind)) => (self.test)(kind, rest),
            None => {
                let known: Vec<String> = LETTERS
                    .iter()
                    .map(|(letter, kind)| format!("{letter}@ ({kind})"))
                    .collect();
                Err(TargetError::UnknownMatcher {
                    letter,
                    known: known.join(", "),
                })
            }
        }
    }
}
