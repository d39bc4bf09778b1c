//! cargo-deny, built into the cache: it checks licences, duplicates and sources of the dependencies.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use halite_lab::command::run;
use halite_lab::timing;

use crate::store::Store;

/// The dependency checker, built into the cache if missing (a few minutes, once). `before` is a
/// command that starts the build, such as one that lowers its priority; empty for none.
///
/// # Errors
/// It does not build.
pub fn ensure(cache: &Path, before: &[&str]) -> Result<PathBuf> {
    const VERSION: &str = "0.20.2";
    let tools = Store::new(cache.join("tools"))?;
    let _claim = tools.claim("cargo-deny")?;
    let root = cache.join(format!("tools/cargo-deny-{VERSION}"));
    let program = root.join("bin/cargo-deny");
    if !program.exists() {
        let target = root.join("target");
        let root = root.to_string_lossy();
        // It reads one lock file: optimising it takes longer than it ever runs.
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
        let mut all = vec![target_dir.as_str(), "CARGO_PROFILE_DEV_DEBUG=0"];
        all.extend(before);
        all.push("cargo");
        all.extend(args);
        timing::record("cargo-deny", || {
            run("env", &all).context("cannot build cargo-deny")
        })?;
        fs::remove_dir_all(&target).ok();
    }
    Ok(program)
}
