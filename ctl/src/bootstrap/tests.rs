use std::collections::BTreeSet;

use halite_states::tree::DirTree;
use serde_json::json;

use super::declaration::tests::{CLUSTER, preparation};
use super::local_states::not_compiled;
use super::*;
use crate::compile::{CompileInput, report};

/// Compiles the shipped tree for a bare host.
fn compile(sls: &[&str]) -> halite_states::compile::Compiled {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("cluster.yaml");
    let document = format!("{CLUSTER}apiServer: {{vip: 10.0.0.100}}\n");
    std::fs::write(&config, document).unwrap();
    let mut preparation = preparation("bootstrap-1");
    for file in [
        "bin/ctl",
        "bin/halite-master",
        "bin/halite-minion",
        "apt/halite.gpg",
        "nginx/registry.conf",
    ] {
        let entry = serde_json::from_value(json!({"sha256": "0".repeat(64), "size": 1})).unwrap();
        preparation.manifest.files.insert(file.to_owned(), entry);
    }
    for package in [
        "kubelet",
        "kubeadm",
        "kubectl",
        "containerd",
        "kubernetes-cni",
    ] {
        preparation
            .manifest
            .packages
            .insert(package.to_owned(), "1-1".to_owned());
    }
    let os = [
        ("os", "Debian"),
        ("os_family", "Debian"),
        ("oscodename", "bookworm"),
    ];
    let os = os.map(|(grain, value)| (grain.to_owned(), json!(value)));
    preparation.grains.as_object_mut().unwrap().extend(os);
    let declared = InitialDocuments::read(&dir.path().join("etc"), Some(&config), "bootstrap-1")
        .unwrap()
        .load(&preparation);
    let declared = declared.unwrap_or_else(|problems| panic!("{problems:?}"));
    let pillar = declared
        .view(&authority::Authority::default().pki(), "bootstrap-1")
        .unwrap();
    let tree = DirTree::new().root(halite_testkit::state_tree());
    let source = CompileInput {
        tree: &tree,
        minion: "bootstrap-1",
        pillar: &pillar,
        grains: &preparation.grains,
        bundle: Some((&preparation.bundle, &preparation.manifest)),
    };
    let names: Vec<String> = sls.iter().map(ToString::to_string).collect();
    let mut compiled = source
        .compile(&names)
        .unwrap_or_else(|error| panic!("{}", report(&error)));
    authority::Authority::default()
        .fill(&mut compiled.low, &declared, "bootstrap-1")
        .unwrap();
    compiled
}

#[test]
fn the_shipped_tree_compiles_for_a_bare_first_host() {
    let low = compile(&[]).low;
    assert!(low.chunks.len() > 50, "{}", low.chunks.len());
    let sls: BTreeSet<&str> = low.chunks.iter().map(|chunk| chunk.sls.as_str()).collect();
    for expected in [
        "halite.base.etcd",
        "halite.base.control_plane",
        "halite.services.master",
        "halite.services.minion",
        "halite.host.keepalived",
    ] {
        assert!(sls.contains(expected), "{expected} is not in {sls:?}");
    }
    assert!(
        !serde_json::to_string(&low)
            .unwrap()
            .contains(halite_secrets::reference::PREFIX)
    );
}

#[test]
fn the_tree_brings_both_daemons_and_restarts_each() {
    // The minion's previous program restarts it.
    let restarts = [
        (daemon::MASTER, "systemctl restart halite-master.service"),
        (
            daemon::MINION,
            "/usr/local/bin/.halite-minion.previous update",
        ),
    ];
    for (daemon, restart) in restarts {
        let chunks = compile(&[daemon.sls]).low.chunks;
        let asks = chunks
            .iter()
            .find(|chunk| chunk.id == daemon.restart_state)
            .unwrap();
        assert!(asks.name.ends_with(restart), "{}", asks.name);
        assert!(
            chunks
                .iter()
                .any(|chunk| chunk.function() == "file.managed" && chunk.name == daemon.program)
        );
        let restart = compile(&[daemon.restart_sls]).low.chunks;
        let lines: Vec<&str> = restart.iter().map(|chunk| chunk.name.as_str()).collect();
        assert_eq!(
            lines,
            [format!(
                "systemctl daemon-reload && systemctl restart {}",
                daemon.unit
            )]
        );
    }
}

#[test]
fn an_unreadable_document_needs_root() {
    let document = Path::new("/etc/halite/cluster.yaml");
    let opened = |kind: std::io::ErrorKind| unreadable(document, Err(kind.into()));
    let text = opened(std::io::ErrorKind::PermissionDenied).unwrap();
    assert!(
        text.contains("/etc/halite/cluster.yaml") && text.contains("sudo"),
        "{text}"
    );
    assert_eq!(
        opened(std::io::ErrorKind::NotFound),
        None,
        "on a bare host the preflight reports that root is needed"
    );
    assert_eq!(unreadable(document, Ok(())), None);
}

#[test]
fn the_owner_of_states_that_do_not_compile_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (own, bundle) = (
        directory.path().join("own"),
        directory.path().join("bundle"),
    );
    for (directory, file) in [(&own, "mine.sls"), (&bundle, "x.sls")] {
        std::fs::create_dir(directory).unwrap();
        std::fs::write(directory.join(file), "y:\n  file.managde: []\n").unwrap();
    }
    let tree = DirTree::new().mount("custom", &own).root(&bundle);
    let none = json!({});
    let source = CompileInput {
        tree: &tree,
        minion: "a",
        pillar: &none,
        grains: &none,
        bundle: None,
    };
    let message = |sls: &[&str]| {
        let names: Vec<String> = sls.iter().map(ToString::to_string).collect();
        format!(
            "{:#}",
            not_compiled(&tree, source.compile(&names).unwrap_err())
        )
    };
    let text = message(&["custom.mine"]);
    let file = own.join("mine.sls").canonicalize().unwrap();
    assert!(
        text.starts_with("your own states (/etc/halite/custom)"),
        "{text}"
    );
    assert!(
        text.contains(&format!("{}:2:3: ", file.display())),
        "{text}"
    );
    assert!(message(&["x"]).starts_with("the states of the bundle do not compile"));
    assert!(message(&["x", "custom.mine"]).starts_with("states of the bundle and your own"));
}

#[test]
fn states_before_the_master_need_no_authority() {
    for sls in ["halite.services.master", "halite.services.minion"] {
        let low = compile(&[sls]).low;
        assert!(
            !serde_json::to_string(&low)
                .unwrap()
                .contains(halite_pillar::view::UNKNOWN),
            "{sls}"
        );
        assert!(low.chunks.iter().all(|chunk| !chunk.sensitive), "{sls}");
    }
}
