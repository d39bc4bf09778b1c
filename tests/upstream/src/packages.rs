//! Debian packages as the base of an image: downloaded with all dependencies, and unpacked into one
//! root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
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

/// The archives of some packages and of all their dependencies on an empty host.
pub fn closure(
    store: &Store,
    packages: &[&str],
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<PathBuf>> {
    let dir = store.get("archives", &store::key(&(REVISION, packages))?, |out| {
        if download(packages, out, progress).is_err() {
            // A machine whose package lists are missing or old does not know the archives.
            let what = "refreshing the machine's package lists";
            command::run(
                Command::new("apt-get").args(["update", "-qq"]),
                what,
                progress,
            )?;
            download(packages, out, progress)?;
        }
        Ok(())
    })?;
    let mut archives = store::files(&dir)?;
    archives.retain(|file| file.extension().is_some_and(|extension| extension == "deb"));
    Ok(archives)
}

fn download(packages: &[&str], out: &Path, progress: &mut dyn FnMut(&str)) -> Result<()> {
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
