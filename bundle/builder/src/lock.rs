//! The lock beside a recipe: the result of resolving each name the first time, so that a bundle
//! built next year from the same recipe has the same content. Programs from this machine and the
//! state tree are not locked: they come from the source tree to which the recipe belongs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use halite_durable::files;
use halite_fetch::names;
use halite_manifest::{ItemChange, diff};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Everything that a recipe resolved to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// The format of the file: 1.
    pub format: u32,
    /// The time of the first resolution, RFC 3339 in UTC. It is used for every date in a bundle.
    pub resolved: String,
    /// SHA-256 of the request to apt: the package names, the status of the base, and the
    /// repositories.
    pub request: String,
    /// Images by reference.
    pub images: BTreeMap<String, Item>,
    /// Packages from apt by the name of their file in the repository.
    pub packages: BTreeMap<String, Item>,
    /// The packages for further Debian releases, by codename.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub releases: BTreeMap<String, ReleasePackages>,
    /// Files by address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, Item>,
    /// Charts by the name of their release.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub charts: BTreeMap<String, ChartItem>,
    /// The packages for RPM distributions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpms: Option<Rpms>,
}

/// A chart that was resolved and rendered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChartItem {
    /// Its version.
    pub version: String,
    /// SHA-256 of its archive, of its manifest in a registry, or of all files of its folder.
    pub sha256: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its source: an address, `oci://…`, or the path that the recipe gives.
    pub source: String,
    /// SHA-256 of the request: source, version, namespace, values and Kubernetes' version.
    pub request: String,
    /// SHA-256 of the rendered objects.
    pub rendered: String,
    /// Its licence, according to the chart or the recipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// The reason why it is in the bundle.
    pub why: String,
}

/// The resolved packages for RPM distributions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rpms {
    /// SHA-256 of the request: the names, the base, and the repositories with their keys.
    pub request: String,
    /// Packages by the name of their file in the repository.
    pub packages: BTreeMap<String, Item>,
}

/// The resolved packages for a further Debian release.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleasePackages {
    /// SHA-256 of the request: the names, the base, and the repositories with their keys.
    pub request: String,
    /// Packages by the name of their file in the repository.
    pub packages: BTreeMap<String, Item>,
}

/// A resolved item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// Its SHA-256 (for an image: of its manifest), in hexadecimal.
    pub sha256: String,
    /// For an image that its registry has for several platforms: the SHA-256 of the index, by which
    /// charts may name it. Absent in a lock made by an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// Its size in bytes (for an image: of all its blobs).
    pub size: u64,
    /// Its source: an address, `registry` (that of its name), `apt` (this machine's own sources),
    /// or the path that the recipe gives.
    pub source: String,
    /// Its licence, according to the item or the recipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// The reason why it is in the bundle.
    pub why: String,
}

/// The path of a recipe's lock: `recipe.lock.yaml` for `recipe.yaml`.
#[must_use]
pub fn path_of(recipe: &Path) -> PathBuf {
    recipe.with_extension("lock.yaml")
}

impl Lock {
    /// Reads the lock of a recipe; `None` if it does not exist.
    ///
    /// # Errors
    /// It cannot be read or parsed.
    pub fn load(recipe: &Path) -> Result<Option<Self>, Error> {
        let path = path_of(recipe);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file("read", path)(error)),
        };
        let lock: Self = serde_saphyr::from_str(&text)
            .map_err(|error| Error::content(&path, error.to_string()))?;
        if lock.format != 1 {
            return Err(Error::content(
                path,
                format!("format {} is not supported, only 1", lock.format),
            ));
        }
        let packages = lock
            .packages
            .keys()
            .chain(lock.rpms.iter().flat_map(|rpms| rpms.packages.keys()))
            .chain(
                lock.releases
                    .values()
                    .flat_map(|release| release.packages.keys()),
            );
        if let Some(name) = packages
            .into_iter()
            .find(|name| !names::fits(name, names::FILE))
        {
            return Err(Error::content(
                path,
                format!("{name:?} is not the name of a package's file"),
            ));
        }
        Ok(Some(lock))
    }

    /// Writes the lock of a recipe.
    pub(crate) fn save(&self, recipe: &Path) -> Result<(), Error> {
        let path = path_of(recipe);
        let text = serde_saphyr::to_string(self)
            .map_err(|error| Error::content(&path, error.to_string()))?;
        let head = "# Made by `ctl bundle lock`: the resolved items of the recipe beside it. Keep the two together.\n";
        files::replace(&path, 0o644, format!("{head}{text}").as_bytes())?;
        Ok(files::sync_parent(&path)?)
    }

    /// Recorded items that differ in `new`. An item that only one of the two has is not a
    /// difference: the recipe decides the content.
    pub(crate) fn differences(&self, new: &Self) -> Vec<String> {
        let mut found = compare(&self.images, &new.images);
        let charts = self
            .charts
            .iter()
            .filter_map(|(name, chart)| Some((name, chart, new.charts.get(name)?)));
        found.extend(
            charts
                .filter(|(_, chart, now)| {
                    chart.request == now.request && chart.sha256 != now.sha256
                })
                .map(|(name, chart, now)| {
                    format!(
                        "chart {name}: recorded sha256 {}, found {}",
                        chart.sha256, now.sha256
                    )
                }),
        );
        if self.request == new.request {
            found.extend(compare(&self.packages, &new.packages));
            let gone = self
                .packages
                .keys()
                .filter(|name| !new.packages.contains_key(*name));
            found.extend(gone.map(|name| {
                format!("{name}: recorded, but the package sources resolve to something else")
            }));
        }
        found
    }

    /// The changes in a later lock, for display.
    #[must_use]
    pub fn changes(&self, new: &Self) -> Vec<ItemChange> {
        diff::changes(&self.shown(), &new.shown())
    }

    /// Each item with its identity; for a package and a chart this includes the version.
    fn shown(&self) -> BTreeMap<String, String> {
        let items = |list: &BTreeMap<String, Item>| -> Vec<(String, String)> {
            list.iter()
                .map(|(name, item)| (name.clone(), short(&item.sha256)))
                .collect()
        };
        let package = |(name, item): (&String, &Item)| match name
            .trim_end_matches(".deb")
            .split('_')
            .collect::<Vec<_>>()[..]
        {
            [package, version, _] => (
                format!("package {package}"),
                format!("{version} {}", short(&item.sha256)),
            ),
            _ => (name.clone(), short(&item.sha256)),
        };
        let chart = |(name, item): (&String, &ChartItem)| {
            (
                format!("chart {name}"),
                format!("{} {}", item.version, short(&item.rendered)),
            )
        };
        let rest = items(&self.images).into_iter().chain(items(&self.files));
        let rpms = self.rpms.iter().flat_map(|rpms| items(&rpms.packages));
        let releases = self.releases.iter().flat_map(|(codename, release)| {
            let packages = release.packages.iter().map(package);
            packages.map(move |(name, item)| (format!("{name} of {codename}"), item))
        });
        rest.chain(self.packages.iter().map(package))
            .chain(releases)
            .chain(self.charts.iter().map(chart))
            .chain(rpms)
            .collect()
    }

    /// Items whose licence neither they nor the recipe states; packages contain their licence as a
    /// text.
    #[must_use]
    pub fn unlicensed(&self) -> Vec<&str> {
        let items = self.images.iter().chain(&self.files);
        let items = items.map(|(name, item)| (name, &item.licence));
        let charts = self
            .charts
            .iter()
            .map(|(name, chart)| (name, &chart.licence));
        items
            .chain(charts)
            .filter(|(_, licence)| licence.is_none())
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// The size in bytes of everything that it records.
    #[must_use]
    pub fn size(&self) -> u64 {
        let rpms = self.rpms.iter().flat_map(|rpms| rpms.packages.values());
        let items = self
            .images
            .values()
            .chain(self.packages.values())
            .chain(self.files.values())
            .chain(rpms)
            .chain(
                self.releases
                    .values()
                    .flat_map(|release| release.packages.values()),
            );
        items
            .map(|item| item.size)
            .chain(self.charts.values().map(|chart| chart.size))
            .sum()
    }
}

fn short(sha256: &str) -> String {
    format!("sha256:{}", sha256.get(..12).unwrap_or(sha256))
}

fn compare(old: &BTreeMap<String, Item>, new: &BTreeMap<String, Item>) -> Vec<String> {
    let both = old
        .iter()
        .filter_map(|(name, item)| new.get(name).map(|now| (name, item, now)));
    both.filter(|(_, item, now)| item.sha256 != now.sha256)
        .map(|(name, item, now)| {
            format!(
                "{name}: recorded sha256 {}, found {}",
                item.sha256, now.sha256
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let recipe = dir.path().join("recipe.yaml");
        let item = Item {
            sha256: halite_durable::digest::sha256(b""),
            index: None,
            size: 0,
            source: "https://a.example/x".into(),
            licence: None,
            why: "asked for".into(),
        };
        for (name, right) in [
            ("libstdc++6_14.2.0-19+b1~x_amd64.deb", true),
            ("nginx-1.20^git1-1.el9_4.x86_64.rpm", true),
            ("a/../../b.rpm", false),
            ("/b.rpm", false),
            (".b.rpm", false),
            ("", false),
            ("a b.rpm", false),
            ("a\0b.rpm", false),
        ] {
            let packages = BTreeMap::from([(name.to_owned(), item.clone())]);
            let rpms = Rpms {
                request: String::new(),
                packages: packages.clone(),
            };
            for lock in [
                Lock {
                    format: 1,
                    packages,
                    ..Lock::default()
                },
                Lock {
                    format: 1,
                    rpms: Some(rpms),
                    ..Lock::default()
                },
            ] {
                lock.save(&recipe).unwrap();
                let loaded = Lock::load(&recipe).map_err(|error| error.to_string());
                match right {
                    true => assert_eq!(loaded, Ok(Some(lock))),
                    false => {
                        assert!(
                            loaded
                                .unwrap_err()
                                .ends_with("is not the name of a package's file"),
                            "{name:?}"
                        )
                    }
                }
            }
        }
    }
}
