//! The base roots: a minimal Debian with systemd and without Halite, shared by all hosts of its
//! release as the lower overlay layer.

use std::fs;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::run;
use crate::timing;

/// Packages of a bare host in addition to `debootstrap --variant=minbase`.
const PACKAGES: &str = "systemd,systemd-sysv,libpam-systemd,dbus,iproute2,iputils-ping,procps,ca-certificates,curl,gpgv";

/// Unit that provides what hardware and firmware provide on a real host: writable cgroups, kernel
/// log, network parameters, and the kernel parameters that the kubelet requires. The latter belong
/// to the machine, so the host sees files with the required values mounted over them instead of
/// changing them.
const HARDWARE: &str = r#"[Unit]
Description=What hardware and firmware give a real host
DefaultDependencies=no
Before=sysinit.target systemd-sysctl.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'mount --make-rshared /; \
  mount -o remount,rw,bind /sys/fs/cgroup; \
  for group in /sys/fs/cgroup/*/; do mount -o remount,rw,bind "$group"; done; \
  [ -e /dev/kmsg ] || mknod /dev/kmsg c 1 11; \
  mount --bind /proc/sys/net /proc/sys/net; mount -o remount,rw,bind /proc/sys/net; \
  mkdir -p /run/lab-sysctl; \
  for pair in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do \
    path="$${pair%%=*}"; file="/run/lab-sysctl/$$(echo "$$path" | tr / .)"; \
    echo "$${pair##*=}" > "$$file"; mount --bind "$$file" "/proc/sys/$$path"; \
  done'

[Install]
WantedBy=sysinit.target
"#;

/// The journal survives a power cut, so that the traces of a failed test can be read. Without these
/// limits journald would keep next to nothing on a disk that is fuller than it likes.
const JOURNAL: &str = "[Journal]\nStorage=persistent\nSystemMaxUse=256M\nSystemKeepFree=512M\n";

/// A Debian release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Debian {
    /// Debian 12, which almost all hosts have.
    Bookworm,
    /// Debian 13.
    Trixie,
}

impl Debian {
    /// Its codename.
    #[must_use]
    pub fn codename(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }

    /// The path of its base root in the cache.
    #[must_use]
    pub fn root(self, cache: &Path) -> PathBuf {
        cache.join(match self {
            Self::Bookworm => "base-root",
            Self::Trixie => "base-root-trixie",
        })
    }

    /// The address of the mirror from which its base root was made.
    ///
    /// # Errors
    /// It is not known: the root was made by hand.
    pub fn mirror(self, cache: &Path) -> Result<String> {
        let file = mirror_file(&self.root(cache));
        let line =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        // `deb ADDRESS SUITE COMPONENTS`
        let address = line.split_whitespace().nth(1);
        let address = address.with_context(|| format!("{} names no mirror", file.display()))?;
        Ok(address.to_owned())
    }
}

/// The file with the source line of debootstrap's mirror, next to the root.
fn mirror_file(root: &Path) -> PathBuf {
    root.with_extension("mirror")
}

/// Makes the base root of Debian 12 in the cache unless it exists, and returns its path.
pub fn ensure(cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    ensure_of(Debian::Bookworm, cache, progress)
}

/// The same for a Debian release.
pub fn ensure_of(debian: Debian, cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let root = debian.root(cache);
    // The early build of a run and a suite may both find it missing.
    fs::create_dir_all(cache)?;
    let lock = cache.join("base-root.lock");
    let lock = File::create(&lock).with_context(|| format!("cannot make {}", lock.display()))?;
    lock.lock()?;
    if !root.join(".complete").exists() {
        progress("base root: debootstrap (about a minute)");
        let partial = root.with_extension("partial");
        if partial.exists() {
            fs::remove_dir_all(&partial).context("removing an unfinished base root")?;
        }
        let include = format!("--include={PACKAGES}");
        timing::build("base root", || {
            run(
                "debootstrap",
                &[
                    "--variant=minbase",
                    &include,
                    debian.codename(),
                    &partial.to_string_lossy(),
                ],
            )
        })?;
        for archive in fs::read_dir(partial.join("var/cache/apt/archives"))? {
            let path = archive?.path();
            if path.extension().is_some_and(|e| e == "deb") {
                fs::remove_file(path)?;
            }
        }
        // A host of an offline site has no sources; an empty list keeps apt quiet.
        let sources = partial.join("etc/apt/sources.list");
        fs::copy(&sources, mirror_file(&root))?;
        fs::write(&sources, "")?;
        fs::write(partial.join(".complete"), "")?;
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        fs::rename(&partial, &root)?;
    }
    let units = root.join("etc/systemd/system");
    write(&units.join("lab-hardware.service"), HARDWARE)?;
    let journal = root.join("etc/systemd/journald.conf.d");
    fs::create_dir_all(&journal)?;
    write(&journal.join("lab.conf"), JOURNAL)?;
    let wants = units.join("sysinit.target.wants");
    fs::create_dir_all(&wants)?;
    let link = wants.join("lab-hardware.service");
    if !link.is_symlink() {
        symlink("../lab-hardware.service", &link)?;
    }
    Ok(root)
}

/// Writes a file whose content differs: hosts may be running on the root.
fn write(file: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(file).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
