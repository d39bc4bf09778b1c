//! The source tree: format, lint, dependencies, and all unit and protocol tests.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use halite_lab::build::source_root;
use halite_lab::build_command;
use halite_lab::timing;
use halite_upstream::cargo_deny;

use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<()>] = &[
    Test {
        name: "source: format",
        run: format,
    },
    Test {
        name: "source: lint",
        run: lint,
    },
    Test {
        name: "source: unit and protocol tests",
        run: unit,
    },
    Test {
        name: "source: dependencies",
        run: dependencies,
    },
];

/// Those of `--full` in addition.
pub(super) const FULL: &[Test<()>] = &[Test {
    name: "source: one to five members of etcd and back, each change killed 200 times",
    run: etcd_with_kills,
}];

/// The test of a usual run kills each change a few times.
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

fn lint((): &()) -> Result<Counts> {
    cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--quiet",
        "--",
        "--deny",
        "warnings",
    ])?;
    Ok(Counts::ONE)
}

/// Licences, duplicates, banned crates and sources, as `deny.toml` has them.
fn dependencies((): &()) -> Result<Counts> {
    let program = cargo_deny::ensure(&halite_lab::cache())?;
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

fn unit((): &()) -> Result<Counts> {
    let all = ["test", "--workspace", "--locked", "--no-fail-fast"];
    // Before what else the tests need: the early build makes that.
    let compile = [&all[..], &["--no-run"]].concat();
    timing::build("tests of the source tree", || cargo(&compile))?;
    let mut progress = |line: &str| println!("  {line}");
    let registry = halite_upstream::registry(&halite_lab::cache(), &mut progress)?;
    let helm = halite_upstream::helm(&halite_lab::cache(), &mut progress)?;
    let etcd = halite_upstream::etcd(&halite_lab::cache(), &mut progress)?;
    let etcdutl = halite_upstream::etcdutl(&halite_lab::cache(), &mut progress)?;
    let text = cargo_with(
        &[
            ("HALITE_REGISTRY", registry.as_os_str()),
            ("HALITE_HELM", helm.as_os_str()),
            ("HALITE_ETCD", etcd.as_os_str()),
            ("HALITE_ETCDUTL", etcdutl.as_os_str()),
        ],
        &all,
    )?;
    let mut counts = Counts::default();
    for line in text.lines().filter(|l| l.starts_with("test result: ")) {
        counts.passed += number_before(line, " passed");
        counts.failed += number_before(line, " failed");
    }
    if counts.passed == 0 {
        bail!("cargo test ran no test");
    }
    Ok(counts)
}

fn number_before(line: &str, word: &str) -> usize {
    line.split(word)
        .next()
        .and_then(|l| l.rsplit(' ').next())
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}
