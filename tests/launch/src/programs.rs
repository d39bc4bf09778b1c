//! Programs of the machine: missing ones, and the output of others.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, io};

use crate::errors::Context as _;

/// Refuses if a program is missing; each is listed with the Debian package that contains it.
///
/// # Errors
/// One line with the programs that are missing and the command that installs them.
pub fn require(programs: &[(&str, &str)]) -> io::Result<()> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories: Vec<_> = env::split_paths(&path).collect();
    match missing(programs, &directories) {
        Some(text) => Err(io::Error::new(io::ErrorKind::NotFound, text)),
        None => Ok(()),
    }
}

fn missing(programs: &[(&str, &str)], directories: &[impl AsRef<Path>]) -> Option<String> {
    let is_there = |name: &str| (directories.iter()).any(|dir| dir.as_ref().join(name).is_file());
    let missing: Vec<_> = (programs.iter())
        .filter(|(name, _)| !is_there(name))
        .collect();
    if missing.is_empty() {
        return None;
    }
    let names: Vec<_> = missing.iter().map(|(name, _)| *name).collect();
    let packages: BTreeSet<_> = missing.iter().map(|(_, package)| *package).collect();
    let packages: Vec<_> = packages.into_iter().collect();
    Some(format!(
        "cannot find {}: apt-get install {}",
        names.join(", "),
        packages.join(" ")
    ))
}

/// Runs a program that must succeed, and returns its standard output.
pub(crate) fn run(command: &mut Command) -> io::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let text = format!("{name} ended with {}: {}", output.status, said.trim());
        return Err(io::Error::other(text));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_named_with_their_packages() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("git"), "").unwrap();
        let needed = [
            ("git", "git"),
            ("nsenter", "util-linux"),
            ("ip", "iproute2"),
        ];
        let found = |needed: &[(&str, &str)]| missing(needed, &[directory.path()]);
        assert_eq!(found(&needed[..1]), None);
        let text = "cannot find nsenter, ip: apt-get install iproute2 util-linux";
        assert_eq!(found(&needed).as_deref(), Some(text));
    }

    #[test]
    fn a_failing_program_is_named_with_its_output() {
        let error = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("sh ended with") && text.ends_with(": why"),
            "{text}"
        );
        let error = run(&mut Command::new("/no/such/program")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot start /no/such/program: ")
        );
    }
}
