//! Programs that the machine needs in addition to Rust and Go, installed from its own package
//! sources if they are missing.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::command::run;

/// A program that the lab or a test of a crate runs, and the Debian package that contains it.
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
    ("/usr/bin/ssh-keygen", "openssh-client"),
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

/// Installs missing programs. Refuses, with the reason, if the lab cannot run.
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
