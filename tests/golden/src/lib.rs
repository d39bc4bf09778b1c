//! Goldens: files of the repository that the code generates. A test compares each of them, and
//! `HALITE_UPDATE_GOLDENS=1` writes them again. No shipped program uses this crate.

use std::fs;
use std::path::Path;

/// The environment variable with which the files are written instead of compared.
pub const UPDATE: &str = "HALITE_UPDATE_GOLDENS";

/// Compares a page of `docs/reference` with its generated text.
///
/// # Panics
/// The page differs, or cannot be written.
#[track_caller]
pub fn check_reference(page: &str, generated: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let pages = root.unwrap_or(Path::new(".")).join("docs/reference");
    check_golden(&pages.join(page), generated);
}

/// Compares a file with its generated text; with [`UPDATE`] set, writes the file.
///
/// # Panics
/// The file differs, or cannot be written.
#[track_caller]
pub fn check_golden(path: &Path, generated: &str) {
    if std::env::var_os(UPDATE).is_some() {
        if let Err(error) = fs::write(path, generated) {
            panic!("cannot write {}: {error}", path.display());
        }
        return;
    }
    // A missing file differs.
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == generated,
        "{} is out of date: run this test with {UPDATE}=1, then review the difference\n{}",
        path.display(),
        first_difference(&found, generated)
    );
}

/// The first line in which two texts differ, of both.
fn first_difference(found: &str, generated: &str) -> String {
    let (mut old, mut new) = (found.lines(), generated.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (old.next(), new.next()) {
            (None, None) => return "only the ends of lines differ".to_owned(),
            (old, new) if old == new => {}
            (old, new) => {
                let line = |line: Option<&str>| line.unwrap_or("(end of the file)").to_owned();
                return format!("line {number}:\n- {}\n+ {}", line(old), line(new));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_named() {
        assert_eq!(
            first_difference("a\nb\nc\n", "a\nx\nc\n"),
            "line 2:\n- b\n+ x"
        );
        assert_eq!(
            first_difference("a\n", "a\nb\n"),
            "line 2:\n- (end of the file)\n+ b"
        );
        assert_eq!(
            first_difference("a\n", "a"),
            "only the ends of lines differ"
        );
    }

    #[test]
    #[should_panic(expected = "/nonexistent/page.md")]
    fn a_missing_file_differs() {
        check_golden(Path::new("/nonexistent/page.md"), "text\n");
    }
}
