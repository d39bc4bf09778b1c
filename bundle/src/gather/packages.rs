//! Packages of the operating system.

use std::{collections::BTreeMap, path::PathBuf};

use super::Gather;
use crate::{
    apt,
    error::Error,
    fetch, files,
    lock::{Item, Lock},
};

/// What was asked, what it came to, and the archives where they are at hand.
pub(super) type Packages = (String, BTreeMap<String, Item>, Option<Vec<PathBuf>>);

impl Gather<'_> {
    pub(super) fn settle_packages(&self, recorded: Option<&Lock>) -> Result<Packages, Error> {
        let request = apt::request(&self.recipe.apt, &self.recipe.base)?;
        if self.offline
            && let Some(lock) = recorded.filter(|lock| lock.request == request)
        {
            let missing = apt::unkept(lock, &self.archives)?;
            if !missing.is_empty() {
                let named = |name: &String| format!("package {name} (from this machine's apt)");
                return Err(fetch::Error::Missing(missing.iter().map(named).collect()).into());
            }
        }
        let archives = apt::fetch(&self.recipe.apt, &self.recipe.base, &self.archives, recorded)?;
        let items = self.archived(&archives)?;
        Ok((request, items, Some(archives)))
    }

    /// The archives as the lock records them, each with the packages that need it.
    fn archived(&self, archives: &[PathBuf]) -> Result<BTreeMap<String, Item>, Error> {
        let controls = archives.iter().map(|archive| apt::Control::read(archive));
        let controls = controls.collect::<Result<Vec<_>, _>>()?;
        let mut found = BTreeMap::new();
        for (archive, control) in archives.iter().zip(&controls) {
            let (sha256, size) = files::digest(archive)?;
            let why = self.why_package(control, &controls);
            let item = Item { sha256, size, source: "apt".to_owned(), licence: None, why };
            found.insert(control.file_name(), item);
        }
        Ok(found)
    }

    fn why_package(&self, control: &apt::Control, all: &[apt::Control]) -> String {
        let name = control.field("Package");
        if self.recipe.apt.iter().any(|wanted| wanted == name) {
            return "asked for".to_owned();
        }
        let users = all.iter().filter(|user| user.needs().contains(&name));
        let users: Vec<_> = users.map(|user| user.field("Package")).collect();
        match users[..] {
            [] => "a newer one than the base has is needed".to_owned(),
            _ => format!("needed by {}", users.join(", ")),
        }
    }
}
