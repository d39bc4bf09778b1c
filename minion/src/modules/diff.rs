//! Differences of content, for display and for returns.

use halite_diff::{CONTEXT, Side, unified};
use halite_states::args::Show;

/// Larger files, in bytes, are not compared line by line.
const MAX_INPUT: usize = 1 << 20;
/// Displayed lines of a difference.
const MAX_LINES: usize = 400;

/// The change from `old` to `new`, in Salt's words: a unified diff, or one sentence if a diff makes
/// no sense.
pub(super) fn describe(old: &[u8], new: &[u8], show: Show) -> String {
    match show {
        Show::Secret => return "<hidden: holds a secret>".to_owned(),
        Show::No => return "<show_changes=False>".to_owned(),
        Show::Yes => {}
    }
    let (old_text, new_text) = match (text(old), text(new)) {
        (Some(old), Some(new)) => (old, new),
        (None, Some(_)) => return "Replace binary file with text file".to_owned(),
        (Some(_), None) => return "Replace text file with binary file".to_owned(),
        (None, None) => return "Replace binary file".to_owned(),
    };
    if old.len() > MAX_INPUT || new.len() > MAX_INPUT {
        return format!(
            "<{} bytes become {} bytes: too long to show>",
            old.len(),
            new.len()
        );
    }
    let unnamed = |text| Side { name: "", text };
    let full = unified(unnamed(old_text), unnamed(new_text), CONTEXT);
    let lines = full.lines().count();
    if lines <= MAX_LINES {
        return full;
    }
    let mut short: String = full.split_inclusive('\n').take(MAX_LINES).collect();
    short.push_str(&format!("… {} more lines\n", lines - MAX_LINES));
    short
}

/// The content as text; `None` for binary content (invalid UTF-8, or a NUL).
fn text(content: &[u8]) -> Option<&str> {
    std::str::from_utf8(content)
        .ok()
        .filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_looks_as_salts() {
        let found = describe(b"hello\nworld\nappended\n", b"hello\nworld\n", Show::Yes);
        assert_eq!(
            found,
            "--- \n+++ \n@@ -1,3 +1,2 @@\n hello\n world\n-appended\n"
        );
    }

    #[test]
    fn secrets_binaries_and_long_texts_are_not_shown() {
        assert!(!describe(b"a", b"token", Show::Secret).contains("token"));
        assert_eq!(describe(b"a", b"b", Show::No), "<show_changes=False>");
        assert_eq!(
            describe(b"\0", b"b", Show::Yes),
            "Replace binary file with text file"
        );
        assert_eq!(describe(b"\xff", b"\xfe", Show::Yes), "Replace binary file");
        assert_eq!(
            describe(b"b", b"\0", Show::Yes),
            "Replace text file with binary file"
        );
        let long: String = (0..1000).map(|n| format!("{n}\n")).collect();
        assert!(describe(b"", long.as_bytes(), Show::Yes).ends_with("more lines\n"));
        assert!(describe(b"", &vec![b'a'; MAX_INPUT + 1], Show::Yes).contains("too long"));
    }
}
