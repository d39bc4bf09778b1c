//! The ledger of a tree: the outcome of each test of `--full`, kept outside the source tree over
//! runs, parts and machines.
//!
//! The directory `ledger/TREE` in the lab's cache has a file of JSON lines for each part, to which
//! only a run of that part appends. A test has a line when it starts and one when it has ended,
//! each on the disk before anything else happens. Files of other machines may be copied into the
//! directory.

mod record;
mod states;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use record::{LedgerLine, TestOutcome};

use crate::test::Counts;

pub(crate) use states::{StartedTest, States};
pub(crate) use tree::Tree;

/// The directory of all ledgers.
fn place() -> PathBuf {
    halite_lab::cache().join("ledger")
}

/// The ledger of one part, to which a run appends.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: File,
    path: PathBuf,
    part: String,
    tree: Tree,
}

impl Ledger {
    /// Opens the file of a part for the present tree, and reads the earlier records of all parts.
    ///
    /// # Errors
    /// Another run of the same part has it, the disk refuses it, or a record cannot be read.
    pub(crate) fn open(part: &str) -> Result<(Self, States)> {
        Self::open_in(&place(), Tree::of(&halite_lab::build::source_root())?, part)
    }

    fn open_in(place: &Path, tree: Tree, part: &str) -> Result<(Self, States)> {
        let directory = place.join(&tree.id);
        let path = record::file(&directory, part);
        let open = || -> Result<File> {
            fs::create_dir_all(&directory)?;
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .read(true)
                .open(&path)?;
            // The name of the file must be durable too, and those of its directories.
            for directory in [&directory, place] {
                File::open(directory)?.sync_all()?;
            }
            Ok(file)
        };
        let file = open().with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => bail!(
                "another run of part {part} appends to {}; wait for its end",
                path.display()
            ),
            Err(fs::TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let whole = record::whole(&text).len();
        if whole < text.len() {
            // The unfinished line of a run that died.
            file.set_len(u64::try_from(whole)?)?;
            file.sync_all()?;
        }
        let states = States::new(&record::all(&directory, &tree.id)?);
        let part = part.to_owned();
        let ledger = Self {
            file,
            path,
            part,
            tree,
        };
        Ok((ledger, states))
    }

    /// Records that a test starts.
    ///
    /// # Errors
    /// The record is not on the disk.
    pub(crate) fn begin(&mut self, test: &str) -> Result<()> {
        self.append(test, TestOutcome::Began, Duration::ZERO, None)
    }

    /// Records the end of a test.
    ///
    /// # Errors
    /// The record is not on the disk.
    pub(crate) fn end(
        &mut self,
        test: &str,
        took: Duration,
        result: Result<Counts, &anyhow::Error>,
    ) -> Result<()> {
        let (outcome, error) = match result {
            Ok(Counts { failed: 0, .. }) => (TestOutcome::Passed, None),
            Ok(Counts { passed, failed }) => (
                TestOutcome::Failed,
                Some(format!("{passed} passed, {failed} failed")),
            ),
            Err(error) => (TestOutcome::Failed, Some(format!("{error:#}"))),
        };
        self.append(test, outcome, took, error)
    }

    fn append(
        &mut self,
        test: &str,
        outcome: TestOutcome,
        took: Duration,
        error: Option<String>,
    ) -> Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let record = LedgerLine {
            test: test.to_owned(),
            outcome,
            seconds: took.as_secs_f64(),
            error,
            part: self.part.clone(),
            tree: self.tree.id.clone(),
            commit: self.tree.commit.clone(),
            changed: self.tree.changed,
            at: now.as_secs(),
        };
        let line = serde_json::to_string(&record)? + "\n";
        let written = self.file.write_all(line.as_bytes());
        written
            .and_then(|()| self.file.sync_data())
            .with_context(|| format!("cannot append to {}", self.path.display()))
    }
}

#[cfg(test)]
impl Ledger {
    /// A ledger below a directory, of one tree, with its states.
    pub(crate) fn of_a_test(place: &Path, part: &str) -> (Self, States) {
        let tree = Tree {
            id: "abc".to_owned(),
            commit: "1a7abf73c0ffee".to_owned(),
            changed: false,
        };
        // A child that another test has just started has a closed ledger open too, until it has
        // replaced itself.
        let end = std::time::Instant::now() + Duration::from_secs(30);
        loop {
            match Self::open_in(place, tree.clone(), part) {
                Err(error)
                    if error.to_string().starts_with("another run")
                        && std::time::Instant::now() < end =>
                {
                    std::thread::yield_now();
                }
                opened => return opened.unwrap(),
            }
        }
    }

    /// A ledger that accepts no line.
    pub(crate) fn full_disk() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (ledger, _) = Self::of_a_test(dir.path(), "1/1");
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        Self { file, ..ledger }
    }
}

/// The records of the present tree, with the name of its directory.
///
/// # Errors
/// The tree has no name, or a record cannot be read.
pub(crate) fn recorded() -> Result<(PathBuf, States)> {
    let tree = Tree::of(&halite_lab::build::source_root())?;
    let directory = place().join(&tree.id);
    let states = States::new(&record::all(&directory, &tree.id)?);
    Ok((directory, states))
}

/// The results recorded on a commit and on later ones, and, for each commit with a result, the
/// files that have changed since.
///
/// # Errors
/// The commit does not precede the present one, or a record cannot be read.
pub(crate) fn recorded_since(commit: &str) -> Result<(States, BTreeMap<String, Vec<String>>)> {
    let root = halite_lab::build::source_root();
    let commits = tree::commits_since(&root, commit)?;
    let states = since_in(&place(), &commits)?;
    let changed = states.commits();
    let changed = changed.into_iter().map(|commit| {
        let files = tree::changed_since(&root, &commit)?;
        Ok((commit, files))
    });
    Ok((states, changed.collect::<Result<_>>()?))
}

/// The results below `place` that were recorded on one of these commits without further changes.
fn since_in(place: &Path, commits: &BTreeSet<String>) -> Result<States> {
    let mut records = Vec::new();
    for entry in fs::read_dir(place).with_context(|| format!("cannot read {}", place.display()))? {
        let entry = entry?;
        let tree = entry.file_name().to_string_lossy().into_owned();
        let of_tree = record::all(&entry.path(), &tree)?;
        records.extend(
            of_tree
                .into_iter()
                .filter(|record| !record.changed && commits.contains(&record.commit)),
        );
    }
    records.sort_by_key(|record| record.at);
    Ok(States::new(&records))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(place: &Path, part: &str) -> (Ledger, States) {
        Ledger::of_a_test(place, part)
    }

    #[test]
    fn a_run_continues_from_earlier_records_of_any_part() {
        let dir = tempfile::tempdir().unwrap();
        let (mut ledger, states) = open(dir.path(), "1/2");
        assert!(states.of("a").is_none());
        let second = Duration::from_secs(1);
        ledger.begin("a").unwrap();
        ledger.end("a", second, Ok(Counts::ONE)).unwrap();
        ledger.begin("b").unwrap();
        let error = anyhow::anyhow!("a reason");
        ledger.end("b", second, Err(&error)).unwrap();
        ledger.begin("c").unwrap();
        drop(ledger);
        let (_, states) = open(dir.path(), "2/2");
        assert_eq!(states.of("a"), Some(StartedTest::Passed));
        assert_eq!(states.of("b"), Some(StartedTest::Failed));
        assert_eq!(states.of("c"), Some(StartedTest::Interrupted));
        assert_eq!(states.of("d"), None);
    }

    #[test]
    fn results_of_chosen_commits_count_whatever_their_trees() {
        let dir = tempfile::tempdir().unwrap();
        for (id, commit, changed, test) in [
            ("t1", "c1", false, "older"),
            ("t2", "c2", false, "newer"),
            ("t3", "c2", true, "not committed"),
            ("t4", "c0", false, "too old"),
        ] {
            let tree = Tree {
                id: id.to_owned(),
                commit: commit.to_owned(),
                changed,
            };
            let (mut ledger, _) = Ledger::open_in(dir.path(), tree, "full").unwrap();
            ledger.begin(test).unwrap();
            ledger.end(test, Duration::ZERO, Ok(Counts::ONE)).unwrap();
        }
        let chosen = ["c1", "c2"].map(str::to_owned).into();
        let states = since_in(dir.path(), &chosen).unwrap();
        assert_eq!(states.of("older"), Some(StartedTest::Passed));
        assert_eq!(states.of("newer"), Some(StartedTest::Passed));
        assert_eq!(states.of("not committed"), None);
        assert_eq!(states.of("too old"), None);
    }

    #[test]
    fn an_unfinished_line_does_not_spoil_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let (mut ledger, _) = open(dir.path(), "1/2");
        ledger.begin("a").unwrap();
        let path = ledger.path.clone();
        drop(ledger);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"test\": \"b\", \"outc").unwrap();
        drop(file);
        let (mut ledger, states) = open(dir.path(), "1/2");
        assert_eq!(states.of("b"), None);
        ledger.begin("c").unwrap();
        drop(ledger);
        let (_, states) = open(dir.path(), "1/2");
        assert_eq!(states.of("c"), Some(StartedTest::Interrupted));
    }

    #[test]
    fn a_part_that_runs_is_not_run_beside() {
        let dir = tempfile::tempdir().unwrap();
        let (held, _) = open(dir.path(), "1/2");
        let again = Ledger::open_in(dir.path(), held.tree.clone(), "1/2");
        let error = again.unwrap_err();
        assert!(
            error.to_string().contains("another run of part 1/2"),
            "{error}"
        );
        open(dir.path(), "2/2");
    }
}
