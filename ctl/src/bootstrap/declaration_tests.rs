use halite_pillar::bundle_facts::components;

use super::*;

pub(in crate::bootstrap) const CLUSTER: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: prod}\nnetworks: {controlPlane: {cidrs: [10.0.0.0/24]}}\nkubernetes: {version: \"1.36\"}\n";

pub(in crate::bootstrap) fn preparation(name: &str) -> Preparation {
    let manifest = serde_json::json!({"format": 1, "name": "halite", "version": "1", "built": "2026-01-01T00:00:00Z",
        "kubernetes": "v1.36.3", "components": {}, "packages": {}, "files": {},
        "images": components().map(|name| (name, format!("r/{name}"))).collect::<std::collections::BTreeMap<_, _>>()});
    Preparation {
        bundle: "/media/halite".into(),
        site: "/media/halite".into(),
        manifest: serde_json::from_value(manifest).unwrap(),
        others: Vec::new(),
        minion: crate::minion::Minion::find(None),
        grains: serde_json::json!({"ip4_interfaces": {"eth0": ["10.0.0.11"]}}),
        name: name.to_owned(),
    }
}

fn load(dir: &Path, config: Option<&Path>, name: &str) -> Result<Declared, Vec<Problem>> {
    InitialDocuments::read(dir, config, name)
        .unwrap()
        .load(&preparation(name))
}

/// The documents in a directory, as on a host.
fn in_directory(dir: &Path) -> impl Fn(&str) -> Option<String> {
    |name| std::fs::read_to_string(dir.join(name)).ok()
}

#[test]
fn a_second_run_resolves_the_same_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("mine.yaml");
    std::fs::write(&config, CLUSTER).unwrap();
    let etc = dir.path().join("etc");
    let first = load(&etc, Some(&config), "a").unwrap();
    assert_eq!(first.master(), "10.0.0.11:4550");
    first.write(&etc).unwrap();
    let written = std::fs::read_to_string(etc.join("cluster.yaml")).unwrap();
    assert!(
        written.starts_with(CLUSTER) && written.contains("kubernetes: v1.36.3"),
        "{written}"
    );
    for config in [Some(config.as_path()), None] {
        let given = InitialDocuments::read(&etc, config, "a").unwrap();
        assert_eq!(given.existing(), ExistingCluster::This);
        let again = given.load(&preparation("a")).unwrap();
        assert_eq!(again.changes(in_directory(&etc)), "");
        assert_eq!(again.files, first.files);
    }
}

#[test]
fn a_directory_has_the_document_of_the_first_host_too() {
    let dir = tempfile::tempdir().unwrap();
    let (given, etc) = (dir.path().join("given"), dir.path().join("etc"));
    std::fs::create_dir_all(given.join("nodes")).unwrap();
    std::fs::write(given.join("cluster.yaml"), CLUSTER).unwrap();
    let node = |roles: &str, more: &str| {
        let text = format!(
            "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: a}}\nroles: [{roles}]\n{more}"
        );
        std::fs::write(given.join("nodes/a.yaml"), text).unwrap();
    };
    let first = "bootstrap, registry, etcd, control-plane";
    node(&format!("{first}, worker"), "labels: {disk: ssd}\n");
    let installed = |declared: Declared| {
        declared.write(&etc).unwrap();
        std::fs::read_to_string(etc.join("nodes/a.yaml")).unwrap()
    };
    let text = installed(load(&etc, Some(&given), "a").unwrap());
    for part in [
        "worker]",
        "disk: ssd",
        "resolved:\n  controlPlane: 10.0.0.11\n",
    ] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
    // The same command again keeps the record, and takes what has changed since.
    node(first, "");
    let text = installed(load(&etc, Some(&given), "a").unwrap());
    assert!(
        !text.contains("worker") && text.contains("controlPlane: 10.0.0.11"),
        "{text}"
    );
    // Without the role of the first host, it gets it.
    std::fs::remove_dir_all(&etc).unwrap();
    node("worker", "");
    let text = installed(load(&etc, Some(&given), "a").unwrap());
    assert!(
        text.contains("bootstrap") && text.contains("worker"),
        "{text}"
    );
    // Under another name, the document is not the host's.
    let error = InitialDocuments::read(&etc, Some(&given), "b")
        .err()
        .unwrap();
    assert!(format!("{error:#}").contains("--name a"), "{error:#}");
    std::fs::write(given.join("nodes/a.yaml"), "kind: [\n").unwrap();
    let problems = load(&etc, Some(&given), "a").err().unwrap();
    let file = given.join("nodes/a.yaml").display().to_string();
    assert!(
        problems.iter().any(|problem| problem.file == file),
        "{problems:?}"
    );
}

#[test]
fn states_of_the_operator_are_only_taken_from_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let (given, etc) = (dir.path().join("given"), dir.path().join("etc"));
    let custom = |directory: &Path| {
        std::fs::create_dir_all(directory.join("custom")).unwrap();
        std::fs::write(directory.join("custom/pillar.yaml"), "motd: hello\n").unwrap();
    };
    custom(&given);
    std::fs::write(given.join("cluster.yaml"), CLUSTER).unwrap();
    let error = InitialDocuments::read(&etc, Some(&given), "a")
        .err()
        .unwrap();
    let place = etc.join("custom").display().to_string();
    assert!(format!("{error:#}").contains(&place), "{error:#}");
    // The remedy: they are on the host, even before its first bootstrap.
    std::fs::remove_dir_all(given.join("custom")).unwrap();
    custom(&etc);
    let first = load(&etc, Some(&given), "a").unwrap();
    let view = first.view(&Pki::default(), "a").unwrap();
    assert!(view.to_string().contains("hello"), "{view}");
    first.write(&etc).unwrap();
    // The documents on the host name themselves.
    load(&etc, Some(&etc), "a").unwrap();
}

#[test]
fn another_cluster_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("other.yaml");
    std::fs::write(&config, CLUSTER.replace("prod", "test")).unwrap();
    std::fs::write(dir.path().join("cluster.yaml"), CLUSTER).unwrap();
    let given = InitialDocuments::read(dir.path(), Some(&config), "a").unwrap();
    assert_eq!(given.existing(), ExistingCluster::Other("prod".into()));
}

#[test]
fn a_mistake_elsewhere_makes_no_other_mistakes() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("mine.yaml");
    let wanted = |text: &str| {
        std::fs::write(&config, text).unwrap();
        InitialDocuments::read(&dir.path().join("etc"), Some(&config), "a")
            .unwrap()
            .requirements()
    };
    let said = format!(
        "{CLUSTER}kubelet: {{config: {{failCgroupV1: false}}}}\nhost: {{manageSwap: false}}\n"
    );
    assert!(!wanted(&said).fail_cgroup_v1);
    let mistaken = wanted(&format!("{said}netwrks: {{}}\n"));
    assert_eq!(mistaken, wanted(&said));
    assert_eq!(wanted("a: ["), HostRequirements::default());
}

#[test]
fn the_first_host_keeps_its_name() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("cluster.yaml"), CLUSTER).unwrap();
    load(dir.path(), None, "a")
        .unwrap()
        .write(dir.path())
        .unwrap();
    let problems = load(dir.path(), None, "b").err().unwrap();
    assert!(problems[0].message.contains("`a`, not `b`"), "{problems:?}");
    // Another declared host is not the first one.
    let second = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: b}\nroles: [worker]\nresolved:\n  \
                  controlPlane: 10.0.0.12\n  workloadPlane: 10.0.0.12\n";
    std::fs::write(dir.path().join("nodes/b.yaml"), second).unwrap();
    let there = Preparation {
        grains: serde_json::json!({"ip4_interfaces": {"eth0": ["10.0.0.12"]}}),
        ..preparation("b")
    };
    let documents = InitialDocuments::read(dir.path(), None, "b").unwrap();
    let problems = documents.load(&there).err().unwrap();
    assert!(problems[0].message.contains("`a`, not `b`"), "{problems:?}");
    load(dir.path(), None, "a").unwrap();
}

#[test]
fn without_any_document_there_is_nothing_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let error = InitialDocuments::read(dir.path(), None, "a").err().unwrap();
    assert!(error.to_string().contains("--config"), "{error}");
}

#[test]
fn a_changed_document_is_shown_but_never_a_secret() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("cluster.yaml"), CLUSTER).unwrap();
    load(dir.path(), None, "a")
        .unwrap()
        .write(dir.path())
        .unwrap();
    let config = dir.path().join("mine.yaml");
    std::fs::write(&config, format!("{CLUSTER}dnsDomain: my.local\n")).unwrap();
    let changes = load(dir.path(), Some(&config), "a")
        .unwrap()
        .changes(in_directory(dir.path()));
    assert!(changes.contains("+dnsDomain: my.local"), "{changes}");
    std::fs::write(
        &config,
        format!("{CLUSTER}secrets: {{s: {{value: canary, roles: [worker]}}}}\n"),
    )
    .unwrap();
    let changes = load(dir.path(), Some(&config), "a")
        .unwrap()
        .changes(in_directory(dir.path()));
    assert!(
        changes.contains("cluster.yaml changes") && !changes.contains("canary"),
        "{changes}"
    );
}

/// A host of a cluster whose first host has left, as its backup declares it.
const OWN: &str = "# In the second rack.\napiVersion: halite/v1\nkind: Node\nmetadata: {name: cp-2}\nroles: [etcd, control-plane, worker]\n\
                   address: 10.0.0.11\nlabels: {rack: \"2\"}\ntaints: [{key: gpu, effect: NoSchedule}]\ncustom: {port: 80}\n\
                   resolved:\n  controlPlane: 10.0.0.11\n  workloadPlane: 10.0.0.11\n  vrrpPriority: 253\n";
const OTHER: &str = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: cp-3}\nroles: [etcd, control-plane]\nresolved:\n  \
                     controlPlane: 10.0.0.13\n  workloadPlane: 10.0.0.13\n";

/// The documents of a backup with this `resolved.master`, without the records of members.
fn backup(master: &str, further: &str, nodes: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let resolved =
        format!("resolved:\n  kubernetes: v1.36.3\n  bundle: \"1\"\n  master: {master}\n");
    std::fs::write(
        dir.path().join("cluster.yaml"),
        format!("{CLUSTER}{further}{resolved}"),
    )
    .unwrap();
    std::fs::create_dir(dir.path().join("nodes")).unwrap();
    for (name, text) in nodes {
        std::fs::write(dir.path().join(format!("nodes/{name}.yaml")), text).unwrap();
    }
    dir
}

/// The declaration of a restore from these documents.
fn restored(dir: &Path, name: &str) -> Declared {
    let initial = InitialDocuments::read(dir, None, name).unwrap();
    let initial = initial.of_bare_host(dir, name).unwrap();
    let declared = initial.load(&preparation(name));
    declared.unwrap_or_else(|problems| panic!("{problems:?}"))
}

#[test]
fn a_restored_host_keeps_its_document_when_the_first_host_has_left() {
    for master in ["cp-2", "cp-3"] {
        let dir = backup(master, "", &[("cp-2", OWN), ("cp-3", OTHER)]);
        let declared = restored(dir.path(), "cp-2");
        assert_eq!(declared.master(), "10.0.0.11:4550");
        let (name, text, _) = &declared.files[1];
        assert_eq!(name, "nodes/cp-2.yaml");
        let roles = "roles: [bootstrap, registry, etcd, control-plane, worker]";
        let kept = OWN.replace("roles: [etcd, control-plane, worker]", roles);
        assert_eq!(*text, kept, "all but the roles stays");
        let changes = declared.changes(in_directory(dir.path()));
        assert!(
            changes.starts_with("/etc/halite/cluster.yaml changes") == (master == "cp-3"),
            "{changes}"
        );
        assert!(
            changes.contains("/etc/halite/nodes/cp-2.yaml changes")
                && changes.contains("-roles: [etcd, control-plane, worker]")
                && changes.contains(&format!("+{roles}"))
                && !changes.contains("-labels"),
            "{changes}"
        );
        // Once written, the document declares the first host.
        declared.write(dir.path()).unwrap();
        let again = load(dir.path(), None, "cp-2").unwrap();
        assert_eq!(again.changes(in_directory(dir.path())), "");
    }
}

#[test]
fn a_restored_host_without_a_document_gets_one() {
    let dir = backup("cp-3", "", &[("cp-3", OTHER)]);
    let declared = restored(dir.path(), "cp-2");
    let (name, text, _) = &declared.files[1];
    let roles = "roles: [bootstrap, registry, etcd, control-plane]";
    assert!(
        name == "nodes/cp-2.yaml" && text.contains(roles) && text.contains("10.0.0.11"),
        "{text}"
    );
}

#[test]
fn a_restored_control_plane_founds_the_etcd_that_was_on_other_hosts() {
    let own = OWN
        .replace("[etcd, control-plane, worker]", "[control-plane]")
        .replace("  vrrpPriority: 253\n", "  joined: true\n");
    let other = OTHER.replace("etcd, control-plane", "etcd");
    let etcd = "etcd: {placement: dedicated, mode: host-service}\n";
    let dir = backup("cp-2", etcd, &[("cp-2", &own), ("cp-3", &other)]);
    let declared = restored(dir.path(), "cp-2");
    let node = declared.declaration.nodes.get("cp-2").unwrap();
    assert!(node.founds_etcd());
    let (_, text, _) = &declared.files[1];
    assert!(
        text.contains("roles: [bootstrap, registry, etcd, control-plane]")
            && text.contains("labels:")
            && !text.contains("joined"),
        "{text}"
    );
}

#[test]
fn a_restored_first_host_has_the_master_wherever_it_was() {
    let first = OWN.replace("roles: [", "roles: [bootstrap, registry, ");
    let standbys = "master: {standbys: [cp-3]}\n";
    for master in ["cp-2", "cp-3"] {
        let dir = backup(master, standbys, &[("cp-2", &first), ("cp-3", OTHER)]);
        let declared = restored(dir.path(), "cp-2");
        let (_, cluster, _) = &declared.files[0];
        assert!(
            cluster.contains("  master: \"cp-2\"") || master == "cp-2",
            "{cluster}"
        );
        assert!(!cluster.contains("master: cp-3"), "{cluster}");
        assert_eq!(
            declared.files[1].1, first,
            "the node document has nothing new"
        );
        let view = declared.view(&Pki::default(), "cp-2").unwrap();
        assert!(view.to_string().contains("\"master\":true"), "{view}");
        let changes = declared.changes(in_directory(dir.path()));
        assert_eq!(
            changes.contains("+  master: \"cp-2\""),
            master == "cp-3",
            "{changes}"
        );
    }
}

/// The host of a running cluster is not being restored: its member of etcd stays unchanged.
#[test]
fn a_host_that_lives_keeps_its_document_too() {
    let member = "  etcd:\n    member: cp-2\n    initialCluster: \"cp-1=https://10.0.0.10:2380,cp-2=https://10.0.0.11:2380\"\n";
    let own = format!("{OWN}{member}");
    let dir = backup("cp-2", "", &[("cp-2", &own)]);
    let declared = load(dir.path(), None, "cp-2").unwrap();
    let (_, text, _) = &declared.files[1];
    assert!(
        text.contains(member) && text.contains("rack: \"2\""),
        "{text}"
    );
}

/// The first host has left, or is a standby now.
#[test]
fn a_host_to_which_the_master_has_moved_is_repaired_as_it_is() {
    let first = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: cp-1}\nroles: [bootstrap, registry, etcd, control-plane]\n\
                 resolved:\n  controlPlane: 10.0.0.10\n  workloadPlane: 10.0.0.10\n";
    for others in [&[("cp-3", OTHER)][..], &[("cp-1", first)]] {
        let nodes: Vec<(&str, &str)> = others.iter().copied().chain([("cp-2", OWN)]).collect();
        let dir = backup("cp-2", "", &nodes);
        let config = dir.path().join("mine.yaml");
        std::fs::write(&config, CLUSTER).unwrap();
        for config in [None, Some(config.as_path())] {
            let declared = load(dir.path(), config, "cp-2").unwrap();
            let changes = declared.changes(in_directory(dir.path()));
            assert!(config.is_some() || changes.is_empty(), "{changes}");
            assert_eq!(declared.files[1].1, OWN);
            assert_eq!(declared.master(), "10.0.0.11:4550");
            assert!(!declared.is_first("cp-2"));
        }
    }
    let dir = backup("cp-2", "", &[("cp-1", first), ("cp-2", OWN)]);
    let there = Preparation {
        grains: serde_json::json!({"ip4_interfaces": {"eth0": ["10.0.0.10"]}}),
        ..preparation("cp-1")
    };
    let documents = InitialDocuments::read(dir.path(), None, "cp-1").unwrap();
    let problems = documents.load(&there).err().unwrap();
    assert!(
        problems[0]
            .message
            .contains("master's host of this cluster is `cp-2`, not `cp-1`"),
        "{problems:?}"
    );
}

#[test]
fn roles_that_cannot_be_changed_are_a_refusal() {
    let braces = "{apiVersion: halite/v1, kind: Node, metadata: {name: cp-2}, roles: [worker]}\n";
    let dir = backup("cp-2", "", &[("cp-2", braces)]);
    let error = InitialDocuments::read(dir.path(), None, "cp-2")
        .and_then(|initial| initial.of_bare_host(dir.path(), "cp-2"))
        .err()
        .unwrap();
    let text = format!("{error:#}");
    assert!(
        text.contains("cannot make cp-2 the first host of the cluster")
            && text.contains("write one key per line"),
        "{text}"
    );
    // A role that does not exist is reported with all other problems.
    let dir = backup("cp-2", "", &[("cp-2", &OWN.replace("worker", "wroker"))]);
    let problems = load(dir.path(), None, "cp-2").err().unwrap();
    assert!(
        problems
            .iter()
            .any(|problem| problem.message.contains("wroker")),
        "{problems:?}"
    );
}

#[test]
fn a_repair_uses_the_encrypted_values_of_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let (config, etc) = (dir.path().join("mine.yaml"), dir.path().join("etc"));
    std::fs::write(&config, CLUSTER).unwrap();
    load(&etc, Some(&config), "a").unwrap().write(&etc).unwrap();
    let document = etc.join("cluster.yaml");
    let text = std::fs::read_to_string(&document).unwrap();
    std::fs::write(&document, text + "secrets: {smtp: {nodes: [a]}}\n").unwrap();
    let file = SecretFile::new(&etc, &dir.path().join("state"));
    let read = || InitialDocuments::read(&etc, None, "a").unwrap();
    assert!(!read().problems().is_empty(), "it has no value yet");
    let recovery = Identity::generate().unwrap();
    let first = load(&dir.path().join("none"), Some(&config), "a").unwrap();
    file.write("smtp: canary\n", &first.declaration).unwrap();
    let mut initial = read();
    assert!(initial.problems().is_empty());
    initial.open_secrets(&file, &[]).unwrap();
    let declared = initial.load(&preparation("a")).unwrap();
    let value = declared.own_secret("a", "secrets.smtp");
    assert_eq!(value.as_deref(), Some("canary"));
    std::fs::remove_file(file.identity_path()).unwrap();
    for keys in [vec![], vec![recovery]] {
        let error = read().open_secrets(&file, &keys).unwrap_err().to_string();
        assert!(error.contains("cannot decrypt"), "{error}");
    }
}
