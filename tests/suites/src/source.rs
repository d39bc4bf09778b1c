//! The source tree: format, lint, dependencies, and all unit and protocol tests.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use halite_lab::build::source_root;
use halite_lab::build_command;
use halite_lab::timing;
use halite_upstream::cargo_tool::{self, CARGO_DENY};

use crate::background::{Background, Results};
use crate::test::{Counts, Test, note_group};
use crate::unit_tests::{self, Executable};
use crate::watchdog;

pub(super) const TESTS: &[Test<()>] = &[Test {
    name: "source: format",
    run: format,
}];

/// The additional tests of `--full`.
pub(super) const FULL: &[Test<()>] = &[
    Test {
        name: "source: one to five members of etcd and back, each change killed 200 times",
        run: etcd_with_kills,
    },
    Test {
        name: "source: the encryption of backups, against the vectors of C2SP and Debian's age",
        run: age,
    },
    Test {
        name: "source: charts are rendered by the real Helm",
        run: charts,
    },
    Test {
        name: "source: a real Prometheus scrapes with the site's CA, and promtool tests the alerts",
        run: prometheus,
    },
];

/// The same as [`charts`], for Prometheus.
fn prometheus((): &()) -> Result<Counts> {
    let (cache, mut say) = (halite_lab::cache(), |line: &str| println!("  {line}"));
    let (prometheus, promtool) = halite_upstream::prometheus(&cache, &mut say)?;
    let environment = [
        ("HALITE_PROMETHEUS", prometheus.as_os_str()),
        ("HALITE_PROMTOOL", promtool.as_os_str()),
    ];
    let words = [
        "test",
        "--locked",
        "-p",
        "halite-master",
        "--lib",
        "metrics::",
        "--",
        "--ignored",
    ];
    let text = cargo_with(&environment, &words)?;
    ensure!(
        text.contains("test result: ok. 2 passed"),
        "not both tests ran: {text}"
    );
    Ok(Counts {
        passed: 2,
        failed: 0,
    })
}

/// Tests that Cargo ignores elsewhere, because they need a program that takes minutes to build.
fn charts((): &()) -> Result<Counts> {
    let (cache, mut say) = (halite_lab::cache(), |line: &str| println!("  {line}"));
    let helm = halite_upstream::helm(&cache, &mut say)?;
    let registry = halite_upstream::registry(&cache, &mut say)?;
    let environment = [
        ("HALITE_HELM", helm.as_os_str()),
        ("HALITE_REGISTRY", registry.as_os_str()),
    ];
    let mut passed = 0;
    for package in ["halite-builder", "ctl"] {
        let words = [
            "test",
            "--locked",
            "-p",
            package,
            "--test",
            "recipe",
            "--",
            "--ignored",
        ];
        let text = cargo_with(&environment, &words)?;
        let ran = text.matches(" ... ok").count();
        ensure!(ran > 0, "no test of {package} ran: {text}");
        passed += ran;
    }
    Ok(Counts { passed, failed: 0 })
}

/// Tests that the default run does in parallel with the clusters ([`in_parallel`]).
pub(super) const BESIDE: &[Test<Background>] = &[
    Test {
        name: "source: unit and protocol tests",
        run: unit,
    },
    Test {
        name: "source: lint",
        run: lint,
    },
    Test {
        name: "source: dependencies",
        run: dependencies,
    },
];

/// The arguments of Cargo that lint everything.
pub(super) const LINT: &[&str] = &[
    "clippy",
    "--workspace",
    "--all-targets",
    "--locked",
    "--quiet",
    "--",
    "--deny",
    "warnings",
];

/// The test of a normal run kills each change a few times.
fn etcd_with_kills((): &()) -> Result<Counts> {
    let etcd = halite_upstream::etcd(&halite_lab::cache(), &mut |_| {})?;
    let environment = [
        ("HALITE_ETCD", etcd.as_os_str()),
        ("HALITE_ETCD_KILLS", OsStr::new("200")),
    ];
    let name = "one_to_five_and_back_loses_no_acknowledged_write";
    let words = [
        "test",
        "--locked",
        "-p",
        "halite-etcd",
        "--test",
        "plain_etcd",
        name,
    ];
    let text = cargo_with(&environment, &words)?;
    ensure!(
        text.contains("test result: ok. 1 passed"),
        "no test ran: {text}"
    );
    Ok(Counts::ONE)
}

/// Vectors and program are fetched, and are not part of this tree.
fn age((): &()) -> Result<Counts> {
    let (program, vectors) = halite_upstream::age(&halite_lab::cache(), &mut |_| {})?;
    let environment = [
        ("HALITE_AGE", program.as_os_str()),
        ("HALITE_AGE_VECTORS", vectors.as_os_str()),
    ];
    for (package, target, tests) in [
        ("halite-age", "vectors", 2),
        ("halite-secret-file", "age", 1),
    ] {
        let words = [
            "test",
            "--locked",
            "-p",
            package,
            "--test",
            target,
            "--",
            "--ignored",
        ];
        let text = cargo_with(&environment, &words)?;
        ensure!(
            text.contains(&format!("test result: ok. {tests} passed")),
            "not all tests of {package} ran: {text}"
        );
    }
    Ok(Counts::ONE)
}

fn cargo(args: &[&str]) -> Result<String> {
    cargo_with(&[], args)
}

fn cargo_with(environment: &[(&str, &OsStr)], args: &[&str]) -> Result<String> {
    let output = build_command::cargo()
        .args(args)
        .envs(environment.iter().copied())
        .current_dir(source_root())
        .stdin(Stdio::null())
        .output()
        .context("cannot start cargo")?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if !output.status.success() {
        bail!(
            "cargo {} ended with {}:\n{text}",
            args.join(" "),
            output.status
        );
    }
    Ok(text)
}

fn format((): &()) -> Result<Counts> {
    cargo(&["fmt", "--all", "--check"])?;
    Ok(Counts::ONE)
}

fn lint(_: &Background) -> Result<Counts> {
    cargo(LINT)?;
    Ok(Counts::ONE)
}

/// Licences, duplicates, banned crates and sources, according to `deny.toml`.
fn dependencies(_: &Background) -> Result<Counts> {
    let program = cargo_tool::ensure(&halite_lab::cache(), &CARGO_DENY)?;
    let output = Command::new(&program)
        .args(["--offline", "check", "bans", "licenses", "sources"])
        .current_dir(source_root())
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!(
            "cargo deny found:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(Counts::ONE)
}

/// Programs that tests of the source tree start, each with the variable that names it to them.
pub(super) fn tools(progress: &mut dyn FnMut(&str)) -> Result<Vec<(&'static str, PathBuf)>> {
    let cache = halite_lab::cache();
    Ok(vec![
        ("HALITE_ETCD", halite_upstream::etcd(&cache, progress)?),
        (
            "HALITE_ETCDUTL",
            halite_upstream::etcdutl(&cache, progress)?,
        ),
        (
            "HALITE_REGISTRY",
            halite_upstream::registry(&cache, progress)?,
        ),
    ])
}

/// The unit and protocol tests, and the work that the last tests of the source tree only confirm.
pub(super) fn in_parallel() -> Results {
    // The last tests report its findings.
    let lint = || {
        let _ = timing::record("lint and its tools, in parallel with the clusters", || {
            cargo(LINT)?;
            cargo_tool::ensure(&halite_lab::cache(), &CARGO_DENY)
        });
    };
    let tests = "unit and protocol tests, in parallel with the clusters";
    timing::record(tests, || {
        let executables = unit_tests::compile()?;
        run(&executables, &lint)
    })
}

fn unit(background: &Background) -> Result<Counts> {
    let groups = match background.results() {
        Some(results) => {
            let (groups, took) = results?;
            watchdog::add(took);
            let tools = tools(&mut |line| println!("  {line}"))?;
            let again = |group| unit_tests::repeat_failures(group, &tools);
            groups.into_iter().map(again).collect::<Result<_>>()?
        }
        None => {
            let executables = timing::build("the tests of the source tree", unit_tests::compile)?;
            run(&executables, &|| ())?.0
        }
    };
    let mut counts = Counts::default();
    for group in groups {
        counts.add(Counts {
            passed: group.passed,
            failed: group.failed.len(),
        });
        let name = &group.executable.name;
        let failed = group.failed.iter().map(|test| format!("{name}: {test}"));
        note_group(name, group.took, failed);
    }
    Ok(counts)
}

fn run(executables: &[Executable], meanwhile: &(dyn Fn() + Sync)) -> Results {
    let tools = tools(&mut |line| println!("  {line}"))?;
    let start = Instant::now();
    let groups = unit_tests::run(executables, &tools, meanwhile)?;
    Ok((groups, start.elapsed()))
}
