//! Answers of dpkg-query(1), rpm(8) and apt-cache(8).

use std::collections::{BTreeMap, BTreeSet};

/// Not `i` (installed), `n` (not installed) or `c` (only its configuration).
pub(super) fn is_cut_off(state: &str) -> bool {
    !matches!(state, "i" | "n" | "c")
}

/// The packages of `dpkg-query`'s answer whose wanted state, the first letter, is a hold.
pub(super) fn parse_held(text: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let mut fields = line.split('\t');
        let is_held = fields.next()?.starts_with('h');
        let name = fields.next()?;
        is_held.then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// The lines of an architecture, and of packages for all, without their first field.
pub(super) fn of_architecture(text: &str, native: &str) -> String {
    let is_native = |architecture: &str| [native, "all", ""].contains(&architecture);
    let lines = text.lines().filter_map(|line| line.split_once('\t'));
    let own = lines.filter(|(architecture, _)| is_native(architecture));
    own.flat_map(|(_, line)| [line, "\n"]).collect()
}

/// The packages of `dpkg-query`'s answer whose state counts: the second letter of its abbreviation.
pub(super) fn parse_dpkg(text: &str, counts: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    let fields = text.lines().filter_map(|line| {
        let mut fields = line.split('\t');
        counts(fields.next()?.get(1..2)?)
            .then_some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    });
    fields.collect()
}

/// Packages such as `kernel` may be installed in several versions: they are separated by commas, as
/// in Salt.
pub(super) fn parse_rpm(text: &str) -> BTreeMap<String, String> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, version) in text.lines().filter_map(|line| line.split_once('\t')) {
        let version = version.strip_prefix("0:").unwrap_or(version);
        found.entry(name).or_default().insert(version);
    }
    let all = found.into_iter().map(|(name, versions)| {
        let versions: Vec<&str> = versions.into_iter().collect();
        (name.to_owned(), versions.join(","))
    });
    all.collect()
}

/// The installed package of `dpkg-query`'s answer that provides `name`; its version does not
/// matter.
pub(super) fn parse_provides(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut fields = line.split('\t');
        let is_installed = fields.next()?.get(1..2)? == "i";
        let (package, provides) = (fields.next()?, fields.next()?);
        let mut names = provides
            .split(',')
            .filter_map(|one| one.split_whitespace().next());
        (is_installed && names.any(|one| one == name)).then(|| package.to_owned())
    })
}

/// The candidate of `apt-cache policy`, if there is one.
pub(super) fn parse_policy(text: &str) -> Option<String> {
    let version = text
        .lines()
        .find_map(|l| l.trim().strip_prefix("Candidate:"))?
        .trim();
    (version != "(none)").then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_installed_packages_count() {
        let text = "ii \tbash\t5.2.15-2+b2\nrc \tgone\t1\niU \tunpacked\t1\nhi \theld\t2\n";
        let packages = parse_dpkg(text, |state| state == "i");
        assert_eq!(packages.keys().collect::<Vec<_>>(), ["bash", "held"]);
        assert_eq!(packages["bash"], "5.2.15-2+b2");
    }

    #[test]
    fn packages_that_were_cut_off_are_on_the_host() {
        // A package whose first installation was cut off early has no version.
        let text = "ii \tbash\t5\nrc \tgone\t1\nun \tnever\t\niUR\tsocat\t1\niHR\tkubelet\t\n\
                    rH \trunc\t2\niF \tcontainerd\t3\n";
        let packages = parse_dpkg(text, is_cut_off);
        let names = ["containerd", "kubelet", "runc", "socat"];
        assert_eq!(packages.keys().collect::<Vec<_>>(), names);
        assert_eq!(packages["kubelet"], "");
    }

    #[test]
    fn a_virtual_package_has_an_installed_provider() {
        let text = "rc \tgone\tmail-transport-agent\nii \tmawk\tawk\n\
                    ii \tpostfix\tdefault-mta (= 1), mail-transport-agent\nii \tbash\t\n";
        for (name, provider) in [
            ("mail-transport-agent", Some("postfix")),
            ("default-mta", Some("postfix")),
            ("awk", Some("mawk")),
            ("bash", None),
            ("mail", None),
        ] {
            assert_eq!(parse_provides(text, name).as_deref(), provider, "{name}");
        }
    }

    #[test]
    fn a_foreign_architecture_does_not_count() {
        let text = "amd64\tii \tlibc6\t2.36\ni386\tii \tlibc6\t2.35\ni386\tii \tzlib1g\t1\n\
                    all\tii \ttzdata\t2024\n\tun \tnever\t\n";
        let own = of_architecture(text, "amd64");
        let packages = parse_dpkg(&own, |state| state == "i");
        assert_eq!(packages.keys().collect::<Vec<_>>(), ["libc6", "tzdata"]);
        assert_eq!(packages["libc6"], "2.36");
    }

    #[test]
    fn all_versions_of_a_package_count() {
        let text = "kernel\t0:5.14.0-2\nkernel\t0:5.14.0-1\nglibc\t0:2.34\nglibc\t0:2.34\n";
        let packages = parse_rpm(text);
        assert_eq!(packages["kernel"], "5.14.0-1,5.14.0-2");
        assert_eq!(packages["glibc"], "2.34");
    }

    #[test]
    fn rpm_epochs() {
        let packages = parse_rpm("bash\t0:5.1.8-6.el9\nnginx\t2:1.20.1-14.el9\n");
        assert_eq!(
            (packages["bash"].as_str(), packages["nginx"].as_str()),
            ("5.1.8-6.el9", "2:1.20.1-14.el9")
        );
    }

    #[test]
    fn held_packages_are_found_also_if_they_are_not_installed() {
        let text = "ii \tbash\t5\nhi \tkubelet\t1.36\nhc \tethtool\t6\nrc \told\t1\n";
        let held: Vec<String> = parse_held(text).into_iter().collect();
        assert_eq!(held, ["ethtool", "kubelet"]);
    }

    #[test]
    fn candidates() {
        let text = "nginx:\n  Installed: (none)\n  Candidate: 1.22.1-9\n  Version table:\n";
        assert_eq!(parse_policy(text).as_deref(), Some("1.22.1-9"));
        assert_eq!(parse_policy("x:\n  Candidate: (none)\n"), None);
        assert_eq!(parse_policy(""), None);
    }
}
