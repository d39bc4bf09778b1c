//! The indexes of a yum repository, by createrepo_c, and the signatures of the repository and of
//! its packages.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use halite_durable::files;
use jiff::Timestamp;

use super::program as rpm;
use crate::apt::{Signer, program};
use crate::error::Error;

/// The packages, below the repository.
pub const PACKAGES: &str = "packages";

/// Joliet cuts longer names of files.
const LONGEST: usize = 64;

/// What dnf reads first, and its signature.
pub const REPOMD: &str = "repodata/repomd.xml";

/// The public keys: that of the repository and of the packages that the build made, and those of
/// the repositories that other packages came from.
pub const KEY: &str = "halite.asc";

/// Writes the indexes of a repository whose packages lie in `packages/`, signs them, and puts the
/// public keys beside them: ours, and `keys`. Returns package name to version. The same packages,
/// keys and date give the same bytes.
pub fn write(
    root: &Path,
    date: Timestamp,
    signer: &Signer,
    keys: &[PathBuf],
) -> Result<BTreeMap<String, String>, Error> {
    let mut versions = BTreeMap::new();
    for file in files::walk(&root.join(PACKAGES))? {
        let path = root.join(PACKAGES).join(file);
        let (name, version) = label(&path)?;
        // The index names the time of each file.
        let moment =
            SystemTime::UNIX_EPOCH + Duration::from_secs(date.as_second().max(0).unsigned_abs());
        let dated = File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_modified(moment));
        dated.map_err(Error::file("write", &path))?;
        if let Some(other) = versions.insert(name.clone(), version.clone()) {
            let message = format!("it holds {name} twice, {other} and {version}");
            return Err(Error::content(root.join(PACKAGES), message));
        }
    }
    let seconds = date.as_second().to_string();
    let mut index = Command::new("createrepo_c");
    // Names with digests are longer than every view of an image can show.
    index.args([
        "--quiet",
        "--no-database",
        "--general-compress-type=gz",
        "--checksum=sha256",
    ]);
    index.arg("--simple-md-filenames");
    index.args([
        "--revision",
        &seconds,
        "--set-timestamp-to-revision",
        "--workers=1",
    ]);
    index.env("SOURCE_DATE_EPOCH", &seconds).arg(root);
    program::run(&mut index, "writing the indexes of the yum repository")?;
    signer.detach(
        &root.join(REPOMD),
        &root.join(format!("{REPOMD}.asc")),
        date,
    )?;
    signer.export_with(&root.join(KEY), keys)?;
    Ok(versions)
}

/// The name of a package's file in the repository: its own, or one by its digest where that is
/// longer than every view of an image can show.
pub fn file_name(name: &str, digest: &str) -> String {
    if name.len() <= LONGEST {
        name.to_owned()
    } else {
        format!("{}.rpm", digest.get(..40).unwrap_or(digest))
    }
}

/// Name and version, with the epoch where it has one, of a package.
pub fn label(file: &Path) -> Result<(String, String), Error> {
    let mut ask = rpm("rpm", Path::new("/"));
    ask.args(["-qp", "--nosignature", "--nodigest", "--qf"]);
    ask.arg(r"%{NAME} %|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}")
        .arg(file);
    let said = program::run(&mut ask, &format!("reading {}", file.display()))?;
    let (name, version) = said
        .split_once(' ')
        .ok_or_else(|| Error::content(file, "it is no package"))?;
    Ok((name.to_owned(), version.trim_start_matches("0:").to_owned()))
}

/// Checks the signatures of packages against public keys.
///
/// # Errors
/// Every package that is not signed by one of them, or was changed.
pub fn check(packages: &[PathBuf], keys: &[PathBuf]) -> Result<(), Error> {
    if packages.is_empty() {
        return Ok(());
    }
    let work =
        tempfile::tempdir().map_err(Error::file("make a directory in", std::env::temp_dir()))?;
    let database = format!("_dbpath {}", work.path().join("keys").display());
    let tool = || {
        let mut tool = rpm("rpmkeys", work.path());
        tool.args(["--define", &database, "--define", "_pkgverify_level all"]);
        tool
    };
    program::run(
        tool().arg("--import").args(keys),
        "reading the keys of the package repositories",
    )?;
    program::run(
        tool().arg("--checksig").args(packages),
        "checking the signatures of packages",
    )
    .map(drop)
}
