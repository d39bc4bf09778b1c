//! The proof that a repository is complete: the real dnf, given only the repository and a host with
//! the base, must be able to install everything.

use std::fs;
use std::path::Path;
use std::process::Command;

use halite_durable::files;

use super::repository::KEY;
use super::{Base, database};
use crate::error::Error;
use crate::process;

/// Lets dnf install `packages` from the repository alone, on a host with the base, up to rpm's own
/// test of the transaction. That includes the checks of all signatures.
pub fn prove(root: &Path, base: &Base, packages: &[String]) -> Result<(), Error> {
    if packages.is_empty() {
        return Ok(());
    }
    let scratch =
        tempfile::tempdir().map_err(Error::file("make a directory in", std::env::temp_dir()))?;
    let dir = scratch.path();
    let root = fs::canonicalize(root).map_err(Error::file("read", root))?;
    // An address allows no spaces, so a link without spaces replaces the path, which may contain
    // some.
    let repository = dir.join("repository");
    std::os::unix::fs::symlink(&root, &repository).map_err(Error::file("write", dir))?;
    let host = dir.join("host");
    database(base, &host)?;
    let own = |name: &str| dir.join(name).display().to_string();
    let configuration = format!(
        "[main]\nbest=1\nobsoletes=1\ninstall_weak_deps=0\nplugins=0\nskip_if_unavailable=0\ntsflags=test\n\
         cachedir={}\nlogdir={}\npersistdir={}\nreposdir={3}\nvarsdir={3}\n\
         [halite]\nname=halite\nbaseurl=file://{4}\nproxy=_none_\n\
         gpgcheck=1\nrepo_gpgcheck=1\ngpgkey=file://{4}/{KEY}\n",
        own("cache"),
        own("log"),
        own("state"),
        own("none"),
        repository.display(),
    );
    files::write(&dir.join("dnf.conf"), 0o644, configuration.as_bytes())?;
    // Debian's rpm has its database in the user's home.
    files::write(&dir.join(".rpmmacros"), 0o644, b"%_dbpath /var/lib/rpm\n")?;
    let mut dnf = Command::new("dnf");
    dnf.env("HOME", dir)
        .args(["--quiet", "-y", "-c", &own("dnf.conf"), "--installroot"])
        .arg(&host);
    dnf.args(["--releasever=0", "--forcearch=x86_64", "install"]);
    process::run(dnf.args(packages), "planning")
        .map(drop)
        .map_err(|error| {
            Error::Incomplete(format!(
                "dnf cannot install its packages on a minimal host: {error}"
            ))
        })
}
