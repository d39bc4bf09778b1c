//! Files fit in one sitting.

use crate::tree;

/// Maximum number of lines of half of the files.
const MEDIAN: usize = 190;
/// Maximum number of lines of nine of ten files.
const P90: usize = 380;
/// Maximum number of lines of a file, unless its module doc says why it has more.
const MOST: usize = 500;
/// The start of the reason in the module doc of a longer file.
const REASON: &str = "//! Longer than 500 lines:";

#[test]
fn files_fit_in_one_sitting() {
    let files = tree::files(&[".rs"]);
    let mut lines: Vec<usize> = files.iter().map(|file| file.text.lines().count()).collect();
    lines.sort_unstable();
    let (median, p90) = (lines[lines.len() / 2], lines[lines.len() * 9 / 10]);
    assert!(
        median <= MEDIAN,
        "the median file has {median} lines, at most {MEDIAN} are wanted"
    );
    assert!(
        p90 <= P90,
        "one file in ten has more than {p90} lines, at most {P90} are wanted"
    );
    let long: Vec<String> = files
        .iter()
        .filter(|file| file.text.lines().count() > MOST && !file.text.contains(REASON))
        .map(|file| format!("{}: {} lines", file.path, file.text.lines().count()))
        .collect();
    assert!(
        long.is_empty(),
        "split these, or begin a paragraph of the module doc with {REASON:?}:\n{}",
        long.join("\n")
    );
}
