//! The build script of the daemons: packs their relocations.
//!
//! A static program relocates itself at startup and reads the whole table for that. The master's
//! table is 640 KiB of pages that stay in its memory; packed, it is 8 KiB.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../lib/cli/daemon_build.rs");
    if reads_packed() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Returns whether the linked C library can read packed relocations: glibc since 2.36. A program
/// with an older one would stop at startup.
#[allow(
    clippy::disallowed_methods,
    reason = "runs while the minion is built; the lint rules of the master do not ban it, so `expect` would be unfulfilled there"
)]
fn reads_packed() -> bool {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let text = output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    );
    let version = text.trim().strip_prefix("glibc ").unwrap_or_default();
    let mut numbers = version.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (2, 36),
        _ => false,
    }
}
