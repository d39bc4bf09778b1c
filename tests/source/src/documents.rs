//! Fields of Halite's documents are read through a type of `halite-api`, not by name.

use crate::tree::{self, Text};

/// The folder in which no document is read by names: the programs of operators.
const NOWHERE: &str = "ctl/src/";
/// The folder in which only the documents of other programs are.
const SUITES: &str = "tests/suites/src/";
/// The files of the suites that read such documents: the answers of `kubectl`, `etcdctl`, `crictl`
/// and registries, the manifest and the recipe of a bundle, the records of cargo, and files of
/// other formats. So are those of a Halite of another version, whose types are not these. A
/// file is added only for such documents; one that now reads types is removed from the list.
const FOREIGN: &[&str] = &[
    "addons.rs",
    "availability/target.rs",
    "builder_root.rs",
    "bundle.rs",
    "bundle/coverage.rs",
    "bundles/chart.rs",
    "bundles/newer.rs",
    "bundles/second.rs",
    "cluster.rs",
    "etcd/external.rs",
    "every_option.rs",
    "ha.rs",
    "ha/all_off.rs",
    "ha/backups.rs",
    "ha/boundaries/mod.rs",
    "ha/boundaries/outcomes.rs",
    "ha/cancelled.rs",
    "ha/fewer.rs",
    "ha/last_worker.rs",
    "ha/leader.rs",
    "ha/leaving.rs",
    "ha/pod.rs",
    "ha/reboot.rs",
    "ha/release.rs",
    "ha/retiring.rs",
    "ha/returned.rs",
    "ha/roles.rs",
    "ha/taints.rs",
    "ha/taken_out.rs",
    "ha/upgrade_stops.rs",
    "health/prometheus.rs",
    "images.rs",
    "iso/content.rs",
    "iso/damage.rs",
    "iso/seal.rs",
    "iso/views.rs",
    "kills/adding.rs",
    "kills/moments.rs",
    "kills/power.rs",
    "kills/registered.rs",
    "kubeadm/archive.rs",
    "kubeadm/certificate.rs",
    "kubeadm/control_plane.rs",
    "kubeadm/files.rs",
    "kubeadm/inputs.rs",
    "kubeadm/join.rs",
    "kubeadm/kubeconfig.rs",
    "kubeadm/live.rs",
    "kubeadm/objects.rs",
    "kubeadm/patches.rs",
    "kubeadm/reference.rs",
    "kubeadm/rendered.rs",
    "kubeadm/upgraded.rs",
    "kubeadm/worker.rs",
    "minor.rs",
    "older.rs",
    "operator/kubeconfig.rs",
    "registry.rs",
    "registry/pod.rs",
    "repair/containers.rs",
    "repair/lost_etcd.rs",
    "repair/objects.rs",
    "repair/wait_ready.rs",
    "roles.rs",
    "runtime.rs",
    "site_registry.rs",
    "unit_tests.rs",
    "versions.rs",
    "vip.rs",
];

/// Returns whether a line reads a field by its name: `value["name"]`, or a JSON pointer.
fn reads_by_name(line: &str) -> bool {
    let is_index = |(at, _): (usize, &str)| {
        let before = line[..at].chars().next_back();
        let is_value = before.is_some_and(|c| c.is_alphanumeric() || "_])?".contains(c));
        let rest = &line[at + 2..];
        is_value
            && rest
                .find('"')
                .is_some_and(|end| rest[end..].starts_with("\"]"))
    };
    line.match_indices("[\"").any(is_index)
        || [".pointer(", ".pointer_mut("]
            .iter()
            .any(|call| line.contains(call))
}

fn findings(file: &Text) -> Vec<String> {
    let lines = file.text.lines().enumerate();
    let lines = lines.filter(|(_, line)| reads_by_name(line));
    let finding = |number| {
        format!(
            "{}:{}: read it as a type of halite-api",
            file.path,
            number + 1
        )
    };
    lines.map(|(number, _)| finding(number)).collect()
}

#[test]
fn no_program_of_operators_reads_a_document_by_names() {
    let files = tree::files(&[".rs"]);
    let files = files.iter().filter(|file| file.path.starts_with(NOWHERE));
    let found: Vec<String> = files.flat_map(findings).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_suites_read_only_documents_of_other_programs_by_names() {
    let files = tree::files(&[".rs"]);
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with(SUITES)) {
        let is_foreign = FOREIGN.contains(&&file.path[SUITES.len()..]);
        let own = findings(file);
        if !is_foreign {
            found.extend(own);
        } else if own.is_empty() {
            found.push(format!(
                "{}: it reads nothing by names; remove it from the list",
                file.path
            ));
        }
    }
    let there = |name: &&&str| {
        files
            .iter()
            .any(|file| file.path == format!("{SUITES}{name}"))
    };
    let gone = FOREIGN.iter().filter(|name| !there(name));
    found.extend(gone.map(|name| format!("{SUITES}{name}: it is gone; remove it from the list")));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn indexes_and_pointers_are_found() {
    for line in [
        "status[\"nodes\"]",
        "a()[\"b\"]",
        "a[0][\"b\"]",
        "a?[\"b\"]",
        "value.pointer(\"/a\")",
    ] {
        assert!(reads_by_name(line), "{line}");
    }
    for line in [
        "&[\"ctl\", \"status\"]",
        "[\"a\"]",
        "let a = [\"b\"];",
        "f([\"a\"])",
        "run(&[\"a\"])",
    ] {
        assert!(!reads_by_name(line), "{line}");
    }
}
