//! The build script of the daemons: has their relocations packed.
//!
//! A static program relocates itself when it starts, and reads the whole table for that: of the
//! master 640 KiB of pages that stay in its memory, packed 8 KiB.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../lib/cli/daemon_build.rs");
    if reads_packed() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether the C library that is linked in can read packed relocations: glibc since 2.36. A program
/// with an older one would end at its start.
#[allow(
    clippy::disallowed_methods,
    reason = "runs while the minion is built; the master's rules do not have it, so it cannot be expected"
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
