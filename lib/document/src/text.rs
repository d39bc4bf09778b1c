//! Characters of values that change what a terminal displays.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns `true` for a character that a terminal interprets instead of displaying, or that changes
/// the order or presence of its neighbours: control and escape characters, marks of direction, line
/// separators and characters without width. Line feed and tab are not among them.
#[must_use]
pub fn is_deceptive(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        // Joiners are part of the writing of some languages and of emoji.
        '\u{200c}' | '\u{200d}' => false,
        '\u{61c}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => true,
        other => other.is_control(),
    }
}

/// Replaces each deceptive character by its visible form, for example `\u{1b}`.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_deceptive) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_deceptive(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// Replaces each deceptive character of a JSON text by its JSON escape. The meaning of the text
/// does not change, because in JSON such characters occur only in strings.
#[must_use]
pub fn escape_json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_deceptive) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_deceptive(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_becomes_visible() {
        for (text, wanted) in [
            ("plain ü → ✓\n\tx", "plain ü → ✓\n\tx"),
            ("a\x1b[2Kb", "a\\u{1b}[2Kb"),
            ("a\rb", "a\\rb"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\x07\x7f\0", "\\u{7}\\u{7f}\\u{0}"),
            ("\u{202e}evil\u{2066}", "\\u{202e}evil\\u{2066}"),
            ("a\u{200b}b\u{2028}c", "a\\u{200b}b\\u{2028}c"),
            ("\u{e0041}", "\\u{e0041}"),
        ] {
            assert_eq!(escape(text), wanted);
        }
    }

    #[test]
    fn escaped_json_means_the_same() {
        let text = "{\"a\": \"x\u{9b}\u{202e}\u{e0041}\u{7f}y\"}";
        let escaped = escape_json(text);
        assert!(!escaped.contains(is_deceptive), "{escaped}");
        assert_eq!(
            escaped,
            "{\"a\": \"x\\u009b\\u202e\\udb40\\udc41\\u007fy\"}"
        );
    }
}
