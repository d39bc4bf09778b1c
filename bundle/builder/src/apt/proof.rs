//! The proof that a repository is complete: apt itself, given only the repository and the status of
//! a bare host, must be able to install everything.

use std::fs;
use std::path::Path;
use std::process::Command;

use halite_durable::{ScratchDir, files};

use crate::error::Error;
use crate::process;

/// Lets apt plan the installation of `packages` from the repository alone, on a host with the dpkg
/// status `base`. That includes the check of the repository's signature.
pub fn prove(root: &Path, base: &Path, packages: &[String]) -> Result<(), Error> {
    let scratch = ScratchDir::new("halite-apt-")?;
    let dir = scratch.path();
    let root = fs::canonicalize(root).map_err(Error::file("read", root))?;
    // The source line of apt allows no quotes, so a link without spaces replaces the path, which
    // may contain spaces.
    std::os::unix::fs::symlink(&root, dir.join("repository")).map_err(Error::file("write", dir))?;
    let repository = dir.join("repository");
    let source = format!(
        "deb [signed-by={0}/halite.gpg arch=amd64] file:{0} stable main\n",
        repository.display()
    );
    files::write(&dir.join("sources.list"), 0o644, source.as_bytes())?;
    // apt's own configuration on this machine must not affect the plan for a bare host. apt reads
    // this file before any option.
    let bare = "Dir::Etc::main \"/dev/null\";\nDir::Etc::parts \"/dev/null\";\nDir::Etc::preferences \"/dev/null\";\n";
    files::write(&dir.join("apt.conf"), 0o644, bare.as_bytes())?;
    for name in ["state/lists/partial", "cache/archives/partial", "parts"] {
        files::make_dir(&dir.join(name))?;
    }
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.env("APT_CONFIG", dir.join("apt.conf"));
        for (key, value) in [
            ("Dir::Etc::sourcelist", dir.join("sources.list")),
            ("Dir::Etc::sourceparts", dir.join("parts")),
            ("Dir::Etc::preferencesparts", dir.join("parts")),
            ("Dir::State", dir.join("state")),
            ("Dir::State::status", base.to_owned()),
            ("Dir::Cache", dir.join("cache")),
        ] {
            apt.arg("-o").arg(format!("{key}={}", value.display()));
        }
        apt.args([
            "-o",
            "APT::Sandbox::User=root",
            "-o",
            "Debug::NoLocking=1",
            "-o",
            "Acquire::Languages=none",
            // SOURCE_DATE_EPOCH may set a date in the future; that does not make a repository
            // incomplete.
            "-o",
            "Acquire::Check-Date=false",
        ]);
        apt.args([
            "-o",
            "APT::Architectures=amd64",
            "-o",
            "APT::Update::Error-Mode=any",
            "-q",
            "-y",
        ]);
        apt
    };
    process::run(apt().arg("update"), "reading the new repository with apt")?;
    process::run(
        apt()
            .args(["--no-install-recommends", "--simulate", "install"])
            .args(packages),
        "planning",
    )
    .map(|_| ())
    .map_err(|error| {
        Error::Incomplete(format!(
            "apt cannot install its packages on a bare host: {error}"
        ))
    })
}
