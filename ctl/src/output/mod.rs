//! Answers about jobs, as text for people.

pub mod bundle_diff;
pub mod changes;
pub mod returns;

use std::fmt::Display;
use std::path::Path;

pub use halite_terminal::{Format, Paint, Screen, age, count, megabytes, seconds, table, yaml};

/// A value in a cell of a table; `-` without one.
pub fn or_dash(value: Option<impl Display>) -> String {
    let text = value.map(|value| value.to_string());
    text.filter(|text| !text.is_empty())
        .unwrap_or_else(|| "-".to_owned())
}

/// Values in a cell of a table; `-` without any.
pub fn list<T: Display>(values: &[T]) -> String {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    or_dash(Some(texts.join(",")))
}

/// A path in a document.
pub fn path_text(path: impl AsRef<Path>) -> String {
    path.as_ref().display().to_string()
}

/// `yes` or `no`.
pub fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

/// A text with image digests shortened to the digits that distinguish them: a full reference is
/// wider than a terminal.
pub fn short_digest(text: &str) -> String {
    const DIGEST: &str = "@sha256:";
    let mut parts = text.split(DIGEST);
    let mut short = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        let (digits, rest) = part.split_at(digits);
        let shown = if digits.len() == 64 {
            &digits[..12]
        } else {
            digits
        };
        short.push_str(DIGEST);
        short.push_str(shown);
        short.push_str(rest);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_digest_is_cut_off() {
        let digest = "0123456789ab".to_owned() + &"c".repeat(52);
        let line = format!("mount a.b/c:1@sha256:{digest} /mnt && a.b/d@sha256:{digest}");
        let short = "mount a.b/c:1@sha256:0123456789ab /mnt && a.b/d@sha256:0123456789ab";
        assert_eq!(short_digest(&line), short);
        for text in ["", "a.b/c:1", "a@sha256:12", &format!("sha256:{digest}")] {
            assert_eq!(short_digest(text), text);
        }
    }
}
