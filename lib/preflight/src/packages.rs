//! The packages of a host with dpkg that matter before the bundle's are installed: held ones, and
//! other container engines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

const STATUS: &str = "/var/lib/dpkg/status";
/// The packages of the container runtime that every bundle has.
const RUNTIME: [&str; 2] = ["containerd", "runc"];
/// Container engines that may use the packages of the runtime and do not conflict with them.
const ENGINES: [&str; 5] = [
    "cri-o",
    "docker-ce",
    "docker-engine",
    "docker.io",
    "moby-engine",
];
/// The directories of units that take precedence over those of packages.
const UNIT_DIRECTORIES: [&str; 2] = ["/etc/systemd/system", "/usr/local/lib/systemd/system"];
/// The services of container engines that are installed without a package.
const UNITS: [&str; 3] = ["containerd.service", "crio.service", "docker.service"];

/// Packages on a host that may be in the way of the bundle's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PackageTraces {
    /// Held packages: name to version, which is empty for a package that is not installed.
    pub held: BTreeMap<String, String>,
    /// Other container engines, by package.
    pub engines: BTreeSet<String>,
    /// Packages that the bundle's container runtime replaces, and those that need them.
    pub replaced: BTreeSet<String>,
    /// Files of units of container engines that belong to no package.
    pub units: Vec<String>,
}

/// The held packages of the host below a root: name to version, which is empty for a package that
/// is not installed. A host without dpkg has none.
#[must_use]
pub fn held_packages(root: &Path) -> BTreeMap<String, String> {
    let status = std::fs::read(root.join(STATUS.trim_start_matches('/'))).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    // Most hosts have none, and the file is long.
    match status.contains("\nStatus: hold ") {
        true => PackageTraces::parse(&status).held,
        false => BTreeMap::new(),
    }
}

impl PackageTraces {
    /// The traces on this host. A host without dpkg has none.
    #[must_use]
    pub fn collect() -> Self {
        let status = std::fs::read(STATUS).unwrap_or_default();
        let directories = UNIT_DIRECTORIES.map(Path::new);
        Self {
            units: units(&directories),
            ..Self::parse(&String::from_utf8_lossy(&status))
        }
    }

    fn parse(status: &str) -> Self {
        let known: Vec<DpkgEntry<'_>> = status.split("\n\n").filter_map(DpkgEntry::read).collect();
        let held = known.iter().filter(|package| package.is_held);
        let version = |package: &DpkgEntry<'_>| match package.is_installed {
            true => package.version.to_owned(),
            false => String::new(),
        };
        let held = held.map(|package| (package.name.to_owned(), version(package)));
        let installed: Vec<&DpkgEntry<'_>> = known
            .iter()
            .filter(|package| package.is_installed)
            .collect();
        let engines = installed.iter().map(|package| package.name);
        Self {
            held: held.collect(),
            engines: engines
                .filter(|name| ENGINES.contains(name))
                .map(str::to_owned)
                .collect(),
            replaced: replaced(&installed),
            units: Vec::new(),
        }
    }
}

/// A package in dpkg's status file.
struct DpkgEntry<'a> {
    name: &'a str,
    version: &'a str,
    is_installed: bool,
    is_held: bool,
    /// Clauses of alternatives.
    needs: Vec<Vec<&'a str>>,
    provides: Vec<&'a str>,
    conflicts: Vec<&'a str>,
}

impl<'a> DpkgEntry<'a> {
    fn read(stanza: &'a str) -> Option<Self> {
        let field = |key: &str| {
            let value = |line: &'a str| line.strip_prefix(key)?.strip_prefix(':');
            stanza.lines().find_map(value).map(str::trim)
        };
        // `install ok installed`: what is wanted, flags, what is there.
        let state: Vec<&str> = field("Status")?.split_whitespace().collect();
        let needs = ["Pre-Depends", "Depends"].map(|key| field(key).unwrap_or_default());
        let needs = needs.into_iter().flat_map(|list| list.split(','));
        Some(Self {
            name: field("Package")?,
            version: field("Version").unwrap_or_default(),
            is_installed: state.get(2) == Some(&"installed"),
            is_held: state.first() == Some(&"hold"),
            needs: needs.map(|clause| names(clause, '|')).collect(),
            provides: names(field("Provides").unwrap_or_default(), ','),
            conflicts: ["Conflicts", "Breaks"]
                .into_iter()
                .flat_map(|key| names(field(key).unwrap_or_default(), ','))
                .collect(),
        })
    }

    /// Returns whether it is a package of the runtime under another name. Restrictions by version
    /// do not count: no package of a distribution conflicts with all future versions of another.
    fn replaces_runtime(&self) -> bool {
        let is_runtime = |name: &&str| RUNTIME.contains(name);
        !RUNTIME.contains(&self.name)
            && self.provides.iter().any(is_runtime)
            && self.conflicts.iter().any(is_runtime)
    }
}

/// The names in a list of packages, without versions and architectures.
fn names(list: &str, separator: char) -> Vec<&str> {
    list.split(separator)
        .filter_map(|item| item.trim().split([' ', '(', '[', '<', ':', '\t']).next())
        .filter(|name| !name.is_empty())
        .collect()
}

/// The packages that replace the runtime's, and all that need one of them and have no alternative.
fn replaced(installed: &[&DpkgEntry<'_>]) -> BTreeSet<String> {
    let mut gone: BTreeSet<&str> = installed
        .iter()
        .filter(|package| package.replaces_runtime())
        .map(|package| package.name)
        .collect();
    loop {
        let offers = |package: &DpkgEntry<'_>, name: &str| {
            package.name == name || package.provides.contains(&name)
        };
        let breaks = |clause: &[&str]| {
            let lost = installed
                .iter()
                .filter(|package| gone.contains(package.name))
                .any(|package| clause.iter().any(|name| offers(package, name)));
            let left = installed
                .iter()
                .filter(|package| !gone.contains(package.name))
                .any(|package| clause.iter().any(|name| offers(package, name)));
            let new = clause.iter().any(|name| RUNTIME.contains(name));
            lost && !left && !new
        };
        let more: Vec<&str> = installed
            .iter()
            .filter(|package| !gone.contains(package.name))
            .filter(|package| package.needs.iter().any(|clause| breaks(clause)))
            .map(|package| package.name)
            .collect();
        if more.is_empty() {
            return gone.into_iter().map(str::to_owned).collect();
        }
        gone.extend(more);
    }
}

/// The files of units of container engines. A link is an alias, or masks the unit of a package.
fn units(directories: &[&Path]) -> Vec<String> {
    let paths = directories
        .iter()
        .flat_map(|directory| UNITS.map(|unit| directory.join(unit)));
    paths
        .filter(|path| path.symlink_metadata().is_ok_and(|data| data.is_file()))
        .map(|path| path.display().to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of docker-ce and containerd.io as their packages have them.
    const STATUS: &str = "Package: containerd.io\nStatus: install ok installed\nVersion: 1.7.27-1\n\
        Provides: containerd, runc\nConflicts: containerd, runc\nDescription: x\n .\n y\n\n\
        Package: docker-ce\nStatus: install ok installed\nVersion: 5:28.0.4-1\n\
        Depends: containerd.io (>= 1.7.27), docker-ce-cli, iptables | nftables, libc6 (>= 2.34)\n\n\
        Package: docker-ce-cli\nStatus: install ok installed\nVersion: 5:28.0.4-1\nDepends: libc6 (>= 2.34)\n\n\
        Package: runs-anywhere\nStatus: install ok installed\nVersion: 1\nDepends: containerd.io | runc\n\n\
        Package: needs-docker\nStatus: install ok installed\nVersion: 1\nPre-Depends: docker-ce:any\n\n\
        Package: libc6\nStatus: hold ok installed\nVersion: 2.36-9\n\n\
        Package: ethtool\nStatus: hold ok config-files\nVersion: 1:6.1-1\n";

    fn names(set: &BTreeSet<String>) -> Vec<&str> {
        set.iter().map(String::as_str).collect()
    }

    #[test]
    fn packages_that_the_runtime_replaces_are_found_with_those_that_need_them() {
        let found = PackageTraces::parse(STATUS);
        assert_eq!(names(&found.engines), ["docker-ce"]);
        assert_eq!(
            names(&found.replaced),
            ["containerd.io", "docker-ce", "needs-docker"]
        );
    }

    #[test]
    fn held_packages_are_found_also_if_they_are_not_installed() {
        let held = PackageTraces::parse(STATUS).held;
        let held: Vec<(&str, &str)> = held
            .iter()
            .map(|(name, version)| (name.as_str(), version.as_str()))
            .collect();
        assert_eq!(held, [("ethtool", ""), ("libc6", "2.36-9")]);
        let root = tempfile::tempdir().unwrap();
        assert_eq!(held_packages(root.path()), BTreeMap::new());
        let file = root.path().join("var/lib/dpkg/status");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, STATUS).unwrap();
        assert_eq!(
            held_packages(root.path()),
            PackageTraces::parse(STATUS).held
        );
        std::fs::write(&file, STATUS.replace("hold ", "install ")).unwrap();
        assert_eq!(held_packages(root.path()), BTreeMap::new());
    }

    #[test]
    fn the_runtime_of_a_bundle_is_not_another_engine() {
        let status = "Package: containerd\nStatus: install ok installed\nVersion: 2.3.7-1\n\
            Provides: containerd\nBreaks: runc (<< 1.1)\n\n\
            Package: podman\nStatus: install ok installed\nVersion: 4\nDepends: crun | runc\n\n\
            Package: old\nStatus: deinstall ok config-files\nVersion: 1\nProvides: runc\nConflicts: runc\n";
        assert_eq!(PackageTraces::parse(status), PackageTraces::default());
        assert_eq!(PackageTraces::parse(""), PackageTraces::default());
    }

    #[test]
    fn units_without_a_package_are_found_and_masks_are_not() {
        let scratch = tempfile::tempdir().unwrap();
        let masked = scratch.path().join("docker.service");
        std::os::unix::fs::symlink("/dev/null", masked).unwrap();
        let own = scratch.path().join("containerd.service");
        std::fs::write(&own, "").unwrap();
        std::fs::write(scratch.path().join("other.service"), "").unwrap();
        assert_eq!(units(&[scratch.path()]), [own.display().to_string()]);
    }
}
