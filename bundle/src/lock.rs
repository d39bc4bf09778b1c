//! The lock beside a recipe: what each name came to when it was first resolved, so that a bundle built next year from
//! the same recipe holds the same. Halite's own programs and its state tree are not locked: they come from the tree
//! that the recipe belongs to.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{error::Error, files};

/// Everything that a recipe came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// 1.
    pub format: u32,
    /// When it was first resolved, RFC 3339 in UTC. The date of whatever a bundle made from it dates.
    pub resolved: String,
    /// SHA-256 of what was asked of apt: the package names and the status of the base.
    pub request: String,
    /// Images by reference.
    pub images: BTreeMap<String, Item>,
    /// Packages from apt by the name of their file in the repository.
    pub packages: BTreeMap<String, Item>,
}

/// One thing that was resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// Its SHA-256 (for an image: of its manifest), in hexadecimal.
    pub sha256: String,
    /// Its size in bytes (for an image: of all its blobs).
    pub size: u64,
    /// Where it came from: `apt`, or the path that the recipe gives.
    pub source: String,
    /// Who needs it.
    pub why: String,
}

/// Where the lock of a recipe is: `recipe.yaml` has `recipe.lock.yaml`.
#[must_use]
pub fn path_of(recipe: &Path) -> PathBuf {
    recipe.with_extension("lock.yaml")
}

impl Lock {
    /// The lock of a recipe, if there is one yet.
    ///
    /// # Errors
    /// When it cannot be read or understood.
    pub fn load(recipe: &Path) -> Result<Option<Self>, Error> {
        let path = path_of(recipe);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file("read", path)(error)),
        };
        let lock: Self =
            serde_saphyr::from_str(&text).map_err(|error| Error::content(&path, error.to_string()))?;
        if lock.format != 1 {
            return Err(Error::content(path, format!("format {} is not known here, only 1", lock.format)));
        }
        Ok(Some(lock))
    }

    /// Writes the lock of a recipe.
    pub(crate) fn save(&self, recipe: &Path) -> Result<(), Error> {
        let path = path_of(recipe);
        let text = serde_saphyr::to_string(self).map_err(|error| Error::content(&path, error.to_string()))?;
        let head =
            "# Made by `ctl bundle build`: what the recipe beside it came to. Keep the two together.\n";
        files::replace(&path, 0o644, format!("{head}{text}").as_bytes())
    }

    /// What is recorded here and is something else in `new`. What only one of the two has is no difference: the recipe
    /// says what belongs in.
    pub(crate) fn differences(&self, new: &Self) -> Vec<String> {
        let mut found = compare(&self.images, &new.images);
        if self.request == new.request {
            found.extend(compare(&self.packages, &new.packages));
            let gone = self.packages.keys().filter(|name| !new.packages.contains_key(*name));
            found.extend(
                gone.map(|name| {
                    format!("{name}: recorded, but the package sources resolve to something else")
                }),
            );
        }
        found
    }
}

fn compare(old: &BTreeMap<String, Item>, new: &BTreeMap<String, Item>) -> Vec<String> {
    let both = old.iter().filter_map(|(name, item)| new.get(name).map(|now| (name, item, now)));
    both.filter(|(_, item, now)| item.sha256 != now.sha256)
        .map(|(name, item, now)| format!("{name}: recorded sha256 {}, found {}", item.sha256, now.sha256))
        .collect()
}
