//! Packages for RPM distributions on which the needed ones depend.

use std::collections::{BTreeMap, BTreeSet};

use super::rpm::Rpms;
use super::{Artifact, ArtifactLocation, Inventory, Unmet, Uses};
use crate::rpm;
use crate::rpm::Unsatisfied;

impl Rpms {
    /// The unmet dependencies of the needed packages.
    pub fn dependencies(&self, stock: &Inventory, roots: &BTreeMap<String, Uses>) -> Vec<Unmet> {
        let names: Vec<String> = roots.keys().cloned().collect();
        let found = rpm::closure(&self.base, &self.packages, &names);
        let uses = roots.values().next().cloned().unwrap_or_default();
        let missing = |name: String, why: String, file: String, what: String| Unmet {
            artifact: Some(Artifact::Rpm {
                name,
                version: None,
            }),
            why,
            needed_by: BTreeMap::from([(
                ArtifactLocation {
                    file,
                    line: 0,
                    what,
                },
                uses.clone(),
            )]),
        };
        let lacks = found.lacks.iter().map(|Unsatisfied { user, need, why }| {
            let name = need
                .trim_start_matches('(')
                .split(' ')
                .next()
                .unwrap_or(need)
                .to_owned();
            missing(
                name,
                why.clone(),
                format!("the package {user}"),
                format!("needs {need}"),
            )
        });
        let known: BTreeSet<&str> = roots.keys().map(String::as_str).collect();
        let taken = found
            .packages
            .iter()
            .filter(|(package, _)| !known.contains(package.name.as_str()));
        let taken = taken.filter_map(|(package, why)| {
            let artifact = Artifact::Rpm {
                name: package.name.clone(),
                version: None,
            };
            let lack = stock.lacks(&artifact)?;
            Some(missing(
                package.name.clone(),
                lack,
                "the yum repository".to_owned(),
                why.clone(),
            ))
        });
        lacks.chain(taken).collect()
    }
}
