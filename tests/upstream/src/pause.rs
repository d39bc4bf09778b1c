//! The pause program, from the C source in Kubernetes' own module, with the flags of upstream's
//! Makefile.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use halite_lab::build_command as command;

use super::golang::Go;
use super::store;
use super::store::Store;
use super::versions::Release;

/// Builds the program unless it exists, and returns its path. Rust needs a C compiler for linking,
/// so there is one.
pub fn ensure(
    store: &Store,
    go: &Go,
    release: &Release,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf> {
    let key = store::key(&("pause.c", release.kubernetes, release.pause))?;
    let dir = store.get("pause", &key, |out| {
        let module = go.sources(&format!("k8s.io/kubernetes@{}", release.kubernetes))?;
        let version = format!("-DVERSION=v{}", release.pause);
        let program = out.join("pause");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-Os", "-Wall", "-Werror", "-static", "-s", &version, "-o"])
            .arg(&program);
        command::run(
            compiler.arg(module.join("build/pause/linux/pause.c")),
            "building pause",
            progress,
        )?;
        store::set_mode(&program, 0o755)
    })?;
    Ok(dir.join("pause"))
}
