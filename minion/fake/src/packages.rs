//! The packages of the fake host, and those that its repositories offer.

use std::collections::{BTreeMap, BTreeSet};

use halite_minion::host::{HostError, HostResult};

use crate::disk::Node;
use crate::host::{FakeState, Offer};

fn refuse<T>(reason: String) -> HostResult<T> {
    Err(HostError::refused(reason))
}

impl FakeState {
    /// A package on offer, with its files and units.
    pub fn offer(&mut self, name: &str, version: &str, files: &[(&str, &str)], units: &[&str]) {
        let offer = Offer {
            version: version.to_owned(),
            files: files
                .iter()
                .map(|(p, c)| ((*p).to_owned(), c.as_bytes().to_vec()))
                .collect(),
            units: units.iter().map(|u| (*u).to_owned()).collect(),
            provides: Vec::new(),
        };
        self.offered.insert(name.to_owned(), offer);
    }

    /// The offered package with this name, or one that provides it.
    pub(crate) fn offer_for(&self, name: &str) -> Option<(&String, &Offer)> {
        let provides = |offer: &Offer| offer.provides.iter().any(|virtual_| virtual_ == name);
        self.offered
            .get_key_value(name)
            .or_else(|| self.offered.iter().find(|(_, offer)| provides(offer)))
    }

    /// Installed packages that conflict with ones to be installed.
    pub(crate) fn in_the_way(
        &self,
        install: &BTreeMap<String, Option<String>>,
    ) -> BTreeSet<String> {
        let conflicts = install.keys().filter_map(|name| self.conflicts.get(name));
        let installed = |name: &&String| self.packages.contains_key(*name);
        conflicts.flatten().filter(installed).cloned().collect()
    }

    pub(crate) fn change_packages(
        &mut self,
        install: &BTreeMap<String, Option<String>>,
        remove: &[String],
    ) -> HostResult<()> {
        for (name, version) in install {
            match (self.offer_for(name), version) {
                (None, _) => return refuse(format!("E: Unable to locate package {name}")),
                (Some((_, offer)), Some(version)) if offer.version != *version => {
                    return refuse(format!("E: Version '{version}' for '{name}' was not found"));
                }
                _ => {}
            }
        }
        for name in remove {
            self.disk.tick()?;
            self.packages.remove(name);
            self.cut_off.remove(name);
            let offer = self.offered.get(name).cloned().unwrap_or_default();
            for (path, _) in &offer.files {
                self.disk.take(path);
            }
            for unit in &offer.units {
                self.units.remove(unit);
            }
        }
        for name in self.in_the_way(install) {
            self.disk.tick()?;
            self.packages.remove(&name);
        }
        for name in install.keys() {
            let Some((name, offer)) = self.offer_for(name) else {
                continue;
            };
            let (name, offer) = (name.clone(), offer.clone());
            for (path, content) in &offer.files {
                self.disk.tick()?;
                self.disk.put(path, Node::file(content));
            }
            self.disk.tick()?;
            self.cut_off.remove(&name);
            self.packages.insert(name, offer.version);
            for unit in offer.units {
                if !self.units.contains_key(&unit) {
                    self.put_unit(&unit, false, false);
                }
            }
        }
        Ok(())
    }
}
