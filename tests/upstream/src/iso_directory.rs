//! The files that an operator carries to the lab's site: the ISO, signed with a key that the lab
//! makes once; that key's public half; and a `ctl`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use halite_lab::build_command as command;

use super::image::file_digest;
use super::store;
use super::store::Store;

/// The ISO's name in the directory.
pub const ISO: &str = "halite.iso";

/// The key's name, without `.key` and `.pub`.
const KEY: &str = "builder";
/// Number of ISOs and bundles that stay in the cache. One run uses at most nine: of both releases,
/// of the newest in full, of the two of an upgrade, of two container runtimes, of an earlier
/// Halite, and of a newer one.
const KEPT: usize = 9;

/// Seals and signs the bundle in a directory, unless that is already done, and returns the
/// directory of the three files.
pub fn iso_directory(
    cache: &Path,
    bundle: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf> {
    let dir = std::path::absolute(cache)?.join("bundle");
    let store = Store::new(dir.clone())?;
    let ctl = bundle.join("bin/ctl");
    let (key, public) = (
        dir.join(format!("{KEY}.key")),
        dir.join(format!("{KEY}.pub")),
    );
    let claim = store.claim(KEY)?;
    if !public.exists() {
        // The two files appear one after the other: a single leftover half is useless.
        fs::remove_file(&key).or_else(|error| if key.exists() { Err(error) } else { Ok(()) })?;
        let mut make = Command::new(&ctl);
        make.args(["bundle", "key", "--unencrypted"]).arg(&key);
        command::run(&mut make, "making the lab's key", progress)?;
    }
    drop(claim);
    let content = (
        file_digest(&bundle.join("manifest.json"))?,
        file_digest(&public)?,
    );
    let made = store.get("iso", &store::key(&content)?, |out| {
        let mut pack = Command::new(&ctl);
        pack.args(["bundle", "pack"])
            .arg(bundle)
            .arg("--out")
            .arg(out.join(ISO))
            .arg("--key")
            .arg(&key);
        command::run(&mut pack, "sealing and signing the ISO", progress)?;
        for (from, name) in [(&ctl, "ctl"), (&public, "builder.pub")] {
            let to = out.join(name);
            fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        }
        Ok(())
    })?;
    for name in ["iso", "bundle", "licences"] {
        store.prune(name, KEPT)?;
    }
    Ok(made)
}
