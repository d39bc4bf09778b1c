//! The packages from which a plan can choose: candidates, their order of preference, and conflicts.

use std::cmp::Reverse;

use halite_fetch::yum::Need;

use super::{Plan, Solver, Unsatisfied};
use crate::rpm::dependency::{Dependency, matches};
use crate::rpm::package_set::Id;

impl Solver<'_, '_> {
    /// Finds the package that a name means: the newest, or the one that obsoletes it.
    pub(super) fn root(&self, asked: &str) -> Option<Id> {
        let (name, version) = match asked.split_once('=') {
            Some((name, version)) => (name, Some(version)),
            None => (asked, None),
        };
        let mut named = self.universe.named(name);
        if named.is_empty() {
            // dnf also accepts a package that only provides the name.
            named = self.universe.providers(&Need {
                name: name.to_owned(),
                version: None,
            });
        }
        named
            .retain(|id| version.is_none_or(|version| self.universe.node(*id).version.is(version)));
        // An installed package is enough, unless a package of a repository obsoletes it.
        if let Some(id) = named.iter().find(|id| self.universe.is_installed(**id)) {
            return Some(*id);
        }
        let obsoleters: Vec<Id> = match version {
            Some(_) => Vec::new(),
            None => named
                .iter()
                .flat_map(|id| self.universe.obsoleters(*id))
                .collect(),
        };
        if let Some(id) = obsoleters
            .iter()
            .find(|id| self.universe.is_installed(**id))
        {
            return Some(*id);
        }
        named.extend(obsoleters);
        self.preferred(named).into_iter().next()
    }

    pub(super) fn present(&self, plan: &Plan, id: Id) -> bool {
        plan.chosen.contains_key(&id) || self.universe.is_installed(id) && !plan.gone.contains(&id)
    }

    /// All packages that are present.
    pub(super) fn all_present<'p>(&'p self, plan: &'p Plan) -> impl Iterator<Item = Id> + 'p {
        self.universe
            .installed()
            .filter(|id| !plan.gone.contains(id))
            .chain(plan.chosen.keys().copied())
    }

    /// Packages that alone satisfy a dependency.
    pub(super) fn candidates(&self, dependency: &Dependency) -> Vec<Id> {
        match dependency {
            Dependency::One(need) => self.universe.providers(need),
            Dependency::Or(parts) => {
                let mut found: Vec<_> = parts
                    .iter()
                    .flat_map(|part| self.candidates(part))
                    .collect();
                found.sort_unstable();
                found.dedup();
                found
            }
            Dependency::With(parts) | Dependency::And(parts) => {
                let mut lists = parts.iter().map(|part| self.candidates(part));
                let first = lists.next().unwrap_or_default();
                lists.fold(first, |found, list| {
                    found.into_iter().filter(|id| list.contains(id)).collect()
                })
            }
            Dependency::Without(wanted, unwanted) => {
                let not = self.candidates(unwanted);
                self.candidates(wanted)
                    .into_iter()
                    .filter(|id| !not.contains(id))
                    .collect()
            }
            Dependency::If(..) => Vec::new(),
        }
    }

    pub(super) fn satisfied(&self, plan: &Plan, dependency: &Dependency) -> bool {
        let holds = |part: &Dependency| self.satisfied(plan, part);
        match dependency {
            Dependency::And(parts) => parts.iter().all(holds),
            Dependency::Or(parts) => parts.iter().any(holds),
            Dependency::If(then, condition, otherwise) => match holds(condition) {
                true => holds(then),
                false => otherwise.as_deref().is_none_or(holds),
            },
            _ => self
                .candidates(dependency)
                .into_iter()
                .any(|id| self.present(plan, id)),
        }
    }

    /// A chosen package of the same name in another version.
    pub(super) fn other_version(&self, plan: &Plan, id: Id) -> Option<Id> {
        let replaced =
            |chosen: &Id| self.universe.node(*chosen).name == self.universe.node(id).name;
        plan.chosen
            .keys()
            .copied()
            .find(|chosen| *chosen != id && replaced(chosen))
    }

    /// Filters and sorts candidates by preference: of each name the newest first.
    pub(super) fn preferred(&self, mut ids: Vec<Id>) -> Vec<Id> {
        ids.retain(|id| !self.universe.is_installed(*id) && !self.banned.contains_key(id));
        let all = ids.clone();
        ids.retain(|id| !all.iter().any(|by| self.universe.obsoletes(*by, *id)));
        let updates = |name: &str| {
            let mut installed = self.universe.named(name).into_iter();
            installed.any(|id| self.universe.is_installed(id))
        };
        ids.sort_by(|a, b| {
            let (x, y) = (self.universe.node(*a), self.universe.node(*b));
            let by_name = || (Reverse(updates(x.name)), x.name.len(), x.name);
            let other = || (Reverse(updates(y.name)), y.name.len(), y.name);
            by_name()
                .cmp(&other())
                .then_with(|| y.version.order(x.version))
                .then(a.cmp(b))
        });
        ids
    }

    /// A present package that conflicts with a package.
    pub(super) fn rival(&self, plan: &Plan, id: Id) -> Option<Id> {
        let stays = |other: &Id| *other != id && !self.universe.replaces(id, *other);
        self.all_present(plan)
            .filter(stays)
            .find(|other| self.conflict(*other, id).is_some())
    }

    /// The conflict between two packages, whichever of the two declares it.
    pub(super) fn conflict(&self, a: Id, b: Id) -> Option<Unsatisfied> {
        let against = |by: Id, other: Id| {
            let need = self
                .universe
                .node(by)
                .conflicts
                .iter()
                .find(|need| self.is(other, need))?;
            Some(Unsatisfied {
                user: self.universe.node(by).label(),
                need: format!("the absence of {need}"),
                why: format!("{} is present", self.universe.node(other).label()),
            })
        };
        against(a, b).or_else(|| against(b, a))
    }

    /// Returns `true` if a package matches the name and bound of a conflict.
    pub(super) fn is(&self, id: Id, need: &Need) -> bool {
        self.universe
            .node(id)
            .provides
            .iter()
            .any(|provided| matches(provided, need))
            || need.name.starts_with('/') && self.universe.providers(need).contains(&id)
    }

    /// The newest version of an installed package, if there is a newer one, or the package that
    /// obsoletes it.
    pub(super) fn newer(&self, id: Id) -> Option<Id> {
        let old = self.universe.node(id);
        let mut found = self.universe.named(old.name);
        found.retain(|id| self.universe.node(*id).version.order(old.version).is_gt());
        found.extend(self.universe.obsoleters(id));
        self.preferred(found).into_iter().next()
    }
}
