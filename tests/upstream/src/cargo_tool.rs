//! Programs that Cargo installs, built into the cache: cargo-deny checks licences, duplicates and
//! sources of the dependencies; mdBook renders the documentation of a release.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use halite_lab::command::run;
use halite_lab::timing;

use crate::store::Store;

/// A program, with the version that is used.
#[derive(Debug)]
pub struct Tool {
    /// The name of its crate and of its program.
    pub name: &'static str,
    /// The version.
    pub version: &'static str,
    /// Its features; `None` for the default ones.
    pub features: Option<&'static str>,
}

/// The dependency checker.
pub const CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    features: None,
};

/// The renderer of books; without its web server.
pub const MDBOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    features: Some("search"),
};

/// Returns a program, built into the cache if missing (a few minutes, once).
///
/// # Errors
/// It does not build.
pub fn ensure(cache: &Path, tool: &Tool) -> Result<PathBuf> {
    let Tool { name, version, .. } = tool;
    let tools = Store::new(cache.join("tools"))?;
    let _claim = tools.claim(name)?;
    let root = cache.join(format!("tools/{name}-{version}"));
    let program = root.join("bin").join(name);
    if !program.exists() {
        let target = root.join("target");
        let root = root.to_string_lossy();
        // It works for a moment: optimising it takes longer than it ever runs.
        let mut args = vec!["install", name, "--debug", "--locked", "--quiet"];
        args.extend(["--version", version, "--root", &root]);
        if let Some(features) = tool.features {
            args.extend(["--no-default-features", "--features", features]);
        }
        let target_dir = format!("CARGO_TARGET_DIR={}", target.display());
        let mut all = vec![target_dir.as_str(), "CARGO_PROFILE_DEV_DEBUG=0", "cargo"];
        all.extend(args);
        timing::record(name, || {
            run("env", &all).with_context(|| format!("cannot build {name}"))
        })?;
        fs::remove_dir_all(&target).ok();
    }
    Ok(program)
}
