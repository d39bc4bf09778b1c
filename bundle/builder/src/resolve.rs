//! `ctl bundle lock` and `ctl bundle update`: the resolution of a recipe's names.

use std::path::Path;

use halite_durable::{FileLock, files};
use halite_manifest::ItemChange;

use crate::error::Error;
use crate::gather::{Gather, Mode};
use crate::lock::Lock;
use crate::recipe::Recipe;
use crate::{Options, build_cache};

/// A resolved recipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The lock.
    pub lock: Lock,
    /// The differences from the previous lock; everything if there was none.
    pub changes: Vec<ItemChange>,
}

/// Resolves and records every item that the lock lacks, and removes items that the recipe no longer
/// names. Recorded items stay unchanged, so that a second run changes nothing.
///
/// # Errors
/// The recipe has problems, an item cannot be resolved, or an item on this machine differs
/// from the lock.
pub fn lock(
    recipe: &Path,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Resolved, Error> {
    resolve(recipe, options, Mode::Keep, true, progress)
}

/// Resolves everything again, and records it if `write` is set.
///
/// # Errors
/// The recipe has problems, or an item cannot be resolved; then nothing is written.
pub fn update(
    recipe: &Path,
    options: &Options,
    write: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Resolved, Error> {
    resolve(recipe, options, Mode::Renew, write, progress)
}

fn resolve(
    file: &Path,
    options: &Options,
    mode: Mode,
    write: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Resolved, Error> {
    // apt resolves a relative path against its own directories.
    let file = &std::path::absolute(file).map_err(Error::file("read", file))?;
    let recipe = Recipe::load(file)?;
    let _recipe = FileLock::wait(file, progress)?;
    let scratch = files::sibling(file, "parts");
    let resolved = (|| -> Result<_, Error> {
        let cache = recipe.cache.clone().unwrap_or_else(|| scratch.clone());
        let _cache = build_cache::claim(&cache, progress)?;
        let recorded = Lock::load(file)?;
        let gather = Gather::new(
            file,
            &recipe,
            &cache,
            options.offline,
            options.watcher.clone(),
        )?;
        progress("resolving the items of the recipe");
        let lock = gather.settle(recorded.as_ref(), mode)?.lock;
        let changes = match &recorded {
            Some(recorded) => recorded.changes(&lock),
            None => Lock::default().changes(&lock),
        };
        if write && recorded.as_ref() != Some(&lock) {
            lock.save(file)?;
        }
        Ok(Resolved { lock, changes })
    })();
    let removed = files::remove_dir(&scratch);
    let resolved = resolved?;
    removed?;
    Ok(resolved)
}
