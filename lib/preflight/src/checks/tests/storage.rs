//! Disks and resolvers as sites have them.

use super::{bad, good, run};
use crate::checks::Verdict;
use crate::storage::FilledPlace;

/// The directories in /var/lib, with the numbers and the free space of their file systems.
fn places(of: [(&str, u64, u64); 4]) -> Vec<FilledPlace> {
    let place = |(name, device, free): (&str, u64, u64)| FilledPlace {
        path: format!("/var/lib/{name}"),
        device,
        free,
    };
    of.map(place).into()
}

#[test]
fn space_is_needed_on_the_file_system_of_each_directory() {
    let mut facts = good();
    facts.free.insert("/var/lib".into(), 300);
    facts.places = places([
        ("containerd", 2, 9000),
        ("etcd", 1, 300),
        ("halite", 3, 2000),
        ("kubelet", 2, 9000),
    ]);
    assert_eq!(bad(&facts), [""; 0], "the space in /var/lib is not used");
    facts.places[2].device = 1;
    assert_eq!(bad(&facts), ["disk"]);
    facts.places[2].free = 300;
    let disk = run(&facts).into_iter().find(|found| found.name == "disk");
    let Some(Verdict::Bad(message, _)) = disk.map(|found| found.verdict) else {
        panic!("it is not reported");
    };
    assert_eq!(
        message,
        "/var/lib/etcd, /var/lib/halite have 300 MiB free, 1792 MiB are needed"
    );
}

#[test]
fn one_file_system_needs_the_sum() {
    let mut facts = good();
    let all = |free| ["containerd", "etcd", "halite", "kubelet"].map(|name| (name, 1, free));
    facts.places = places(all(4096));
    assert_eq!(bad(&facts), [""; 0]);
    facts.places = places(all(4095));
    assert_eq!(bad(&facts), ["disk"]);
}

#[test]
fn a_file_system_without_types_of_entries_holds_no_containers() {
    let mut facts = good();
    facts.container_fs = "xfs".into();
    assert_eq!(bad(&facts), [""; 0]);
    facts.container_fs_untyped = true;
    assert_eq!(bad(&facts), ["container-storage"]);
}

#[test]
fn a_resolver_on_loopback_needs_declared_forwarders() {
    for server in ["127.0.0.1", "127.0.1.1", "::1", "0.0.0.0"] {
        let mut facts = good();
        facts.name_servers.push(server.into());
        assert_eq!(bad(&facts), ["name-server"], "{server}");
        facts.requirements.forwarders = true;
        assert_eq!(bad(&facts), [""; 0], "{server}");
    }
    let mut facts = good();
    facts.name_servers = vec!["fe80::1%eth0".into(), "10.0.0.1".into()];
    assert_eq!(bad(&facts), [""; 0]);
}
