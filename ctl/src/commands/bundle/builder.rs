//! The commands of `ctl bundle` that `halite-builder` runs: sites do not have that program.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use clap::ValueEnum as _;
use halite_cli::builder::Builder;

use crate::output::Format;

/// The program's name.
pub const PROGRAM: &str = "halite-builder";

/// Replaces this process by the builder's command: it has the same standard streams and the same
/// process id, and its exit code is the answer.
///
/// # Errors
/// The program is missing or cannot be run.
pub fn run(output: Format, command: Builder) -> anyhow::Result<u8> {
    let Some(program) = find() else {
        bail!(
            "cannot run {PROGRAM}: it is neither in the directory of ctl nor in PATH; run this on the machine that builds bundles, \
             or put {PROGRAM} into the directory of ctl"
        );
    };
    let command = with_own_directory(command);
    let output = output.to_possible_value();
    let output = output.as_ref().map_or("table", |value| value.get_name());
    let error = Command::new(&program)
        .args(["--output", output])
        .args(command.arguments())
        .exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// Lists what the state tree of the bundle in a directory can request and the bundle lacks; `None`
/// if no builder is installed.
///
/// # Errors
/// The builder fails.
pub fn missing(directory: &Path) -> anyhow::Result<Option<Vec<String>>> {
    let Some(program) = find() else {
        return Ok(None);
    };
    let output = Command::new(&program)
        .args([
            OsStr::new("missing"),
            OsStr::new("--"),
            directory.as_os_str(),
        ])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{}",
            said.trim_end().trim_start_matches(&format!("{PROGRAM}: "))
        );
    }
    let missing = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("cannot read the answer of {}", program.display()))?;
    Ok(Some(missing))
}

/// Sets the default directory of the programs for `init`: that of `ctl`, which is one of them,
/// unless the others are elsewhere, as in Debian's packages.
fn with_own_directory(command: Builder) -> Builder {
    let own = || {
        let own = own_path()?.parent()?.to_owned();
        own.join("halite-master").is_file().then_some(own)
    };
    match command {
        Builder::Init {
            directory,
            kubernetes,
            programs,
            states,
        } => Builder::Init {
            directory,
            kubernetes,
            programs: programs.or_else(own),
            states,
        },
        other => other,
    }
}

fn own_path() -> Option<PathBuf> {
    std::env::current_exe().ok()?.canonicalize().ok()
}

/// The program beside this one, or else in `PATH`.
fn find() -> Option<PathBuf> {
    let beside = own_path().map(|own| own.with_file_name(PROGRAM));
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        .chain(std::env::split_paths(&path).map(|dir| dir.join(PROGRAM)))
        .find(|program| program.is_file())
}
