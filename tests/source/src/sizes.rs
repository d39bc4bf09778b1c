//! Files fit in one sitting, and the master is split before one of its crates grows too large.

use crate::modules;
use crate::parsed;
use crate::tree;

/// Maximum number of lines of half of the files.
const MEDIAN: usize = 190;
/// Maximum number of lines of nine of ten files.
const P90: usize = 380;
/// Maximum number of lines of a file, unless its module doc says why it has more.
const MOST: usize = 500;
/// The start of the reason in the module doc of a longer file.
const REASON: &str = "//! Longer than 500 lines:";
/// Maximum number of lines, without tests, of a crate of the master.
const MASTER: usize = 15_000;

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

#[test]
fn no_crate_of_the_master_is_larger_than_the_limit() {
    let mut findings = Vec::new();
    for package in tree::packages() {
        if package.folder != "master" && !package.folder.starts_with("master/") {
            continue;
        }
        let files = package.roots.iter().flat_map(|root| {
            let modules = modules::of_crate(root).into_values();
            modules.map(|module| parsed::of_file(&module.file))
        });
        let lines: usize = files.map(|facts| facts.lines - facts.lines_of_tests).sum();
        assert!(lines > 0, "{} has no lines", package.name);
        if lines > MASTER {
            findings.push(format!("{}: {lines} lines without tests", package.name));
        }
    }
    assert!(
        findings.is_empty(),
        "move a part with one direction of imports to a crate of its own; at most {MASTER} lines are allowed:\n{}",
        findings.join("\n")
    );
}

#[test]
fn tests_in_a_file_do_not_count() {
    let text = "/// One.\nfn one() {}\n\n#[cfg(test)]\nmod tests {\n    fn two() {}\n}\n";
    let lines = |text: &str| parsed::lines_of_tests(&syn::parse_file(text).unwrap());
    assert_eq!(lines(text), text.lines().count() - 3);
    assert_eq!(lines("#[cfg(test)]\nmod tests;\n"), 0);
}
