//! Dependencies between Debian packages (Debian Policy, sections 5.6.12 and 7): enough to name a
//! missing one. apt itself proves that everything can be installed when the repository is made.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use halite_fetch::apt::compare;
use halite_fetch::apt_index::Control;

/// The packages that a dpkg status file lists as installed.
pub fn installed(status: &str) -> Vec<Control> {
    let stanzas = status
        .split("\n\n")
        .filter(|stanza| !stanza.trim().is_empty())
        .map(Control::parse);
    stanzas
        .filter(|control| control.field("Status").ends_with(" installed"))
        .collect()
}

/// The part of a dpkg status file that dependencies depend on.
pub fn essence(status: &str) -> String {
    let mut stanzas = BTreeMap::new();
    for control in installed(status) {
        let mut text = String::new();
        for name in ["Package", "Status", "Version", "Architecture", "Provides"] {
            let value = control.field(name);
            if !value.is_empty() {
                text.push_str(&format!("{name}: {value}\n"));
            }
        }
        stanzas.insert(
            (
                control.field("Package").to_owned(),
                control.field("Architecture").to_owned(),
            ),
            text,
        );
    }
    stanzas.into_values().collect::<Vec<_>>().join("\n")
}

/// Packages by name, and the names that they provide.
#[derive(Debug, Clone, Default)]
pub struct Packages {
    by_name: BTreeMap<String, Control>,
    /// Virtual name to its providers, each with the version that it provides.
    provided: BTreeMap<String, Vec<(String, Option<String>)>>,
}

impl Packages {
    /// Indexes stanzas by the names of the packages and by the names that they provide.
    pub fn new(stanzas: Vec<Control>) -> Self {
        let mut packages = Self::default();
        for control in stanzas {
            let name = control.field("Package").to_owned();
            for relation in control
                .field("Provides")
                .split(',')
                .filter_map(Relation::parse)
            {
                let version = relation.version.map(|(_, version)| version.to_owned());
                let providers = packages
                    .provided
                    .entry(relation.name.to_owned())
                    .or_default();
                providers.push((name.clone(), version));
            }
            packages.by_name.insert(name, control);
        }
        packages
    }

    /// The package with this name.
    pub fn get(&self, name: &str) -> Option<&Control> {
        self.by_name.get(name)
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Removes a package.
    pub fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
        self.provided
            .values_mut()
            .for_each(|providers| providers.retain(|(provider, _)| provider != name));
    }

    /// The packages that satisfy a relation.
    pub(super) fn satisfying(&self, relation: &Relation) -> Vec<&str> {
        let real = self.by_name.get_key_value(relation.name);
        let real = real.filter(|(_, control)| relation.accepts(Some(control.field("Version"))));
        let providers = self.provided.get(relation.name).into_iter().flatten();
        let virtually = providers.filter(|(_, version)| relation.accepts(version.as_deref()));
        real.map(|(name, _)| name.as_str())
            .into_iter()
            .chain(virtually.map(|(name, _)| name.as_str()))
            .collect()
    }
}

/// A dependency that nothing satisfies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unsatisfied {
    /// The package that depends.
    pub user: String,
    /// The name in its first alternative.
    pub name: String,
    /// The dependency as the package states it.
    pub relation: String,
}

/// A package of the repository with its dependencies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Closure<'a> {
    /// The packages from the repository, including the root, each with the package that depends on
    /// it.
    pub taken: BTreeMap<&'a str, &'a str>,
    /// Dependencies that nothing satisfies.
    pub lacks: BTreeSet<Unsatisfied>,
}

/// Computes the packages that are installed together with a package of the repository on a host
/// with the base.
pub fn closure<'a>(repository: &'a Packages, base: &Packages, root: &'a str) -> Closure<'a> {
    let mut closure = Closure::default();
    visit(repository, base, root, root, &mut closure);
    closure
}

fn visit<'a>(
    repository: &'a Packages,
    base: &Packages,
    name: &'a str,
    user: &'a str,
    closure: &mut Closure<'a>,
) {
    // A package that only the base has is already installed, with all of its dependencies.
    let Some(control) = repository
        .get(name)
        .filter(|_| !closure.taken.contains_key(name))
    else {
        return;
    };
    closure.taken.insert(name, user);
    let fields = [control.field("Pre-Depends"), control.field("Depends")];
    for text in fields
        .into_iter()
        .flat_map(|field| field.split(','))
        .map(str::trim)
    {
        let alternatives: Vec<Relation> = text.split('|').filter_map(Relation::parse).collect();
        let Some(first) = alternatives.first() else {
            continue;
        };
        if alternatives
            .iter()
            .any(|relation| !base.satisfying(relation).is_empty())
        {
            continue;
        }
        let mut best: Option<Closure<'a>> = None;
        for choice in alternatives
            .iter()
            .flat_map(|relation| repository.satisfying(relation))
        {
            let mut with = closure.clone();
            visit(repository, base, choice, name, &mut with);
            if best
                .as_ref()
                .is_none_or(|best| with.lacks.len() < best.lacks.len())
            {
                best = Some(with);
            }
            if best
                .as_ref()
                .is_some_and(|best| best.lacks.len() == closure.lacks.len())
            {
                break;
            }
        }
        match best {
            Some(best) => *closure = best,
            None => {
                closure.lacks.insert(Unsatisfied {
                    user: name.to_owned(),
                    name: first.name.to_owned(),
                    relation: text.to_owned(),
                });
            }
        }
    }
}

/// One alternative of a dependency: `name:any (>= 1.2) [amd64] <!nocheck>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Relation<'a> {
    pub(super) name: &'a str,
    version: Option<(&'a str, &'a str)>,
}

impl<'a> Relation<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim();
        let end = text.find([' ', '(', '[', '<', ':']).unwrap_or(text.len());
        let name = text.get(..end).filter(|name| !name.is_empty())?;
        let inside = text
            .split_once('(')
            .and_then(|(_, rest)| rest.split_once(')'));
        let version = inside.map(|(inside, _)| {
            let inside = inside.trim();
            let operator = inside.find(|c| !"<>=".contains(c)).unwrap_or(inside.len());
            (&inside[..operator], inside[operator..].trim())
        });
        Some(Self { name, version })
    }

    /// Returns `true` if a version satisfies the relation; a virtual package without a version
    /// satisfies only a relation without one.
    pub(super) fn accepts(&self, have: Option<&str>) -> bool {
        let (Some((operator, wanted)), Some(have)) = (self.version, have) else {
            return self.version.is_none();
        };
        let order = compare(have, wanted);
        match operator {
            "<<" => order == Ordering::Less,
            "<=" | "<" => order != Ordering::Greater,
            "=" => order == Ordering::Equal,
            ">>" => order == Ordering::Greater,
            _ => order != Ordering::Less,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(text: &str) -> Packages {
        Packages::new(text.split("\n\n").map(Control::parse).collect())
    }

    #[test]
    fn relations_are_taken_apart() {
        let all = |text| Relation::parse(text).unwrap();
        assert_eq!(
            all(" libc6:any (>= 2.3) [amd64] "),
            Relation {
                name: "libc6",
                version: Some((">=", "2.3"))
            }
        );
        assert_eq!(
            all("a(=1)"),
            Relation {
                name: "a",
                version: Some(("=", "1"))
            }
        );
        assert_eq!(
            all("a <!nocheck>"),
            Relation {
                name: "a",
                version: None
            }
        );
        assert_eq!(Relation::parse(" "), None);
    }

    #[test]
    fn what_is_missing_at_the_end_of_a_chain_is_named() {
        let base = packages("Package: libc6\nVersion: 2.36");
        let repository = packages(
            "Package: nft\nVersion: 1\nDepends: libnft (>= 1), libc6 (>= 2)\n\n\
             Package: libnft\nVersion: 1\nPre-Depends: libmnl\nDepends: nft",
        );
        let lack = Unsatisfied {
            user: "libnft".into(),
            name: "libmnl".into(),
            relation: "libmnl".into(),
        };
        assert_eq!(
            closure(&repository, &base, "nft").lacks,
            BTreeSet::from([lack])
        );
        let mut without = repository.clone();
        without.remove("libnft");
        let lack = Unsatisfied {
            user: "nft".into(),
            name: "libnft".into(),
            relation: "libnft (>= 1)".into(),
        };
        assert_eq!(
            closure(&without, &base, "nft").lacks,
            BTreeSet::from([lack])
        );
        let older = packages("Package: libc6\nVersion: 1.9");
        assert_eq!(closure(&repository, &older, "nft").lacks.len(), 2);
        let taken = closure(&repository, &base, "nft").taken;
        assert_eq!(taken, BTreeMap::from([("nft", "nft"), ("libnft", "nft")]));
    }

    #[test]
    fn alternatives_and_virtual_packages_satisfy() {
        let base = packages("Package: exim\nVersion: 1\nProvides: mta, smtp (= 2)");
        let repository = packages(
            "Package: a\nVersion: 1\nDepends: gone | b, mta, smtp (>= 2)\n\n\
             Package: b\nVersion: 1\n\nPackage: c\nVersion: 1\nDepends: mta (>= 1), broken | b\n\n\
             Package: broken\nVersion: 1\nDepends: gone",
        );
        let whole = closure(&repository, &base, "a");
        assert_eq!((whole.lacks.len(), whole.taken.len()), (0, 2));
        let lack = Unsatisfied {
            user: "c".into(),
            name: "mta".into(),
            relation: "mta (>= 1)".into(),
        };
        assert_eq!(
            closure(&repository, &base, "c").lacks,
            BTreeSet::from([lack])
        );
    }
}
