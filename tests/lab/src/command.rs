//! Running programs of the machine and reporting clearly what went wrong.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a program and returns its standard output; an error contains the command and its output.
pub fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<String> {
    let output = output(program, args)?;
    if !output.status.success() {
        bail!(
            "{} {} ended with {}: {}{}",
            program,
            shown(args),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program and returns its status and output.
pub fn output<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<Output> {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {program} {}", shown(args)))
}

/// A path of the running program that stays valid when its file is built again.
#[must_use]
pub fn this_program() -> PathBuf {
    PathBuf::from(format!("/proc/{}/exe", std::process::id()))
}

fn shown<S: AsRef<OsStr>>(args: &[S]) -> String {
    args.iter()
        .map(|a| a.as_ref().to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}
