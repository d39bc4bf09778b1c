//! The indexes of a yum repository, made by createrepo_c, and the signatures of the repository and
//! of its packages.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use halite_durable::files;
use jiff::Timestamp;

use crate::error::Error;
use crate::process;
use crate::signer::Signer;

/// The directory of packages in the repository.
pub const PACKAGES: &str = "packages";

/// The maximum length of a file name; Joliet cuts longer ones.
const LONGEST: usize = 64;

/// The file that dnf reads first; its signature is beside it.
pub const REPOMD: &str = "repodata/repomd.xml";

/// The file of public keys: the key that signs the repository and the made packages, and the keys
/// of the repositories from which other packages come.
pub const KEY: &str = "halite.asc";

/// Writes the indexes of a repository whose packages are in `packages/`, signs them, and writes the
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
        // The index contains the time of each file.
        let moment =
            SystemTime::UNIX_EPOCH + Duration::from_secs(date.as_second().max(0).unsigned_abs());
        let dated = File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_modified(moment));
        dated.map_err(Error::file("write", &path))?;
        if let Some(other) = versions.insert(name.clone(), version.clone()) {
            let message = format!("it contains {name} twice, {other} and {version}");
            return Err(Error::content(root.join(PACKAGES), message));
        }
    }
    let seconds = date.as_second().to_string();
    let mut index = Command::new("createrepo_c");
    // With digests, names of index files would be too long for some views of an image.
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
    process::run(&mut index, "writing the indexes of the yum repository")?;
    signer.detach(
        &root.join(REPOMD),
        &root.join(format!("{REPOMD}.asc")),
        date,
    )?;
    signer.export_with(&root.join(KEY), keys)?;
    Ok(versions)
}

/// The name of a package's file in the repository: its own, or one made from its digest if its own
/// is too long for some views of an image.
pub fn file_name(name: &str, digest: &str) -> String {
    if name.len() <= LONGEST {
        name.to_owned()
    } else {
        format!("{}.rpm", digest.get(..40).unwrap_or(digest))
    }
}

/// Reads the name and version of a package, with the epoch if there is one.
pub fn label(file: &Path) -> Result<(String, String), Error> {
    let mut ask = process::rpm("rpm", Path::new("/"));
    ask.args(["-qp", "--nosignature", "--nodigest", "--qf"]);
    ask.arg(r"%{NAME} %|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}")
        .arg(file);
    let said = process::run(&mut ask, &format!("reading {}", file.display()))?;
    let (name, version) = said
        .split_once(' ')
        .ok_or_else(|| Error::content(file, "it is not a package"))?;
    Ok((name.to_owned(), version.trim_start_matches("0:").to_owned()))
}

/// Checks the signatures of packages against public keys.
///
/// # Errors
/// Every package that none of them signed, or that was changed.
pub fn check(packages: &[PathBuf], keys: &[PathBuf]) -> Result<(), Error> {
    if packages.is_empty() {
        return Ok(());
    }
    let work =
        tempfile::tempdir().map_err(Error::file("make a directory in", std::env::temp_dir()))?;
    let database = format!("_dbpath {}", work.path().join("keys").display());
    let tool = || {
        let mut tool = process::rpm("rpmkeys", work.path());
        tool.args(["--define", &database, "--define", "_pkgverify_level all"]);
        tool
    };
    process::run(
        tool().arg("--import").args(keys),
        "reading the keys of the package repositories",
    )?;
    process::run(
        tool().arg("--checksig").args(packages),
        "checking the signatures of packages",
    )
    .map(drop)
}
