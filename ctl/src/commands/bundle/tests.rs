//! The bundles of a site, with real bundles in a temporary directory.

mod of_hosts;

use std::fs;

use halite_api::{BundleList, KeyState, NodeStatus};
use halite_bundle::{BundleStore, pack};
use halite_seal::keys::{PublicKey, SecretKey, generate};
use halite_testkit::{layout, put, version};
use serde_json::json;

use super::add::{add, previewed};
use super::hosts::{Hosts, from_nodes};
use super::list::{document, overview};
use super::remove::remove_unused;
use super::switch::{Checked, record, switch};
use crate::FAILED;
use crate::cli::{Switch, TrustArgs};
use crate::commands::node_list::tests::node;
use crate::output::{Format, Paint, Screen};
use crate::site::{Site, VerifiedBundle};

const CLUSTER: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: prod}\n\
    networks: {controlPlane: {cidrs: [10.0.0.0/24]}}\nkubernetes: {version: \"1.36\"} # mine\n\
    # Chosen by Halite from the bundle; a repair keeps it.\nresolved:\n  kubernetes: v1.36.3\n  bundle: \"0.1.0\"\n";
const NODE: &str = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: a}\n\
    roles: [bootstrap, registry, etcd, control-plane]\naddress: 10.0.0.11\n";

/// An enrolled host with these bundles.
fn host(name: &str, bundle: Option<&str>, bundles: Option<&[&str]>) -> NodeStatus {
    NodeStatus {
        key: Some(KeyState::Accepted),
        connected: true,
        bundle: bundle.map(version),
        bundles: bundles.map(|all| all.iter().map(|one| version(one)).collect()),
        ..node(name)
    }
}

struct Here {
    made: halite_testkit::Site,
    site: Site,
}

impl Here {
    fn new() -> Self {
        let made = halite_testkit::Site::new();
        generate(&made.path("builder.key"), None, None).unwrap();
        let site = Site {
            config: made.path("etc"),
            bundles: BundleStore::new(made.path("held")),
        };
        put(&site.document(), CLUSTER.as_bytes());
        put(&site.config.join("nodes/a.yaml"), NODE.as_bytes());
        let mut here = Self { made, site };
        here.build("0.1.0", "2026-01-01T00:00:00Z");
        assert_eq!(here.add("0.1.0.iso").unwrap(), 0);
        here
    }

    /// Builds a bundle of the current recipe, as a directory and as an ISO.
    fn build(&mut self, version: &str, built: &str) {
        self.made.set("version", version.into());
        self.made.record(built);
        self.made.build(version).unwrap();
        let key = SecretKey::load(&self.made.path("builder.key"), &mut |_| unreachable!()).unwrap();
        let iso = self.made.path(&format!("{version}.iso"));
        pack(&self.made.path(version), &iso, &[key], &mut |_| ()).unwrap();
    }

    fn trust(&self) -> TrustArgs {
        TrustArgs {
            trust: Some(self.made.path("builder.pub")),
            allow_unsigned: false,
        }
    }

    fn add(&self, name: &str) -> anyhow::Result<u8> {
        self.try_add(name, false)
    }

    fn try_add(&self, name: &str, test: bool) -> anyhow::Result<u8> {
        add(
            &self.site,
            &self.made.path(name),
            &self.trust(),
            test,
            &mut Screen::new(Format::Json),
        )
    }

    /// Returns whether the preview of an addition shows a change.
    fn would_change(&self, name: &str) -> Option<bool> {
        let (path, mut screen) = (self.made.path(name), Screen::new(Format::Json));
        let checked = VerifiedBundle::check(&self.site, &path, &self.trust(), &mut screen);
        let bundle = checked.unwrap().unwrap();
        let (_, document) = previewed(&self.site, &bundle, &mut screen).unwrap();
        document.would_change
    }

    fn switch(&self, version: &str, allow_downgrade: bool) -> anyhow::Result<u8> {
        let args = Switch {
            version: self::version(version),
            allow_downgrade,
            test: false,
        };
        switch(&self.site, &args, &mut Screen::new(Format::Json))
    }

    fn remove(&self, version: &str) -> anyhow::Result<u8> {
        remove_unused(
            &self.site,
            &self::version(version),
            Ok(Hosts::default()),
            &mut Screen::new(Format::Json),
        )
    }

    fn document(&self) -> String {
        fs::read_to_string(self.site.document()).unwrap()
    }

    /// The reasons against the use of a bundle.
    fn reasons(&self, version: &str) -> String {
        let args = Switch {
            version: self::version(version),
            allow_downgrade: false,
            test: false,
        };
        let mut screen = Screen::new(Format::Json);
        let checked = Checked::new(&self.site, &args, &mut screen).unwrap();
        checked.problems.join("\n")
    }
}

#[test]
fn the_cluster_changes_to_a_newer_bundle_and_the_old_one_goes() {
    let mut here = Here::new();
    here.build("0.2.0", "2026-02-01T00:00:00Z");
    assert_eq!(here.try_add("0.2.0.iso", true).unwrap(), 0);
    assert_eq!(here.would_change("0.2.0.iso"), Some(true));
    assert_eq!(
        here.site.bundles.list().unwrap().len(),
        1,
        "a test adds nothing"
    );
    assert_eq!(here.add("0.2.0.iso").unwrap(), 0);
    assert_eq!(here.would_change("0.2.0.iso"), Some(false));
    let program = here.site.bundles.path(&version("0.2.0")).join("bin/ctl");
    put(&program, b"damaged");
    assert_eq!(here.would_change("0.2.0.iso"), Some(true), "a repair");
    assert_eq!(here.add("0.2.0.iso").unwrap(), 0);
    assert!(
        here.site.config.join("trust/builder.pub").exists(),
        "the key is kept"
    );
    assert_eq!(here.document(), CLUSTER, "adding changes nothing");
    let error = here.remove("0.1.0").unwrap_err().to_string();
    assert!(
        error.contains("in use") && error.contains("ctl bundle use"),
        "{error}"
    );

    let test = Switch {
        version: version("0.2.0"),
        allow_downgrade: false,
        test: true,
    };
    assert_eq!(
        switch(&here.site, &test, &mut Screen::new(Format::Json)).unwrap(),
        0
    );
    assert_eq!(here.document(), CLUSTER, "a test changes nothing");
    assert_eq!(here.switch("0.2.0", false).unwrap(), 0);
    assert_eq!(
        here.document(),
        CLUSTER.replace("0.1.0", "0.2.0"),
        "nothing but the record changes"
    );
    assert_eq!(
        here.switch("0.2.0", false).unwrap(),
        0,
        "a repetition changes nothing"
    );
    // A host without a highstate since then would no longer find its content.
    let pending = NodeStatus {
        key: Some(KeyState::Pending),
        ..host("c", None, None)
    };
    let hosts = from_nodes(vec![
        host("a", Some("0.1.0"), Some(&["0.1.0"])),
        host("b", Some("0.2.0"), Some(&["0.2.0"])),
        pending,
    ]);
    let refused = |hosts| {
        remove_unused(
            &here.site,
            &version("0.1.0"),
            hosts,
            &mut Screen::new(Format::Json),
        )
        .unwrap_err()
    };
    let error = refused(Ok(hosts)).to_string();
    assert!(
        error.contains("removed: a. ") && error.contains("ctl highstate"),
        "{error}"
    );
    // A host that has half of another bundle since then, and a host whose bundles are unknown,
    // for example to an earlier master.
    let half = host("b", Some("0.2.0"), Some(&["0.1.0", "0.2.0"]));
    let error = refused(Ok(from_nodes(vec![half]))).to_string();
    assert!(
        error.contains("still use") && error.contains("removed: b. "),
        "{error}"
    );
    let unknown = host("c", Some("0.2.0"), None);
    let error = refused(Ok(from_nodes(vec![unknown]))).to_string();
    assert!(
        error.contains("not known")
            && error.contains("removed: c ")
            && error.contains("key delete"),
        "{error}"
    );
    let error = format!(
        "{:#}",
        refused(Err(anyhow::anyhow!("the master does not answer")))
    );
    assert!(
        error.contains("cannot find out which hosts still use this bundle; --force")
            && error.contains("does not answer"),
        "{error}"
    );
    assert_eq!(here.remove("0.1.0").unwrap(), 0);
    let error = here.remove("0.1.0").unwrap_err().to_string();
    assert!(error.contains("there is no bundle 0.1.0"), "{error}");
}

#[test]
fn a_change_by_another_program_is_not_undone() {
    let dir = tempfile::tempdir().unwrap();
    let document = dir.path().join("cluster.yaml");
    fs::write(&document, "a: 2\n").unwrap();
    let error = record(&document, "a: 1\n", "a: 1\nresolved: {}\n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("changed by another program"), "{error}");
    assert_eq!(fs::read_to_string(&document).unwrap(), "a: 2\n");
    record(&document, "a: 2\n", "a: 3\n").unwrap();
    assert_eq!(fs::read_to_string(&document).unwrap(), "a: 3\n");
}

#[test]
fn a_bundle_that_the_cluster_cannot_use_is_refused_with_every_reason() {
    let mut here = Here::new();
    here.made.set("kubernetes", "v1.36.4".into());
    here.made.set("options", json!({"cni.plugin": ["none"]}));
    let images = here.made.dir.path().join("images");
    here.made.rename_images(|component| {
        if !component.starts_with("kube-") {
            return None;
        }
        let reference = format!("registry.k8s.io/{component}:v1.36.4");
        layout(&images.join(component), &reference, component.as_bytes());
        Some(reference)
    });
    here.build("0.0.9", "2025-01-01T00:00:00Z");
    here.add("0.0.9.iso").unwrap();
    put(
        &here.site.bundles.path(&version("0.0.9")).join("bin/ctl"),
        b"damaged",
    );
    let reasons = here.reasons("0.0.9");
    for wanted in [
        "bin/ctl: changed",
        "has Kubernetes v1.36.4, not v1.36.3",
        "`ctl upgrade` goes to one with a newer version",
        "was not made for `cni.plugin: flannel`",
        "was built at 2025-01-01T00:00:00Z, before the one in use (0.1.0",
    ] {
        assert!(reasons.contains(wanted), "{wanted}: {reasons}");
    }
    assert_eq!(here.switch("0.0.9", false).unwrap(), FAILED);
    assert_eq!(here.switch("0.0.9", true).unwrap(), FAILED);
    assert_eq!(here.document(), CLUSTER);
    let error = here.switch("0.9.9", false).unwrap_err().to_string();
    assert!(
        error.contains("there is no bundle 0.9.9") && error.contains("0.0.9, 0.1.0"),
        "{error}"
    );
}

#[test]
fn a_downgrade_needs_the_option() {
    let mut here = Here::new();
    here.build("0.0.9", "2025-01-01T00:00:00Z");
    here.add("0.0.9.iso").unwrap();
    assert_eq!(here.switch("0.0.9", false).unwrap(), FAILED);
    assert_eq!(here.switch("0.0.9", true).unwrap(), 0);
    assert!(here.document().contains("bundle: \"0.0.9\""));

    // The build time of a missing bundle is not known.
    here.build("0.3.0", "2027-01-01T00:00:00Z");
    here.add("0.3.0.iso").unwrap();
    here.site.bundles.remove(&version("0.0.9")).unwrap();
    let reasons = here.reasons("0.3.0");
    assert!(
        reasons.contains("is no longer at") && reasons.contains("--allow-downgrade"),
        "{reasons}"
    );
    assert_eq!(here.switch("0.3.0", true).unwrap(), 0);
}

#[test]
fn a_bundle_is_only_added_where_and_as_it_can_be_used() {
    let mut here = Here::new();
    here.build("0.2.0", "2026-02-01T00:00:00Z");
    let mut bytes = fs::read(here.made.path("0.2.0.iso")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(here.made.path("bad.iso"), &bytes).unwrap();
    assert_eq!(here.add("bad.iso").unwrap(), FAILED);
    let error = format!("{:#}", here.add("0.2.0").unwrap_err());
    assert!(error.contains("it is not signed"), "{error}");
    let image = halite_iso9660::read::IsoImage::open(&here.made.path("0.2.0.iso")).unwrap();
    image
        .extract(&here.made.path("signed"), &mut |_| ())
        .unwrap();
    let error = format!("{:#}", here.add("signed").unwrap_err());
    let signed = here.made.path("signed");
    let top = signed.iter().nth(1).unwrap().display();
    let reason = format!("cannot see files below /{top}");
    assert!(error.contains(&reason), "{error}");
    generate(&here.made.path("stranger.key"), None, None).unwrap();
    let stranger = TrustArgs {
        trust: Some(here.made.path("stranger.pub")),
        allow_unsigned: false,
    };
    let mut screen = Screen::new(Format::Json);
    add(
        &here.site,
        &here.made.path("0.2.0.iso"),
        &stranger,
        false,
        &mut screen,
    )
    .unwrap_err();
    assert!(!here.site.config.join("trust/stranger.pub").exists());
    assert_eq!(
        here.site.bundles.list().unwrap().len(),
        1,
        "nothing was added"
    );

    fs::remove_file(here.site.document()).unwrap();
    let error = here.add("0.2.0.iso").unwrap_err().to_string();
    assert!(
        error.contains("no cluster on this host") && error.contains("ctl bootstrap"),
        "{error}"
    );
}

#[test]
fn no_command_removes_a_bundle_while_another_uses_it() {
    let mut here = Here::new();
    here.build("0.2.0", "2026-02-01T00:00:00Z");
    here.add("0.2.0.iso").unwrap();
    let change = here.site.bundles.change().unwrap();
    for error in [
        here.switch("0.2.0", false).unwrap_err(),
        here.remove("0.2.0").unwrap_err(),
    ] {
        assert!(
            error
                .to_string()
                .contains("another process is adding or removing"),
            "{error}"
        );
    }
    assert_eq!(here.document(), CLUSTER);
    // A check that changes nothing does not wait.
    let test = Switch {
        version: version("0.2.0"),
        allow_downgrade: false,
        test: true,
    };
    assert_eq!(
        switch(&here.site, &test, &mut Screen::new(Format::Json)).unwrap(),
        0
    );
    drop(change);
    assert_eq!(here.switch("0.2.0", false).unwrap(), 0);
}

#[test]
fn a_key_that_the_site_or_the_named_directory_revoked_is_not_trusted() {
    let mut here = Here::new();
    here.build("0.2.0", "2026-02-01T00:00:00Z");
    let id = PublicKey::load(&here.made.path("builder.pub"))
        .unwrap()
        .id();
    let stranger = generate(&here.made.path("given/stranger.key"), None, None).unwrap();
    fs::remove_file(here.made.path("given/stranger.key")).unwrap();
    put(
        &here.made.path("given/builder.pub"),
        &fs::read(here.made.path("builder.pub")).unwrap(),
    );
    put(
        &here.made.path("given/revoked"),
        format!("{} stolen\n", stranger.id()).as_bytes(),
    );
    let given = TrustArgs {
        trust: Some(here.made.path("given")),
        allow_unsigned: false,
    };
    let iso = here.made.path("0.2.0.iso");
    assert_eq!(
        add(
            &here.site,
            &iso,
            &given,
            false,
            &mut Screen::new(Format::Json)
        )
        .unwrap(),
        0
    );
    let trusted = here.site.trusted();
    assert!(
        !trusted.join("stranger.pub").exists(),
        "a revoked key is not kept"
    );
    let revoked = fs::read_to_string(trusted.join("revoked")).unwrap();
    assert_eq!(revoked, format!("{} stolen\n", stranger.id()));

    // The key is named again, by itself, after the site revoked it.
    here.remove("0.2.0").unwrap();
    put(
        &trusted.join("revoked"),
        format!("{id} the builder left\n").as_bytes(),
    );
    let error = format!("{:#}", here.add("0.2.0.iso").unwrap_err());
    assert!(error.contains("is revoked: the builder left"), "{error}");
    assert_eq!(
        here.site.bundles.list().unwrap().len(),
        1,
        "nothing was added"
    );
}

#[test]
fn the_list_says_what_is_in_use_and_what_is_gone() {
    let mut here = Here::new();
    here.build("0.2.0", "2026-02-01T00:00:00Z");
    here.add("0.2.0.iso").unwrap();
    let hosts = from_nodes(vec![host("a", Some("0.1.0"), Some(&["0.1.0", "0.2.0"]))]);
    let document = document(&here.site, Some(&hosts)).unwrap();
    let hosts_of = |index: usize| document.bundles[index].hosts.clone().unwrap();
    assert_eq!(hosts_of(0), ["a"]);
    assert_eq!(hosts_of(1), [""; 0]);
    let text = overview(&document, &Paint { colour: false });
    assert!(
        text.contains("0.1.0") && text.contains("v1.36.3") && text.contains("2026-02-01T00:00:00Z"),
        "{text}"
    );
    let in_use = |document: &BundleList| -> Vec<(String, bool)> {
        let rows = document.bundles.iter();
        rows.map(|row| (row.version.to_string(), row.in_use))
            .collect()
    };
    assert_eq!(
        in_use(&document),
        [("0.1.0".to_owned(), true), ("0.2.0".to_owned(), false)]
    );
    // The facts against which documents are checked.
    let used = || {
        crate::commands::config::used(&here.site)
            .unwrap()
            .map(|facts| facts.version)
    };
    assert_eq!(used().as_deref(), Some("0.1.0"));
    here.site.bundles.remove(&version("0.1.0")).unwrap();
    assert_eq!(used(), None);
    let document = super::list::document(&here.site, None).unwrap();
    assert_eq!(
        in_use(&document),
        [("0.2.0".to_owned(), false), ("0.1.0".to_owned(), true)]
    );
    assert!(
        overview(&document, &Paint { colour: false }).contains("✗ "),
        "{document:?}"
    );
}
