//! The packages to install on a host with the base so that some packages work: the resolution of
//! rpm's dependencies with the packages of the repositories.
//!
//! The rules are dnf's without weak dependencies: an installed package is retained unless a package
//! needs a newer version; of several versions the newest suitable one is selected; a package that
//! another candidate obsoletes is not a candidate. If several packages provide a need, dnf's choice
//! follows the internal numbers of its solver. Here the order is: an already chosen package, one
//! installed in another version, the shortest name, alphabetical order. If a choice leads to a
//! missing dependency or to a conflict, the next one is tried. Tests compare the results with
//! dnf's.

mod choices;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use halite_fetch::yum::{Need, Package};

use super::Base;
use super::dependency::Dependency;
use super::package_set::{Id, PackageSet};

/// The maximum number of packages that are tried; only contradictory dependencies come near it.
const TRIES: usize = 200_000;

/// The resolution of some packages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Closure<'a> {
    /// The packages to install, in the order of their names, each with its reason.
    pub packages: Vec<(&'a Package, String)>,
    /// Packages that only hosts with more than the base would request: `a` in `(a if b)` if the
    /// base has no `b`.
    pub incidental: Vec<(&'a Package, String)>,
    /// Packages of the base that are updated or replaced.
    pub replaced: Vec<String>,
    /// Everything that prevents the installation.
    pub lacks: BTreeSet<Unsatisfied>,
}

/// A reason why packages cannot be installed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unsatisfied {
    /// The package with the need.
    pub user: String,
    /// The need, as the package states it.
    pub need: String,
    /// The reason why it is not satisfied.
    pub why: String,
}

impl fmt::Display for Unsatisfied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} needs {}: {}", self.user, self.need, self.why)
    }
}

impl Closure<'_> {
    /// The missing files. The index of packages does not list the owners of most files.
    #[must_use]
    pub fn files(&self) -> BTreeSet<String> {
        let words = self
            .lacks
            .iter()
            .flat_map(|lack| lack.need.split([' ', '(', ')']));
        words
            .filter(|word| word.starts_with('/'))
            .map(str::to_owned)
            .collect()
    }
}

/// The packages of a host after an installation.
#[derive(Clone, Default)]
struct Plan {
    /// The packages to install, each with its reason.
    chosen: BTreeMap<Id, String>,
    /// The packages of the base that are removed.
    gone: BTreeSet<Id>,
    lacks: BTreeSet<Unsatisfied>,
    /// Conditional dependencies, whose condition may become true later.
    deferred: Vec<(Id, Need, Dependency)>,
    /// Packages that were chosen but must not be, because another package needs an older version;
    /// each with its reason.
    regretted: BTreeMap<Id, String>,
}

/// The handled needs, by package, and `true` if their condition held.
type Seen = BTreeSet<(Id, String, bool)>;

struct Solver<'a, 'u> {
    universe: &'u PackageSet<'a>,
    tries: usize,
    banned: BTreeMap<Id, String>,
}

/// Resolves some names on a host with the base, each `NAME` or `NAME=[EPOCH:]VERSION[-RELEASE]`,
/// with the packages of some repositories; a package that several repositories have is taken from
/// the first one.
pub fn closure<'a>(
    base: &'a Base,
    packages: impl IntoIterator<Item = &'a Package>,
    names: &[String],
) -> Closure<'a> {
    let universe = &PackageSet::new(base, packages);
    let mut solver = Solver {
        universe,
        tries: 0,
        banned: BTreeMap::new(),
    };
    let plan = loop {
        let plan = solver.plan(names);
        let before = solver.banned.len();
        solver.banned.extend(plan.regretted.clone());
        if solver.banned.len() == before {
            break plan;
        }
    };
    let incidental = solver.incidental(&plan);
    let listed = |chosen: BTreeMap<Id, String>| {
        let mut found: Vec<_> = chosen
            .into_iter()
            .filter_map(|(id, why)| universe.node(id).package.map(|package| (package, why)))
            .collect();
        found.sort_by(|(a, _), (b, _)| {
            a.name
                .cmp(&b.name)
                .then_with(|| a.architecture.cmp(&b.architecture))
        });
        found
    };
    Closure {
        packages: listed(plan.chosen),
        incidental: listed(incidental),
        replaced: plan
            .gone
            .iter()
            .map(|id| universe.node(*id).label())
            .collect(),
        lacks: plan.lacks,
    }
}

impl Solver<'_, '_> {
    fn plan(&mut self, names: &[String]) -> Plan {
        let mut plan = Plan::default();
        // All requested packages come first, so that the others can use what they provide.
        let mut roots = Vec::new();
        for name in names {
            match self.root(name) {
                Some(id) if self.universe.is_installed(id) => {}
                Some(id) => {
                    self.place(&mut plan, id, "asked for".to_owned());
                    roots.push(id);
                }
                None => {
                    let why = "neither the base nor any repository has it".to_owned();
                    plan.lacks.insert(Unsatisfied {
                        user: "the recipe".to_owned(),
                        need: name.clone(),
                        why,
                    });
                }
            }
        }
        for id in roots {
            self.admit(&mut plan, id);
        }
        self.settle(&mut plan);
        plan
    }

    /// Makes a package present, and the packages that it replaces absent.
    fn place(&mut self, plan: &mut Plan, id: Id, why: String) {
        let replaced: Vec<Id> = self
            .all_present(plan)
            .filter(|other| self.universe.replaces(id, *other))
            .collect();
        for other in replaced {
            if plan.chosen.remove(&other).is_none() {
                plan.gone.insert(other);
            }
        }
        plan.chosen.insert(id, why);
    }

    /// Makes a package present, with everything that it needs.
    fn install(&mut self, plan: &mut Plan, id: Id, why: String) {
        if !self.present(plan, id) {
            self.place(plan, id, why);
            self.admit(plan, id);
        }
    }

    /// Handles the conflicts and needs of a package that was made present.
    fn admit(&mut self, plan: &mut Plan, id: Id) {
        self.tries += 1;
        while let Some(other) = self.rival(plan, id) {
            // An installed package may conflict only until it is updated.
            let newer = self
                .universe
                .is_installed(other)
                .then(|| self.newer(other))
                .flatten();
            match newer.filter(|newer| self.conflict(*newer, id).is_none()) {
                Some(newer) => {
                    let why = format!(
                        "{} conflicts with the installed one",
                        self.universe.node(id).name
                    );
                    self.install(plan, newer, why);
                }
                None => {
                    plan.lacks.extend(self.conflict(id, other));
                    break;
                }
            }
        }
        self.requirements(plan, id);
    }

    fn requirements(&mut self, plan: &mut Plan, id: Id) {
        for need in self.universe.node(id).requires {
            // rpm itself provides these features.
            if need.name.starts_with("rpmlib(") {
                continue;
            }
            match Dependency::of(need) {
                Ok(dependency) => self.satisfy(plan, id, &dependency, need),
                Err(why) => {
                    let user = self.universe.node(id).label();
                    plan.lacks.insert(Unsatisfied {
                        user,
                        need: need.to_string(),
                        why: why.to_string(),
                    });
                }
            }
        }
    }

    /// Satisfies a dependency of a package, or records why that is impossible.
    fn satisfy(&mut self, plan: &mut Plan, user: Id, dependency: &Dependency, need: &Need) {
        match dependency {
            Dependency::If(..) => {
                return plan.deferred.push((user, need.clone(), dependency.clone()));
            }
            Dependency::And(parts) => {
                return parts
                    .iter()
                    .for_each(|part| self.satisfy(plan, user, part, need));
            }
            _ if self.satisfied(plan, dependency) => return,
            Dependency::Or(parts) => {
                // Each part that needs more than one package is tried as a whole.
                let whole: Vec<&Dependency> = parts
                    .iter()
                    .filter(|part| self.candidates(part).is_empty())
                    .collect();
                if !whole.is_empty() && self.candidates(dependency).is_empty() {
                    return self.first_that_works(plan, &whole, |solver, plan, part| {
                        solver.satisfy(plan, user, part, need);
                    });
                }
            }
            _ => {}
        }
        let candidates = self.candidates(dependency);
        let given_up = candidates
            .iter()
            .find_map(|id| self.banned.get(id))
            .cloned();
        let mut candidates = self.preferred(candidates);
        let rival = |id: &Id| self.other_version(plan, *id);
        if let Some(chosen) = candidates.iter().find_map(rival)
            && candidates.iter().all(|id| rival(id).is_some())
        {
            // Retry without the version that conflicts.
            let why = format!("{} needs {need}", self.universe.node(user).label());
            plan.regretted.insert(chosen, why);
        }
        candidates.retain(|id| self.other_version(plan, *id).is_none());
        if candidates.is_empty() {
            let user = self.universe.node(user).label();
            let why = given_up.map_or_else(
                || "neither the base nor any repository has it".to_owned(),
                |why| format!("its providers were rejected, because {why}"),
            );
            plan.lacks.insert(Unsatisfied {
                user,
                need: need.to_string(),
                why,
            });
            return;
        }
        let why = format!("{} needs {need}", self.universe.node(user).name);
        self.first_that_works(plan, &candidates, |solver, plan, id| {
            solver.install(plan, *id, why.clone())
        });
    }

    /// Tries one choice after the other, and takes the first one with nothing missing, otherwise
    /// the one with the fewest missing packages.
    fn first_that_works<T>(
        &mut self,
        plan: &mut Plan,
        choices: &[T],
        attempt: impl Fn(&mut Self, &mut Plan, &T),
    ) {
        if let [only] = choices {
            return attempt(self, plan, only);
        }
        let before = plan.lacks.len();
        let mut best: Option<Plan> = None;
        for choice in choices {
            let mut with = plan.clone();
            attempt(self, &mut with, choice);
            let better = best
                .as_ref()
                .is_none_or(|best| with.lacks.len() < best.lacks.len());
            if better {
                best = Some(with);
            }
            if best.as_ref().is_some_and(|best| best.lacks.len() <= before) || self.tries > TRIES {
                break;
            }
        }
        if let Some(best) = best {
            *plan = best;
        }
    }

    /// Repeats until no present package lacks anything: conditions may have become true, and
    /// replaced packages may have provided needs.
    fn settle(&mut self, plan: &mut Plan) {
        // A handled need that is not satisfied is in `lacks`.
        let mut seen = Seen::new();
        while let Some((user, need, dependency, holds)) = self.open(plan, &seen) {
            seen.insert((user, need.to_string(), holds));
            if self.tries > TRIES {
                let why = format!("no solution was found in {TRIES} choices");
                let user = self.universe.node(user).label();
                plan.lacks.insert(Unsatisfied {
                    user,
                    need: need.to_string(),
                    why,
                });
                return;
            }
            let newer = self
                .universe
                .is_installed(user)
                .then(|| self.newer(user))
                .flatten();
            match newer {
                Some(newer) => self.install(plan, newer, format!("the installed one needs {need}")),
                None => self.satisfy(plan, user, &dependency, &need),
            }
        }
    }

    /// A present package, and one of its needs that is not satisfied.
    fn open(&self, plan: &Plan, seen: &Seen) -> Option<(Id, Need, Dependency, bool)> {
        let fresh = |id: Id, need: &Need| !seen.contains(&(id, need.to_string(), true));
        for (user, need, condition) in plan
            .deferred
            .iter()
            .filter(|(user, ..)| self.present(plan, *user))
        {
            let Dependency::If(then, when, otherwise) = condition else {
                continue;
            };
            let holds = self.satisfied(plan, when);
            let part = if holds {
                Some(then)
            } else {
                otherwise.as_ref()
            };
            let Some(part) = part.filter(|part| !self.satisfied(plan, part)) else {
                continue;
            };
            if !seen.contains(&(*user, need.to_string(), holds)) {
                return Some((*user, need.clone(), (**part).clone(), holds));
            }
        }
        // Dependencies that the base already lacked are not repaired here.
        let before = Plan::default();
        for id in self
            .all_present(plan)
            .filter(|_| !plan.gone.is_empty() || !plan.deferred.is_empty())
        {
            for need in self
                .universe
                .node(id)
                .requires
                .iter()
                .filter(|need| fresh(id, need))
            {
                let Ok(dependency) = Dependency::of(need) else {
                    continue;
                };
                let whole = !self.universe.is_installed(id) || self.satisfied(&before, &dependency);
                if whole && !need.name.starts_with("rpmlib(") && !self.satisfied(plan, &dependency)
                {
                    return Some((id, need.clone(), dependency, true));
                }
            }
        }
        None
    }

    /// Packages that only a host with more than the base would also need.
    fn incidental(&mut self, plan: &Plan) -> BTreeMap<Id, String> {
        let mut found = BTreeMap::new();
        for (user, need, condition) in &plan.deferred {
            let Dependency::If(then, when, _) = condition else {
                continue;
            };
            if self.satisfied(plan, when) || self.satisfied(plan, then) {
                continue;
            }
            let mut with = plan.clone();
            self.satisfy(&mut with, *user, then, need);
            self.settle(&mut with);
            let kept = plan.chosen.keys().all(|id| with.chosen.contains_key(id));
            if kept && with.lacks == plan.lacks && with.gone == plan.gone {
                found.extend(
                    with.chosen
                        .into_iter()
                        .filter(|(id, _)| !plan.chosen.contains_key(id)),
                );
            }
        }
        found
    }
}
