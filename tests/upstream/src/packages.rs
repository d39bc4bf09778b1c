//! Debian packages as the base of an image: downloaded with all dependencies, and unpacked into one
//! root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use halite_lab::base::{self, Debian};
use halite_lab::build_command as command;

use super::store;
use super::store::Store;

/// Increased on every change to fetching or unpacking archives.
pub const REVISION: u32 = 1;

/// Folders that no program of an image reads.
const UNUSED: &[&str] = &[
    "usr/share/bash-completion",
    "usr/share/bug",
    "usr/share/doc",
    "usr/share/doc-base",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/nftables",
    "usr/lib/x86_64-linux-gnu/gconv",
];

/// Links that the maintainer script of `iptables` would make through the alternatives system.
const IPTABLES_NAMES: &[&str] = &[
    "iptables",
    "iptables-restore",
    "iptables-save",
    "ip6tables",
    "ip6tables-restore",
    "ip6tables-save",
];

/// The archives of some packages and of all their dependencies on an empty host: of a Debian release,
/// or of the machine's own sources.
pub fn closure(
    store: &Store,
    debian: Option<Debian>,
    packages: &[&str],
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<PathBuf>> {
    let key = match debian {
        None => store::key(&(REVISION, packages))?,
        Some(debian) => store::key(&(REVISION, debian.codename(), packages))?,
    };
    let dir = store.get("archives", &key, |out| {
        if let Some(debian) = debian {
            let lists = tempfile::tempdir()?;
            let options = sources(debian, lists.path(), progress)?;
            refresh(&options, progress)?;
            return download(&options, packages, out, progress);
        }
        if download(&[], packages, out, progress).is_err() {
            // A machine whose package lists are missing or old does not know the archives.
            refresh(&[], progress)?;
            download(&[], packages, out, progress)?;
        }
        Ok(())
    })?;
    let mut archives = store::files(&dir)?;
    archives.retain(|file| file.extension().is_some_and(|extension| extension == "deb"));
    Ok(archives)
}

/// Options with which apt sees only the mirror of a Debian release, with lists of its own.
fn sources(debian: Debian, lists: &Path, progress: &mut dyn FnMut(&str)) -> Result<Vec<String>> {
    let cache = std::path::absolute(halite_lab::cache())?;
    base::ensure_of(debian, &cache, progress)?;
    Ok(vec![
        format!("Dir::Etc::sourcelist={}", debian.sources(&cache).display()),
        "Dir::Etc::sourceparts=/dev/null".to_owned(),
        format!("Dir::State::lists={}", lists.display()),
    ])
}

fn refresh(options: &[String], progress: &mut dyn FnMut(&str)) -> Result<()> {
    let mut apt = Command::new("apt-get");
    apt.args(options.iter().flat_map(|option| ["-o", option]))
        .args(["-o", "APT::Sandbox::User=root", "update", "-qq"]);
    command::run(&mut apt, "refreshing the package lists", progress)
}

fn download(
    options: &[String],
    packages: &[&str],
    out: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let status = scratch.path().join("status");
    fs::write(&status, "")?;
    fs::create_dir_all(out.join("partial"))?;
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive")
        .arg("-o")
        .arg(format!("Dir::State::status={}", status.display()))
        .arg("-o")
        .arg(format!("Dir::Cache::archives={}", out.display()))
        .args(options.iter().flat_map(|option| ["-o", option]))
        .args([
            "-o",
            "APT::Sandbox::User=root",
            "-o",
            "Debug::NoLocking=1",
            "-qq",
            "-y",
        ])
        .args(["--no-install-recommends", "--download-only", "install"])
        .args(packages);
    command::run(
        &mut apt,
        &format!("downloading {} and what they need", packages.join(" ")),
        progress,
    )?;
    fs::remove_dir_all(out.join("partial"))?;
    Ok(())
}

/// Unpacks archives into an empty root and removes files that no program reads. No maintainer
/// script is run.
pub fn unpack(archives: &[PathBuf], root: &Path) -> Result<()> {
    // Debian's hosts have merged directories; archives still name both.
    for name in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(root.join("usr").join(name))?;
        symlink(format!("usr/{name}"), root.join(name))?;
    }
    for archive in archives {
        extract(archive, root).with_context(|| format!("cannot unpack {}", archive.display()))?;
    }
    for name in UNUSED {
        let dir = root.join(name);
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
    }
    let sbin = root.join("usr/sbin");
    if sbin.join("xtables-nft-multi").exists() {
        for name in IPTABLES_NAMES {
            symlink("xtables-nft-multi", sbin.join(name))?;
        }
    }
    Ok(())
}

fn extract(archive: &Path, root: &Path) -> Result<()> {
    let mut packed = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(archive)
        .stdout(Stdio::piped())
        .spawn()?;
    let stream = packed.stdout.take().context("dpkg-deb has no output")?;
    let unpacked = Command::new("tar")
        .args([
            "-x",
            "--keep-directory-symlink",
            "-p",
            "--numeric-owner",
            "-C",
        ])
        .arg(root)
        .stdin(stream)
        .status()?;
    if !packed.wait()?.success() || !unpacked.success() {
        bail!("dpkg-deb or tar refused it");
    }
    Ok(())
}
