//! The requirements of all renderings together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::debian::Unsatisfied;
use super::rpm::Rpms;
use super::{Artifact, ArtifactLocation, Inventory, Unmet, Uses, debian};

/// Directories of the bundle whose files are needed for images or packages.
const PARTS: [&str; 4] = ["apt", "base", "images", "rpm"];

pub(super) type Places = BTreeMap<ArtifactLocation, Uses>;

/// Everything that renderings name, with the places that name it.
#[derive(Debug, Clone, Default)]
pub struct Requirements {
    pub(super) artifacts: BTreeMap<Artifact, Places>,
    pub(super) problems: BTreeMap<String, Uses>,
    pub(super) renderings: usize,
}

impl Requirements {
    /// Adds the requirements of other renderings.
    pub fn merge(&mut self, other: Self) {
        self.renderings += other.renderings;
        for (problem, uses) in other.problems {
            self.problems
                .entry(problem)
                .or_default()
                .add(&uses.first, uses.renderings);
        }
        for (artifact, places) in other.artifacts {
            for (place, uses) in places {
                self.need(artifact.clone(), place, &uses.first, uses.renderings);
            }
        }
    }

    /// The number of renderings that were added.
    #[must_use]
    pub fn renderings(&self) -> usize {
        self.renderings
    }

    /// Returns `true` if all renderings compile.
    #[must_use]
    pub fn compiles(&self) -> bool {
        self.problems.is_empty()
    }

    /// The reasons why some renderings do not compile.
    pub fn problems(&self) -> impl Iterator<Item = &str> {
        self.problems.keys().map(String::as_str)
    }

    /// Each artifact that is needed, with the places that need it.
    #[must_use]
    pub fn artifacts(&self) -> &BTreeMap<Artifact, BTreeMap<ArtifactLocation, Uses>> {
        &self.artifacts
    }

    pub(super) fn need(
        &mut self,
        artifact: Artifact,
        place: ArtifactLocation,
        options: &str,
        renderings: usize,
    ) {
        self.artifacts
            .entry(artifact)
            .or_default()
            .entry(place)
            .or_default()
            .add(options, renderings);
    }

    /// All needed artifacts that the inventory lacks.
    #[must_use]
    pub fn missing(&self, stock: &Inventory) -> Vec<Unmet> {
        let everybody = |what: &str| {
            let place = ArtifactLocation {
                file: "the bundle itself".to_owned(),
                line: 0,
                what: what.to_owned(),
            };
            Places::from([(
                place,
                Uses {
                    first: "all options".to_owned(),
                    renderings: self.renderings,
                },
            )])
        };
        let mut found: Vec<Unmet> = Vec::new();
        for (problem, uses) in &self.problems {
            let place = ArtifactLocation {
                file: "the state tree".to_owned(),
                line: 0,
                what: "it does not compile".to_owned(),
            };
            let needed_by = Places::from([(place, uses.clone())]);
            found.push(Unmet {
                artifact: None,
                why: problem.clone(),
                needed_by,
            });
        }
        for (path, what) in super::OWN_FILES {
            let artifact = Artifact::File {
                path: (*path).to_owned(),
            };
            if let Some(why) = stock.lacks(&artifact) {
                let mut needed_by = everybody(what);
                needed_by.extend(self.artifacts.get(&artifact).cloned().unwrap_or_default());
                found.push(Unmet {
                    artifact: Some(artifact),
                    why,
                    needed_by,
                });
            }
        }
        for text in stock.not_images() {
            if !self.artifacts.contains_key(&Artifact::Image {
                reference: text.to_owned(),
            }) {
                let why = format!(
                    "`not-images` has {text}, but nothing names it: remove it from the recipe"
                );
                let needed_by = everybody("an unneeded exception may later hide a needed image");
                found.push(Unmet {
                    artifact: None,
                    why,
                    needed_by,
                });
            }
        }
        for (path, what) in stock.rpms().into_iter().flat_map(Rpms::own_files) {
            let artifact = Artifact::File { path };
            if let Some(why) = stock.lacks(&artifact) {
                found.push(Unmet {
                    artifact: Some(artifact),
                    why,
                    needed_by: everybody(what),
                });
            }
        }
        let mut packages = BTreeSet::new();
        let mut rpms = BTreeMap::new();
        for (artifact, places) in &self.artifacts {
            let own = |path: &str| super::OWN_FILES.iter().any(|(own, _)| *own == path);
            if matches!(artifact, Artifact::File { path } if own(path)) {
                continue;
            }
            if let Some(why) = stock.lacks(artifact) {
                found.push(Unmet {
                    artifact: Some(artifact.clone()),
                    why,
                    needed_by: places.clone(),
                });
            } else if let Artifact::Package { name, .. } = artifact {
                packages.insert(name.as_str());
            } else if let Artifact::Rpm { name, .. } = artifact {
                rpms.insert(
                    name.clone(),
                    places.values().next().cloned().unwrap_or_default(),
                );
            }
        }
        found.extend(self.dependencies(stock, &packages));
        found.extend(
            stock
                .rpms()
                .into_iter()
                .flat_map(|stocked| stocked.dependencies(stock, &rpms)),
        );
        found
    }

    /// Lists each artifact of the inventory with everything else that would be missing without it;
    /// the list is empty for an artifact that nothing needs.
    #[must_use]
    pub fn without_each(&self, stock: &Inventory) -> Vec<(Artifact, Vec<Unmet>)> {
        let before = self.missing(stock);
        let without = |artifact: Artifact| {
            if self.is_unnamed(&artifact) {
                return (artifact, Vec::new());
            }
            let mut missing = self.missing(&stock.without(&artifact));
            missing.retain(|missing| !before.contains(missing));
            (artifact, missing)
        };
        stock.artifacts().into_iter().map(without).collect()
    }

    /// Returns whether an artifact is a file that nothing can miss: neither it nor a directory
    /// above it is needed, and it serves no image or package.
    fn is_unnamed(&self, artifact: &Artifact) -> bool {
        let Artifact::File { path } = artifact else {
            return false;
        };
        let is_needed = |path: &Path| {
            let path = path.to_string_lossy();
            let is_own = super::OWN_FILES.iter().any(|(own, _)| *own == path);
            let path = path.into_owned();
            is_own || self.artifacts.contains_key(&Artifact::File { path })
        };
        let path = Path::new(path);
        let is_part = PARTS.iter().any(|part| path.starts_with(part));
        !is_part && !path.ancestors().any(is_needed)
    }

    /// Computes the unmet dependencies of the needed packages.
    fn dependencies(&self, stock: &Inventory, packages: &BTreeSet<&str>) -> Vec<Unmet> {
        let mut lacks: BTreeMap<(String, String), Places> = BTreeMap::new();
        for root in packages {
            let found = debian::closure(stock.packages(), stock.base(), root);
            let users = self.artifacts.iter().filter(
                |(artifact, _)| matches!(artifact, Artifact::Package { name, .. } if name == root),
            );
            let uses = users
                .flat_map(|(_, places)| places.values())
                .next()
                .cloned()
                .unwrap_or_default();
            let mut add = |name: &str, why: String, user: &str, what: String| {
                let what = if user == *root {
                    what
                } else {
                    format!("{what}, and {root} needs it")
                };
                let place = ArtifactLocation {
                    file: format!("the package {user}"),
                    line: 0,
                    what,
                };
                lacks
                    .entry((name.to_owned(), why))
                    .or_default()
                    .insert(place, uses.clone());
            };
            for Unsatisfied {
                user,
                name,
                relation,
            } in &found.lacks
            {
                let why =
                    format!("neither a bare host nor the repository of the bundle has {relation}");
                add(name, why, user, format!("depends on {relation}"));
            }
            // The root itself was already checked.
            for (name, user) in found.taken.iter().filter(|(name, _)| *name != root) {
                let artifact = Artifact::Package {
                    name: (*name).to_owned(),
                    version: None,
                };
                if let Some(why) = stock.lacks(&artifact) {
                    add(name, why, user, format!("depends on {name}"));
                }
            }
        }
        let missing = |((name, why), needed_by)| Unmet {
            artifact: Some(Artifact::Package {
                name,
                version: None,
            }),
            why,
            needed_by,
        };
        lacks.into_iter().map(missing).collect()
    }
}
