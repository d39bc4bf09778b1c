//! The unit and protocol tests of all crates: test programs that Cargo compiles, a few of which run
//! in parallel.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use halite_lab::build::source_root;
use halite_lab::{build_command, leaves_inotify};
use serde_json::Value;

use crate::test::note_repeated;

/// Test programs that run in parallel: some wait for other programs.
const AT_ONCE: usize = 3;

/// Tests that run in parallel within a program: most of their time they wait, for programs, stores
/// and connections.
const THREADS: &str = "6";

/// Environment variables of random seeds. They are fixed, so that each run tests the same cases;
/// with `cargo test` each run tests others.
const SEEDS: [&str; 2] = ["PROPTEST_RNG_SEED", "HALITE_ETCD_SEED"];

/// Inotify instances that a program's tests may take: masters watch the documents, and agents of
/// GnuPG their directories.
const INSTANCES: usize = 12;

/// The time that programs wait for these: longer than three control planes exist in a default run.
const PATIENCE: Duration = Duration::from_mins(10);
const TICK: Duration = Duration::from_secs(5);

/// Programs that start first, because they wait for real programs most of their time.
const FIRST: &[&str] = &["lib/etcd plain_etcd"];

/// Runs `$0` with a file system in memory at `$1`, which no other process sees: the tests' stores
/// cost no disk time.
const IN_MEMORY: &str = "mount -t tmpfs -o mode=1777,size=50% halite-tests \"$1\" && exec \"$0\"";

/// The available memory that is required, in KiB; otherwise the files stay on the disk.
const ROOM: u64 = 8 << 20;

/// A test program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Executable {
    /// Its package, and the file of its tests unless that is the crate itself.
    pub(crate) name: String,
    path: PathBuf,
    /// The directory of the package.
    directory: PathBuf,
    size: u64,
}

/// Compiles all tests, and the programs that they start.
///
/// # Errors
/// A crate does not compile.
pub(crate) fn compile() -> Result<Vec<Executable>> {
    let words = [
        "test",
        "--workspace",
        "--all-targets",
        "--locked",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ];
    let output = build_command::cargo()
        .args(words)
        .current_dir(source_root())
        .stdin(Stdio::null())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "cargo {} ended with {}:\n{said}",
            words.join(" "),
            output.status
        );
    }
    let mut found = executables(&String::from_utf8_lossy(&output.stdout))?;
    for executable in &mut found {
        executable.size = executable.path.metadata()?.len();
    }
    // The largest have the most to do: they come next.
    found.sort_by_key(|executable| {
        let is_first = FIRST.contains(&executable.name.as_str());
        (!is_first, std::cmp::Reverse(executable.size))
    });
    Ok(found)
}

/// The test programs in the messages of Cargo.
fn executables(messages: &str) -> Result<Vec<Executable>> {
    let mut found = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line)
            .with_context(|| format!("cannot read a message of cargo: {line}"))?;
        let (Some(path), true) = (
            message["executable"].as_str(),
            message["profile"]["test"] == true,
        ) else {
            continue;
        };
        let manifest = message["manifest_path"].as_str().context("no manifest")?;
        let directory = Path::new(manifest).parent().context("no directory")?;
        let package = directory.strip_prefix(source_root()).unwrap_or(directory);
        let package = package.display();
        let target = message["target"]["name"].as_str().unwrap_or_default();
        found.push(Executable {
            name: match message["target"]["kind"][0].as_str() {
                Some("test") => format!("{package} {target}"),
                Some("bin") => format!("{package} (program)"),
                _ => package.to_string(),
            },
            path: PathBuf::from(path),
            directory: directory.to_owned(),
            size: 0,
        });
    }
    Ok(found)
}

/// Runs all test programs, some in parallel, and prints the output of those that fail. `tools` are
/// programs that tests start, with the variables that name them. `meanwhile` is run once: when the
/// first program must wait for inotify instances, or else after the last one.
///
/// # Errors
/// A program cannot be started, or no test ran.
pub(crate) fn run(
    executables: &[Executable],
    tools: &[(&str, PathBuf)],
    meanwhile: &(dyn Fn() + Sync),
) -> Result<Vec<Group>> {
    let memory = if has_room()? {
        Some(tempfile::tempdir()?)
    } else {
        None
    };
    let waiting: Mutex<VecDeque<&Executable>> = Mutex::new(executables.iter().collect());
    let patience = Mutex::new(PATIENCE);
    let is_started = AtomicBool::new(false);
    let meanwhile = || {
        if !is_started.swap(true, Ordering::Relaxed) {
            meanwhile();
        }
    };
    let next = || {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop_front()
    };
    let work = || -> Result<Vec<Group>> {
        let mut groups = Vec::new();
        while let Some(executable) = next() {
            if !leaves_inotify(INSTANCES)? {
                meanwhile();
                await_instances(&patience)?;
            }
            let memory = memory.as_ref().map(|dir| dir.path());
            groups.push(one(executable, &[], tools, memory)?);
        }
        Ok(groups)
    };
    let groups = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for worker in workers {
            let groups = worker
                .join()
                .map_err(|_| anyhow!("a test program's thread panicked"))?;
            all.extend(groups?);
        }
        anyhow::Ok(all)
    })?;
    meanwhile();
    ensure!(groups.iter().any(|group| group.passed > 0), "no test ran");
    Ok(groups)
}

/// Waits until the hosts of the clusters leave enough inotify instances, at most until all waits
/// together have used up `patience`. Hosts that lack instances fail in many ways.
fn await_instances(patience: &Mutex<Duration>) -> Result<()> {
    let mut left = patience.lock().unwrap_or_else(PoisonError::into_inner);
    let mut said = false;
    while !left.is_zero() && !leaves_inotify(INSTANCES)? {
        if !said {
            println!("  the next unit tests wait for inotify instances, which the hosts have");
            said = true;
        }
        thread::sleep(TICK);
        *left = left.saturating_sub(TICK);
    }
    Ok(())
}

/// Returns whether temporary files may be in memory (proc_meminfo(5)).
fn has_room() -> Result<bool> {
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let mut lines = text.lines();
    let available = lines
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Ok(available.is_some_and(|available| available > ROOM))
}

/// The results of a test program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) executable: Executable,
    pub(crate) passed: usize,
    /// The names of the tests that failed.
    pub(crate) failed: Vec<String>,
    pub(crate) took: Duration,
}

/// Runs the failed tests of a group again, alone: only this result counts.
///
/// # Errors
/// The program cannot be started.
pub(crate) fn repeat_failures(group: Group, tools: &[(&str, PathBuf)]) -> Result<Group> {
    if group.failed.is_empty() {
        return Ok(group);
    }
    let again = one(&group.executable, &group.failed, tools, None)?;
    let name = &group.executable.name;
    if again.passed + again.failed.len() != group.failed.len() {
        // It has died, or has no tests of these names.
        return Ok(group);
    }
    println!(
        "  {name}: repeated, because they failed in parallel with the clusters: {}; {} passed alone",
        group.failed.join(", "),
        again.passed
    );
    note_repeated(group.failed.iter().map(|test| format!("{name}: {test}")));
    Ok(Group {
        passed: group.passed + again.passed,
        failed: again.failed,
        ..group
    })
}

/// Runs all tests of a program, or those with these names, and prints the output if one fails.
fn one(
    executable: &Executable,
    tests: &[String],
    tools: &[(&str, PathBuf)],
    memory: Option<&Path>,
) -> Result<Group> {
    let start = Instant::now();
    let mut command = match memory {
        Some(directory) => {
            let mut command = Command::new("unshare");
            command
                .args(["--mount", "sh", "-c", IN_MEMORY])
                .args([executable.path.as_path(), directory])
                .env("TMPDIR", directory);
            command
        }
        None => Command::new(&executable.path),
    };
    if !tests.is_empty() {
        command.arg("--exact").args(tests);
    }
    command
        .current_dir(&executable.directory)
        .envs(tools.iter().map(|(name, path)| (*name, path)))
        .env("RUST_TEST_THREADS", THREADS)
        .envs(SEEDS.iter().map(|name| (*name, "1")))
        // As Cargo sets them.
        .env("CARGO_MANIFEST_DIR", &executable.directory)
        .env("CARGO_PKG_NAME", &executable.name)
        .stdin(Stdio::null());
    let output = command
        .output()
        .with_context(|| format!("cannot start {}", executable.path.display()))?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let (passed, mut failed) = results(&said);
    if !output.status.success() && failed.is_empty() {
        failed.push(format!("it ended with {}", output.status));
    }
    if !failed.is_empty() {
        println!("  {}:\n{}", executable.name, said.trim_end());
    }
    Ok(Group {
        executable: executable.clone(),
        passed,
        failed,
        took: start.elapsed(),
    })
}

/// The number of passed tests, and the names of failed ones, in the output of a test program.
fn results(said: &str) -> (usize, Vec<String>) {
    let (mut passed, mut failed) = (0, Vec::new());
    for line in said.lines() {
        let Some((name, result)) =
            (line.strip_prefix("test ")).and_then(|rest| rest.rsplit_once(" ... "))
        else {
            continue;
        };
        match result {
            "ok" => passed += 1,
            "FAILED" => failed.push(name.to_owned()),
            _ => {}
        }
    }
    (passed, failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_from_the_output_of_a_test_program() {
        let said = "\nrunning 3 tests\ntest a::one ... ok\ntest a::two - should panic ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\ntest is over\n\nfailures:\n    b\n\ntest result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        assert_eq!(results(said), (2, vec!["b".to_owned()]));
    }

    #[test]
    fn test_programs_are_found_in_the_messages_of_cargo() {
        let root = source_root();
        let message = |kind: &str, name: &str, is_test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": root.join("lib/etcd/Cargo.toml"),
                "target": {"kind": [kind], "name": name}, "profile": {"test": is_test},
                "executable": format!("/deps/{name}"),
            })
        };
        let messages = [
            message("lib", "halite_etcd", true),
            message("test", "plain_etcd", true),
            message("bin", "other", false),
            serde_json::json!({"reason": "build-finished", "success": true}),
        ];
        let text: String = messages
            .iter()
            .map(|message| format!("{message}\n"))
            .collect();
        let names: Vec<String> = executables(&text)
            .unwrap()
            .into_iter()
            .map(|executable| executable.name)
            .collect();
        assert_eq!(names, ["lib/etcd", "lib/etcd plain_etcd"]);
    }

    #[test]
    fn a_program_that_dies_is_a_failure() {
        let executable = Executable {
            name: "x".to_owned(),
            path: "/bin/false".into(),
            directory: "/".into(),
            size: 0,
        };
        let directory = tempfile::tempdir().unwrap();
        for memory in [None, Some(directory.path())] {
            let ended = one(&executable, &[], &[], memory).unwrap();
            assert_eq!(ended.passed, 0);
            assert!(ended.failed[0].contains("exit status: 1"), "{ended:?}");
            // Alone it dies, too.
            assert_eq!(repeat_failures(ended, &[]).unwrap().failed.len(), 1);
        }
    }

    #[test]
    fn a_failed_test_that_passes_alone_has_passed() {
        let name = "unit_tests::tests::results_are_read_from_the_output_of_a_test_program";
        let group = |failed: &[&str]| Group {
            executable: Executable {
                name: "x".to_owned(),
                path: std::env::current_exe().unwrap(),
                directory: "/".into(),
                size: 0,
            },
            passed: 1,
            failed: failed.iter().map(|name| (*name).to_owned()).collect(),
            took: Duration::ZERO,
        };
        let passed = repeat_failures(group(&[name]), &[]).unwrap();
        assert_eq!((passed.passed, passed.failed.len()), (2, 0));
        // A test that does not run stays failed.
        let missing = repeat_failures(group(&[name, "missing"]), &[]).unwrap();
        assert_eq!((missing.passed, missing.failed.len()), (1, 2));
    }
}
