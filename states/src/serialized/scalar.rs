//! The styles of YAML's scalars that libyaml's emitter allows (`yaml_emitter_analyze_scalar`).

use std::sync::OnceLock;

use regex::Regex;

use super::{Data, float};

/// The style of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Single,
    Double,
}

/// The place of a scalar.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScalarPlace {
    /// It is in a list or mapping in flow style.
    pub in_flow: bool,
    /// It is a key before its `:`.
    pub is_key: bool,
}

/// The text of a scalar, and whether YAML reads it as this scalar without quotes; `None` for a list
/// or mapping.
pub(super) fn text(data: &Data) -> Option<(String, bool)> {
    let plain = |text: &str| Some((text.to_owned(), true));
    match data {
        Data::Null => plain("null"),
        Data::Bool(true) => plain("true"),
        Data::Bool(false) => plain("false"),
        Data::Int(number) => plain(&number.to_string()),
        Data::Float(number) => plain(&yaml_float(*number)),
        Data::Text(text) => Some((text.clone(), !is_special(text))),
        Data::List(_) | Data::Map(_) => None,
    }
}

fn yaml_float(number: f64) -> String {
    let written = float(number);
    match written.as_str() {
        "nan" => ".nan".to_owned(),
        "inf" => ".inf".to_owned(),
        "-inf" => "-.inf".to_owned(),
        // YAML 1.1 has no number with an exponent but without a point.
        written if !written.contains('.') => written.replacen('e', ".0e", 1),
        written => written.to_owned(),
    }
}

/// The style in which libyaml writes a text; `is_itself` as in [`text`].
pub(super) fn style(text: &str, is_itself: bool, place: ScalarPlace, unicode: bool) -> Style {
    let features = Features::new(text, unicode);
    let is_empty_inside = text.is_empty() && (place.in_flow || place.is_key);
    if is_itself && !is_empty_inside && features.is_plain(place.in_flow) {
        Style::Plain
    } else if features.needs_escapes {
        Style::Double
    } else {
        Style::Single
    }
}

/// Tests whether a text has several lines.
pub(super) fn has_breaks(text: &str) -> bool {
    text.contains(is_break)
}

/// Tests whether a sign ends a line in YAML 1.1.
pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Tests whether libyaml writes a sign in double quotes as it is.
pub(super) fn is_printable(c: char, unicode: bool) -> bool {
    match c {
        '\n' | ' '..='~' => true,
        '\u{FEFF}' => false,
        '\u{A0}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' => unicode,
        _ => false,
    }
}

/// The properties of a text that decide its style.
struct Features {
    /// It can only be in double quotes.
    needs_escapes: bool,
    /// It has a sign, or begins or ends with one, that needs quotes everywhere.
    needs_quotes: bool,
    /// The same in flow style.
    needs_quotes_in_flow: bool,
}

impl Features {
    fn new(text: &str, unicode: bool) -> Self {
        let is_blank =
            |c: Option<char>| c.is_none_or(|c| matches!(c, ' ' | '\t' | '\0') || is_break(c));
        let is_marker = text.starts_with("---") || text.starts_with("...");
        let mut found = Self {
            needs_escapes: false,
            needs_quotes: is_marker
                || has_breaks(text)
                || text.starts_with(' ')
                || text.ends_with(' '),
            needs_quotes_in_flow: false,
        };
        let mut before = None;
        let mut signs = text.chars().peekable();
        while let Some(c) = signs.next() {
            let is_first = before.is_none();
            let ends = is_blank(signs.peek().copied());
            found.needs_quotes |= match c {
                '#' => is_blank(before),
                ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
                | '@' | '`' => is_first,
                '?' | '-' => is_first && ends,
                ':' => ends,
                _ => false,
            };
            found.needs_quotes_in_flow |= matches!(c, ',' | '?' | '[' | ']' | '{' | '}' | ':');
            found.needs_escapes |= !is_printable(c, unicode)
                || c == ' ' && before.is_some_and(is_break)
                || is_break(c) && before == Some(' ');
            before = Some(c);
        }
        found
    }

    fn is_plain(&self, in_flow: bool) -> bool {
        !(self.needs_escapes || self.needs_quotes || in_flow && self.needs_quotes_in_flow)
    }
}

/// Tests whether PyYAML reads a text without quotes as something else.
fn is_special(text: &str) -> bool {
    static SPECIAL: OnceLock<Option<Regex>> = OnceLock::new();
    let special = SPECIAL.get_or_init(|| {
        Regex::new(concat!(
            r"^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
            r"|[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?",
            r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
            r"|[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+",
            r"|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+|<<|=|~|null|Null|NULL|",
            r"|[0-9]{4}-[0-9]{2}-[0-9]{2}",
            r"|[0-9]{4}-[0-9][0-9]?-[0-9][0-9]?(?:[Tt]|[ \t]+)[0-9][0-9]?:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?",
            r"(?:[ \t]*(?:Z|[-+][0-9][0-9]?(?::[0-9]{2})?))?)$",
        ))
        .ok()
    });
    special
        .as_ref()
        .is_none_or(|special| special.is_match(text))
}
