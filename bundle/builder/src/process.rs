//! Runs the programs of other projects: Debian's, RPM's and GnuPG's.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::error::Error;

/// The path of rpm's database on every distribution with dnf, at least as a link.
const DATABASE: &str = "/var/lib/rpm";

/// Runs a program to its end and returns what it printed; `what` names the work in errors.
pub fn run(command: &mut Command, what: &str) -> Result<String, Error> {
    let Output {
        status,
        stdout,
        stderr,
    } = start(command, what)?;
    if !status.success() {
        // apt prints the problem on one stream and its cause on the other.
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&stderr),
            String::from_utf8_lossy(&stdout)
        );
        let message = format!("{} ended with {status}: {}", name(command), said.trim());
        return Err(Error::Program {
            what: what.to_owned(),
            message,
        });
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// A program of rpm that ignores the user's configuration, with its database at the path that hosts
/// use.
pub fn rpm(name: &str, home: &Path) -> Command {
    let mut command = Command::new(name);
    // Debian's rpm has its database in the user's home.
    command
        .args(["--define", &format!("_dbpath {DATABASE}")])
        .env("HOME", home);
    command
}

fn start(command: &mut Command, what: &str) -> Result<Output, Error> {
    // Messages and formats must not depend on the user's locale.
    command
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .stdin(Stdio::null());
    command.output().map_err(|error| Error::Program {
        what: what.to_owned(),
        message: format!("cannot start {}: {error}", name(command)),
    })
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}
