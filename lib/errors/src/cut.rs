//! Long texts, shortened to a part.
//!
//! Each cut leaves a mark. A cut may go through a secret, and the remaining part does not look like
//! a secret; the master's redaction searches for such parts beside each mark.

/// The beginning of every mark; a `]` ends it.
pub const MARK: &str = "[cut here";

/// The mark of [`beginning`] and [`end`].
const PLAIN: &str = "[cut here]";

/// The first `characters` of a text, followed by a mark if something was cut off.
#[must_use]
pub fn beginning(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((at, _)) => format!("{}{PLAIN}", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The last `characters` of a text, where programs say why they stopped, preceded by a mark if
/// something was cut off.
#[must_use]
pub fn end(text: &str, characters: usize) -> String {
    let Some(last) = characters.checked_sub(1) else {
        return beginning(text, 0);
    };
    match text.char_indices().rev().nth(last) {
        Some((at, _)) if at > 0 => format!("{PLAIN}{}", text.get(at..).unwrap_or_default()),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_marked() {
        assert_eq!(beginning("äbc", 2), "äb[cut here]");
        assert_eq!(beginning("äbc", 3), "äbc");
        assert_eq!(beginning("", 0), "");
        assert_eq!(end("äbc", 2), "[cut here]bc");
        assert_eq!(end("äbc", 3), "äbc");
        assert_eq!(end("äbc", 9), "äbc");
        assert_eq!(end("äbc", 0), "[cut here]");
    }
}
