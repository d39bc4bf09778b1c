//! Packages from this machine's own package sources, with everything that a bare host lacks for
//! them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use halite_durable::{ScratchDir, digest, files};

use crate::error::Error;
use crate::lock::Lock;
use crate::process;

/// The identity of a request: the packages and the exact status of the base.
pub fn request(packages: &[String], base: &Path) -> Result<String, Error> {
    let mut names = packages.to_vec();
    names.sort_unstable();
    let (status, _) = files::digest(base)?;
    Ok(digest::sha256(
        format!("{}\n{status}\n", names.join(" ")).as_bytes(),
    ))
}

/// Returns the archives of the packages and of everything that a host with the dpkg status `base`
/// lacks for them; they are stored in `archives`. If the lock records the same request and all of
/// its archives are stored, no source is queried.
pub fn fetch(
    packages: &[String],
    base: &Path,
    archives: &Path,
    lock: Option<&Lock>,
) -> Result<Vec<PathBuf>, Error> {
    if packages.is_empty() {
        return Ok(Vec::new());
    }
    let asked = request(packages, base)?;
    if let Some(lock) = lock.filter(|lock| lock.request == asked)
        && let Some(found) = recorded(lock, archives)?
    {
        return Ok(found);
    }
    files::make_dir(&archives.join("partial"))?;
    let listed = match list(packages, base, archives) {
        Ok(listed) => listed,
        Err(first) => {
            // apt knows no package on a machine that has never updated its package lists.
            let mut update = Command::new("apt-get");
            if let Err(second) = process::run(
                update.args(["update", "-qq"]),
                "refreshing the package lists",
            ) {
                return Err(Error::Several(vec![first, second]));
            }
            list(packages, base, archives)?
        }
    };
    drop_others(&listed, archives)?;
    let what = format!("downloading {} packages", listed.len());
    process::run(
        apt(base, archives)
            .arg("--download-only")
            .arg("install")
            .args(packages),
        &what,
    )?;
    Ok(listed
        .into_iter()
        .map(|listed| archives.join(listed.name))
        .collect())
}

/// Removes each stored file that has the name of a listed archive, unless its content is certainly
/// the same: apt compares only the size.
fn drop_others(listed: &[Listed], archives: &Path) -> Result<(), Error> {
    for Listed { name, sha256 } in listed {
        let path = archives.join(name);
        if path.exists() && sha256.as_deref() != Some(files::digest(&path)?.0.as_str()) {
            files::remove_any(&path)?;
        }
    }
    Ok(())
}

/// An archive that apt would download.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    /// The file name under which apt stores it.
    name: String,
    /// The SHA-256 from the signed index, if apt prints one.
    sha256: Option<String>,
}

/// The archives that a lock records, if all of them are stored unchanged.
fn recorded(lock: &Lock, archives: &Path) -> Result<Option<Vec<PathBuf>>, Error> {
    if !archives.is_dir() {
        return Ok(None);
    }
    let wanted: BTreeSet<&str> = lock
        .packages
        .values()
        .map(|item| item.sha256.as_str())
        .collect();
    let mut found = BTreeSet::new();
    let mut paths = Vec::new();
    for name in files::walk(archives)?
        .into_iter()
        .filter(|name| name.ends_with(".deb"))
    {
        let path = archives.join(name);
        let (sha256, _) = files::digest(&path)?;
        if wanted.contains(sha256.as_str()) && found.insert(sha256) {
            paths.push(path);
        }
    }
    Ok((found.len() == wanted.len()).then_some(paths))
}

/// The recorded archives of a lock that are not stored, by their names in the repository.
pub fn unkept(lock: &Lock, archives: &Path) -> Result<Vec<String>, Error> {
    let mut there = BTreeSet::new();
    if archives.is_dir() {
        for name in files::walk(archives)?
            .into_iter()
            .filter(|name| name.ends_with(".deb"))
        {
            there.insert(files::digest(&archives.join(name))?.0);
        }
    }
    let gone = lock
        .packages
        .iter()
        .filter(|(_, item)| !there.contains(&item.sha256));
    Ok(gone.map(|(name, _)| name.clone()).collect())
}

/// Lists the archives that apt would download.
fn list(packages: &[String], base: &Path, archives: &Path) -> Result<Vec<Listed>, Error> {
    // apt prints only archives that it would download; with an empty directory these are all.
    let nowhere = ScratchDir::within(archives, ".nowhere-")?;
    files::make_dir(&nowhere.path().join("partial"))?;
    let mut ask = apt(base, nowhere.path());
    let printed = process::run(
        ask.arg("--print-uris").arg("install").args(packages),
        "querying the package sources",
    )?;
    Ok(parse(&printed))
}

/// Parses the lines of `--print-uris`: `'URI' NAME SIZE [HASH]`.
fn parse(printed: &str) -> Vec<Listed> {
    let lines = printed.lines().filter(|line| line.starts_with('\''));
    let listed = lines
        .map(|line| line.split(' ').skip(1))
        .filter_map(|mut words| {
            let name = words.next()?.to_owned();
            let sha256 = words
                .nth(1)
                .and_then(|hash| hash.strip_prefix("SHA256:"))
                .map(str::to_lowercase);
            Some(Listed { name, sha256 })
        });
    listed.collect()
}

fn apt(base: &Path, archives: &Path) -> Command {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive")
        .arg("-o")
        .arg(format!("Dir::State::status={}", base.display()))
        .arg("-o")
        .arg(format!("Dir::Cache::archives={}", archives.display()))
        .args([
            "-o",
            "APT::Sandbox::User=root",
            "-o",
            "Debug::NoLocking=1",
            "-o",
            "APT::Get::Always-Include-Phased-Updates=1",
        ])
        .args(["-qq", "-y", "--no-install-recommends"]);
    apt
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_apt_would_download_is_taken_from_what_it_prints() {
        let printed = "Reading...\n'http://host/pool/libelf1_0.188_amd64.deb' libelf1_0.188_amd64.deb 173796 SHA256:aB\n\
                       'http://host/pool/conntrack_1.4.7_amd64.deb' conntrack_1%3a1.4.7_amd64.deb 35240 \n\
                       'http://host/pool/kmod_30_amd64.deb' kmod_30_amd64.deb 95000 SHA512:cd\n";
        let listed = |name: &str, sha256: Option<&str>| Listed {
            name: name.to_owned(),
            sha256: sha256.map(str::to_owned),
        };
        assert_eq!(
            parse(printed),
            [
                listed("libelf1_0.188_amd64.deb", Some("ab")),
                listed("conntrack_1%3a1.4.7_amd64.deb", None),
                listed("kmod_30_amd64.deb", None)
            ]
        );
    }

    #[test]
    fn an_archive_that_is_another_than_listed_is_downloaded_anew() {
        let dir = tempfile::tempdir().unwrap();
        let listed: Vec<_> = [
            ("good", Some(digest::sha256(b"good"))),
            ("bad", Some(digest::sha256(b"best"))),
            ("any", None),
        ]
        .map(|(name, sha256)| Listed {
            name: name.to_owned(),
            sha256,
        })
        .into();
        for name in ["good", "bad", "any", "other"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        drop_others(&listed, dir.path()).unwrap();
        let there = ["good", "bad", "any", "other"].map(|name| dir.path().join(name).exists());
        assert_eq!(there, [true, false, false, true]);
    }
}
