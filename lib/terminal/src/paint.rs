//! Colours, and texts that are safe and short enough for a terminal.
//!
//! Values come from hosts and strangers, so every text is escaped when it is printed. A colour is
//! therefore a mark in the text until then.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Reset};
use halite_document::text::escape;
use unicode_width::UnicodeWidthChar as _;

/// Marks the end of a colour. The marks are noncharacters of Unicode, which no text contains.
const END: char = '\u{fdd0}';
/// The mark of each colour.
const COLOURS: [(char, AnsiColor); 3] = [
    ('\u{fdd1}', AnsiColor::Red),
    ('\u{fdd2}', AnsiColor::Green),
    ('\u{fdd3}', AnsiColor::Yellow),
];

/// Colours of texts, if the screen has colours.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    /// `true` if the screen has colours.
    pub colour: bool,
}

impl Paint {
    fn with(self, colour: usize, text: &str) -> String {
        if self.colour {
            format!("{}{text}{END}", COLOURS[colour].0)
        } else {
            text.to_owned()
        }
    }

    /// Colours a failure.
    pub fn bad(self, text: &str) -> String {
        self.with(0, text)
    }

    /// Colours a success.
    pub fn good(self, text: &str) -> String {
        self.with(1, text)
    }

    /// Colours a change or a warning.
    pub fn notable(self, text: &str) -> String {
        self.with(2, text)
    }
}

/// Makes a text safe for a terminal: deceptive characters of values become visible, and the colours
/// of [`Paint`] become escape sequences, the only ones in it.
#[must_use]
pub fn visible(text: &str) -> String {
    rendered(text, true)
}

/// As [`visible`]; without `colour`, the marks of colours are dropped.
#[must_use]
pub fn rendered(text: &str, colour: bool) -> String {
    let safe = escape(text);
    let mut out = String::with_capacity(safe.len() + 16);
    safe.chars()
        .for_each(|character| push(&mut out, character, colour));
    out
}

/// Adds a character, or the sequence that its mark stands for.
fn push(out: &mut String, character: char, colour: bool) {
    let begin = COLOURS.iter().find(|(mark, _)| *mark == character);
    // A String can always be written to.
    let _ = match (begin, character == END) {
        (None, false) => out.write_char(character),
        (Some((_, sequence)), _) if colour => write!(out, "{}", sequence.render_fg()),
        (None, true) if colour => write!(out, "{}", Reset.render()),
        _ => Ok(()),
    };
}

/// The columns that a character takes.
fn columns(character: char) -> usize {
    match character {
        END => 0,
        mark if COLOURS.iter().any(|(other, _)| *other == mark) => 0,
        other => other.width().unwrap_or(0),
    }
}

/// The columns that a text takes on a terminal. Marks of colours take none.
#[must_use]
pub fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Makes one line from a text, as safe as with [`visible`] and at most `most` columns wide; an end
/// that is cut off is replaced by `…`. Returns the line and its width.
#[must_use]
pub fn fitted(text: &str, most: usize, colour: bool) -> (String, usize) {
    let text = escape(text).replace(['\n', '\t'], " ");
    let is_cut = width(&text) > most;
    let room = if is_cut { most.saturating_sub(1) } else { most };
    let (mut line, mut used) = (String::new(), 0);
    for character in text.chars() {
        let columns = columns(character);
        if used + columns > room {
            break;
        }
        used += columns;
        push(&mut line, character, colour);
    }
    if is_cut && most > 0 {
        line.push('…');
        used += 1;
        if colour {
            push(&mut line, END, colour);
        }
    }
    (line, used)
}

/// Breaks the lines of a text between words, so that they take at most `columns`, each indented. A
/// longer word has a line of its own, which the terminal breaks.
#[must_use]
pub fn wrapped(text: &str, columns: usize, indent: usize) -> String {
    let margin = " ".repeat(indent);
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split(' ').filter(|word| !word.is_empty()) {
            if !line.is_empty() && indent + width(&line) + 1 + width(word) > columns {
                lines.push(format!("{margin}{line}"));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(format!("{margin}{line}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_between_words() {
        assert_eq!(wrapped("a bc  def\ng", 7, 2), "  a bc\n  def\n  g");
        assert_eq!(wrapped("a longer-word b", 6, 0), "a\nlonger-word\nb");
        assert_eq!(wrapped("漢字 漢", 6, 0), "漢字\n漢");
        assert_eq!(wrapped("", 6, 2), "");
    }

    #[test]
    fn colours_are_the_only_sequences_that_reach_a_terminal() {
        let paint = Paint { colour: true };
        let text = paint.bad("a\x1b[2J\u{9b}31m\u{202e}b") + &paint.good("c");
        assert_eq!(
            visible(&text),
            "\x1b[31ma\\u{1b}[2J\\u{9b}31m\\u{202e}b\x1b[0m\x1b[32mc\x1b[0m"
        );
        assert_eq!(
            rendered(&text, false),
            "a\\u{1b}[2J\\u{9b}31m\\u{202e}bc",
            "a file gets no sequence at all"
        );
        let plain = Paint { colour: false };
        assert_eq!(visible(&plain.notable("x\r\ny")), "x\\r\ny");
    }

    #[test]
    fn a_line_is_cut_at_the_columns_of_the_terminal() {
        for (text, most, line, used) in [
            ("abc", 3, "abc", 3),
            ("abcd", 3, "ab…", 3),
            // A wide character that would need one column too many.
            ("a漢字", 4, "a漢…", 4),
            ("a漢字", 3, "a…", 2),
            ("a\nb", 9, "a b", 3),
            ("ab", 0, "", 0),
            ("a\x1b[2J", 6, "a\\u{1…", 6),
        ] {
            assert_eq!(
                fitted(text, most, false),
                (line.to_owned(), used),
                "{text:?}"
            );
        }
        let paint = Paint { colour: true };
        let (line, used) = fitted(&paint.good("abcd"), 3, true);
        assert_eq!((line.as_str(), used), ("\x1b[32mab…\x1b[0m", 3));
    }
}
