//! Services that load rules of their own into the kernel's packet filter.

use std::path::Path;

/// The services, with those of distributions with rpm.
const SERVICES: [&str; 8] = [
    "ferm",
    "ip6tables",
    "iptables",
    "netfilter-persistent",
    "nftables",
    "shorewall",
    "shorewall6",
    "ufw",
];
/// The directory of units, with one of links for each unit that starts others.
const UNITS: &str = "/etc/systemd/system";
const WANTS: [&str; 2] = [".wants", ".requires"];

/// The enabled services on this host.
pub(crate) fn enabled() -> Vec<String> {
    enabled_below(Path::new(UNITS))
}

fn enabled_below(units: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(units).into_iter().flatten().flatten();
    let directories: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.to_string_lossy();
            WANTS.iter().any(|end| name.ends_with(end))
        })
        .collect();
    let is_enabled = |service: &&str| {
        let link = format!("{service}.service");
        directories
            .iter()
            .any(|directory| directory.join(&link).symlink_metadata().is_ok())
    };
    let enabled = SERVICES.into_iter().filter(is_enabled);
    enabled.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_found_below_whatever_target_starts_it() {
        let scratch = tempfile::tempdir().unwrap();
        let enable = |target: &str, unit: &str| {
            let directory = scratch.path().join(target);
            std::fs::create_dir_all(&directory).unwrap();
            std::os::unix::fs::symlink("/missing", directory.join(unit)).unwrap();
        };
        enable("basic.target.wants", "iptables.service");
        enable("multi-user.target.wants", "netfilter-persistent.service");
        enable("multi-user.target.wants", "ssh.service");
        enable("some.service.d", "ufw.service");
        assert_eq!(
            enabled_below(scratch.path()),
            ["iptables", "netfilter-persistent"]
        );
    }
}
