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
        assert_eq!(again.changes(&etc), "");
        assert_eq!(again.files, first.files);
    }
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
    // A further host that is declared is not the first one.
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
        .changes(dir.path());
    assert!(changes.contains("+dnsDomain: my.local"), "{changes}");
    std::fs::write(
        &config,
        format!("{CLUSTER}secrets: {{s: {{value: canary, roles: [worker]}}}}\n"),
    )
    .unwrap();
    let changes = load(dir.path(), Some(&config), "a")
        .unwrap()
        .changes(dir.path());
    assert!(
        changes.contains("cluster.yaml changes") && !changes.contains("canary"),
        "{changes}"
    );
}
