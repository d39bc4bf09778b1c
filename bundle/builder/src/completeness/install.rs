//! The plan of an installation: packages from repositories that make the requested packages
//! installable on a bare host.

use std::collections::{BTreeMap, BTreeSet};

use halite_fetch::apt::compare;
use halite_fetch::apt_index::Control;

use super::debian;
use super::debian::{Packages, Relation};

/// Finds the packages that `wanted` requires from the repository, each with the package that needs
/// it: packages that the base lacks, and newer versions of packages of the base that would no
/// longer fit.
///
/// # Errors
/// Everything that cannot be provided.
pub fn plan(
    repository: &Packages,
    base: &Packages,
    wanted: &[String],
) -> Result<BTreeMap<String, String>, Vec<String>> {
    let (mut taken, mut problems) = (BTreeMap::new(), BTreeSet::new());
    for root in wanted {
        match (repository.get(root), base.get(root)) {
            (None, None) => drop(problems.insert(format!("no repository has the package {root}"))),
            (None, Some(_)) => {}
            (Some(new), Some(old)) if !newer(new, old) => {}
            (Some(_), _) => take(repository, base, root, &mut taken, &mut problems),
        }
    }
    // A selected package may replace a package of the base on which another package of the base
    // depends.
    loop {
        let misfits = misfits(repository, base, &taken);
        if misfits.is_empty() {
            break;
        }
        let before = taken.len();
        for (name, why) in misfits {
            match (repository.get(&name), base.get(&name)) {
                (Some(new), Some(old)) if newer(new, old) => {
                    take(repository, base, &name, &mut taken, &mut problems);
                }
                _ => drop(problems.insert(format!("{why}, and no repository has a newer one"))),
            }
        }
        if taken.len() == before {
            break;
        }
    }
    if problems.is_empty() {
        Ok(taken)
    } else {
        Err(problems.into_iter().collect())
    }
}

fn newer(new: &Control, old: &Control) -> bool {
    compare(new.field("Version"), old.field("Version")).is_gt()
}

fn take(
    repository: &Packages,
    base: &Packages,
    root: &str,
    taken: &mut BTreeMap<String, String>,
    problems: &mut BTreeSet<String>,
) {
    let closure = debian::closure(repository, base, root);
    for (name, user) in closure.taken {
        taken
            .entry(name.to_owned())
            .or_insert_with(|| user.to_owned());
    }
    problems.extend(closure.lacks.into_iter().map(|lack| {
        let (user, relation) = (lack.user, lack.relation);
        format!("{user} depends on {relation}, which neither a bare host nor a repository has")
    }));
}

/// Packages of the base that do not fit the selected packages: one of their dependencies no longer
/// holds, or a selected package breaks them. Each has its reason.
fn misfits(
    repository: &Packages,
    base: &Packages,
    taken: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let stays = base
        .names()
        .filter(|name| !taken.contains_key(*name))
        .filter_map(|name| base.get(name));
    let stays: Vec<&Control> = stays.collect();
    let new: Vec<&Control> = taken
        .keys()
        .filter_map(|name| repository.get(name))
        .collect();
    let after = Packages::new(
        stays
            .iter()
            .chain(&new)
            .map(|control| (*control).clone())
            .collect(),
    );
    let mut found = BTreeMap::new();
    for control in stays {
        let name = control.field("Package");
        for field in ["Pre-Depends", "Depends"] {
            for text in control.field(field).split(',').map(str::trim) {
                let relations: Vec<Relation> =
                    text.split('|').filter_map(Relation::parse).collect();
                let held = |packages: &Packages| {
                    relations.iter().any(|r| !packages.satisfying(r).is_empty())
                };
                if !relations.is_empty() && held(base) && !held(&after) {
                    let why =
                        format!("{name} of a bare host depends on {text}, which would be replaced");
                    found.insert(name.to_owned(), why);
                }
            }
        }
        for other in &new {
            let broken = ["Breaks", "Conflicts"]
                .iter()
                .flat_map(|field| other.field(field).split(','));
            let broken = broken.filter_map(Relation::parse);
            if broken
                .into_iter()
                .any(|r| r.name == name && r.accepts(Some(control.field("Version"))))
            {
                let why = format!(
                    "{} is incompatible with {name} of a bare host",
                    other.field("Package")
                );
                found.insert(name.to_owned(), why);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(text: &str) -> Packages {
        Packages::new(text.split("\n\n").map(Control::parse).collect())
    }

    fn planned(repository: &str, base: &str, wanted: &[&str]) -> Result<Vec<String>, Vec<String>> {
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let plan = plan(&packages(repository), &packages(base), &wanted)?;
        Ok(plan
            .into_iter()
            .map(|(name, user)| format!("{name} for {user}"))
            .collect())
    }

    const BASE: &str = "Package: libc6\nVersion: 2.36\n\n\
                        Package: tool\nVersion: 1\nDepends: libtool (= 1), libc6\n\nPackage: libtool\nVersion: 1";

    #[test]
    fn what_the_base_has_is_not_taken() {
        let repository = "Package: a\nVersion: 1\nDepends: b, libc6 (>= 2)\n\nPackage: b\nVersion: 1\n\n\
                          Package: libc6\nVersion: 2.36\n\nPackage: libtool\nVersion: 1";
        assert_eq!(
            planned(repository, BASE, &["a", "libc6"]).unwrap(),
            ["a for a", "b for a"]
        );
    }

    #[test]
    fn what_does_not_bear_a_newer_part_comes_along() {
        let repository = "Package: a\nVersion: 1\nDepends: libtool (>= 2)\n\n\
                          Package: libtool\nVersion: 2\nBreaks: libc6 (<< 2.37)\n\n\
                          Package: tool\nVersion: 2\nDepends: libtool (= 2)\n\nPackage: libc6\nVersion: 2.37";
        let all = [
            "a for a",
            "libc6 for libc6",
            "libtool for a",
            "tool for tool",
        ];
        assert_eq!(planned(repository, BASE, &["a"]).unwrap(), all);
        let without = repository.replace("Package: tool", "Package: other");
        let problem = "tool of a bare host depends on libtool (= 1), which would be replaced, and no repository \
                       has a newer one";
        assert_eq!(planned(&without, BASE, &["a"]).unwrap_err(), [problem]);
    }

    #[test]
    fn everything_that_cannot_be_had_is_told() {
        let problems = planned(
            "Package: a\nVersion: 1\nDepends: gone (>= 1), lost",
            BASE,
            &["a", "z"],
        );
        assert_eq!(
            problems.unwrap_err(),
            [
                "a depends on gone (>= 1), which neither a bare host nor a repository has",
                "a depends on lost, which neither a bare host nor a repository has",
                "no repository has the package z",
            ]
        );
    }
}
