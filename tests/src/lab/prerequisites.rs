//! What the machine itself needs besides Rust and Go: installed from its own package sources when
//! missing.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::command::run;
use crate::upstream::store::Store;

/// A program that the lab or a test of a crate runs, and the Debian package that brings it.
const PROGRAMS: &[(&str, &str)] = &[
    ("/usr/sbin/debootstrap", "debootstrap"),
    ("/usr/bin/systemd-nspawn", "systemd-container"),
    ("/usr/sbin/nft", "nftables"),
    ("/usr/bin/dpkg-deb", "dpkg"),
    ("/usr/bin/apt-ftparchive", "apt-utils"),
    ("/usr/bin/gpg", "gpg"),
    ("/usr/sbin/nginx", "nginx-light"),
    ("/usr/bin/nsenter", "util-linux"),
    ("/usr/bin/zstd", "zstd"),
    ("/usr/bin/gpgv", "gpgv"),
    ("/usr/bin/gpg-agent", "gpg-agent"),
    ("/usr/bin/gpgconf", "gpgconf"),
    ("/usr/bin/xz", "xz-utils"),
    ("/usr/bin/openssl", "openssl"),
    ("/usr/bin/minisign", "minisign"),
    ("/usr/bin/xorriso", "xorriso"),
    ("/usr/bin/7z", "p7zip-full"),
    ("/usr/bin/isoinfo", "genisoimage"),
    ("/usr/bin/createrepo_c", "createrepo-c"),
    ("/usr/bin/rpmbuild", "rpm"),
    ("/usr/bin/dnf", "dnf"),
    ("/usr/bin/htpasswd", "apache2-utils"),
    ("/usr/bin/man", "man-db"),
    ("/usr/bin/groff", "groff-base"),
];

/// Installs what is missing. Refuses with the reason where the lab cannot run.
pub fn ensure(progress: &mut dyn FnMut(&str)) -> Result<()> {
    if !is_root() {
        bail!("the lab boots hosts and makes network namespaces: run it as root");
    }
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !system.lines().any(|l| l == "ID=debian") {
        bail!("the lab installs what it needs with apt: run it on Debian 12");
    }
    let missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(p, _)| !Path::new(p).exists())
        .map(|(_, k)| *k)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    progress(&format!("installing {}", missing.join(" ")));
    run("apt-get", &["update", "-qq"]).context("the machine's package sources do not answer")?;
    // Services that come with the packages must not start on this machine.
    let mut args = vec![
        "RUNLEVEL=1",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "install",
        "-y",
        "-qq",
    ];
    args.push("--no-install-recommends");
    args.extend(missing);
    run("env", &args)?;
    Ok(())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The dependency checker, built into the cache when missing (a few minutes, once).
pub fn cargo_deny(cache: &Path) -> Result<PathBuf> {
    const VERSION: &str = "0.20.2";
    let tools = Store::new(cache.join("tools"))?;
    let _claim = tools.claim("cargo-deny")?;
    let root = cache.join(format!("tools/cargo-deny-{VERSION}"));
    let program = root.join("bin/cargo-deny");
    if !program.exists() {
        let target = root.join("target");
        let root = root.to_string_lossy();
        // It reads one lock file: to optimise it takes longer than it ever runs.
        let args = [
            "install",
            "cargo-deny",
            "--debug",
            "--locked",
            "--quiet",
            "--version",
            VERSION,
            "--root",
            &root,
        ];
        let target_dir = format!("CARGO_TARGET_DIR={}", target.display());
        let mut all = vec![target_dir.as_str(), "CARGO_PROFILE_DEV_DEBUG=0", "cargo"];
        all.extend(args);
        run("env", &all).context("building cargo-deny")?;
        fs::remove_dir_all(&target).ok();
    }
    Ok(program)
}
