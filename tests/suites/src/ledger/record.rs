//! One line of a ledger, and the reading of all its files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

/// Ending of the files of a ledger.
const ENDING: &str = "jsonl";

/// The recorded outcome of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TestOutcome {
    /// It starts.
    Began,
    /// It has ended, and nothing failed.
    Passed,
    /// It has ended, and something failed.
    Failed,
}

/// A line of a ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LedgerLine {
    /// The name of the test.
    pub(super) test: String,
    pub(super) outcome: TestOutcome,
    /// The time from its start to its end; 0 at the start.
    pub(super) seconds: f64,
    /// The cause of a failure, if the test ended with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// The part whose run it was in: `2/4`.
    pub(super) part: String,
    /// The id of the tree's content.
    pub(super) tree: String,
    pub(super) commit: String,
    /// `true` if the tree differed from the commit.
    pub(super) changed: bool,
    /// The time of writing, in seconds since the Unix epoch.
    pub(super) at: u64,
}

/// The records of all files in the directory of a tree, in the order of their times. Text after the
/// last line end was cut off while it was written, and does not count.
///
/// # Errors
/// A file cannot be read, a line is not a record, or belongs to another tree.
pub(super) fn all(directory: &Path, tree: &str) -> Result<Vec<LedgerLine>> {
    let mut records = Vec::new();
    for file in files(directory)? {
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        for (number, line) in whole(&text).lines().enumerate() {
            let place = || format!("{}, line {}", file.display(), number + 1);
            let record: LedgerLine = serde_json::from_str(line)
                .with_context(|| format!("cannot read {}; remove the file or the line", place()))?;
            ensure!(
                record.tree == tree,
                "{} is of the tree {}, and its directory is of {tree}; move the file",
                place(),
                record.tree
            );
            records.push(record);
        }
    }
    // Equal times keep the order of their lines.
    records.sort_by_key(|record| record.at);
    Ok(records)
}

/// The text without an unfinished line.
pub(super) fn whole(text: &str) -> &str {
    let end = text.rfind('\n').map_or(0, |at| at + 1);
    text.get(..end).unwrap_or_default()
}

/// The file of a part.
pub(super) fn file(directory: &Path, part: &str) -> PathBuf {
    directory.join(format!("{}.{ENDING}", part.replace('/', "-of-")))
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", directory.display()));
        }
    };
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == ENDING));
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(test: &str, outcome: TestOutcome, at: u64) -> String {
        let record = LedgerLine {
            test: test.to_owned(),
            outcome,
            seconds: 0.5,
            error: None,
            part: "1/2".to_owned(),
            tree: "abc".to_owned(),
            commit: "def".to_owned(),
            changed: false,
            at,
        };
        serde_json::to_string(&record).unwrap() + "\n"
    }

    #[test]
    fn the_files_of_all_parts_are_read_in_the_order_of_time() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(all(&dir.path().join("absent"), "abc").unwrap(), []);
        let second = line("b", TestOutcome::Began, 2) + &line("b", TestOutcome::Passed, 3);
        fs::write(file(dir.path(), "1/2"), line("c", TestOutcome::Began, 4)).unwrap();
        // As copied from another machine, and cut off while a line was written.
        let cut = &line("d", TestOutcome::Began, 5)[..20];
        fs::write(file(dir.path(), "2/2"), second + cut).unwrap();
        fs::write(dir.path().join("notes.txt"), "no record").unwrap();
        let names: Vec<String> = all(dir.path(), "abc")
            .unwrap()
            .into_iter()
            .map(|record| record.test)
            .collect();
        assert_eq!(names, ["b", "b", "c"]);
    }

    #[test]
    fn invalid_and_foreign_records_are_refused_with_their_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path(), "1/2");
        for (text, reason) in [
            ("{\"test\": \"a\"}\n".to_owned(), "1-of-2.jsonl, line 2"),
            (
                line("a", TestOutcome::Passed, 1).replace("\"abc\"", "\"xyz\""),
                "is of the tree xyz",
            ),
            (
                line("a", TestOutcome::Passed, 1).replace("\"at\"", "\"until\""),
                "cannot read",
            ),
        ] {
            fs::write(&path, line("a", TestOutcome::Began, 1) + &text).unwrap();
            let error = format!("{:#}", all(dir.path(), "abc").unwrap_err());
            assert!(error.contains(reason), "{error}");
        }
    }
}
