//! The contract of the documents that `ctl` makes itself: `lib/api/contract` has one of each, which
//! the reference shows. `HALITE_UPDATE_GOLDENS=1` writes them again.

use std::path::Path;

use halite_api::{
    AddedBundle, BootstrapPlan, BundleChange, BundleContent, BundleDiff, BundleImage,
    BundlePackage, BundleProblem, BundleSigner, ClusterContext, ContextList, CopiedBackup,
    CopiedBundle, DeclarationCheck, DeclarationProblem, DeltaSide, DisplayedDeclaration, Document,
    ExportedDelta, HighstateResult, HostJournal, ImageList, KeyState, KubernetesNode,
    LastHighstate, LocalOutcome, MadeBackup, MadeRegistryBackup, NamedSecret, NewSigningKey,
    NodeList, NodeStatus, PackedBundle, PlannedStates, PreflightCheck, PreflightVerdict,
    RecipientOfSecrets, RefusedBundle, RemovedBundle, RestoredRegistry, SecretList,
    SecretRecipients, StartedEtcd, SupportArchive, Time, UsedBundle, VerifiedBackup,
    VerifiedBundle, VerifiedRegistryBackup, Versions, from_text, to_value,
};
use halite_names::BundleVersion;
use halite_states::low::StateReturn;
use serde_json::{Map, json};

use crate::commands::printed;
use crate::output::Paint;

const DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// Compares a document with the stored one, and reads that back.
pub fn check<T: Document + PartialEq + std::fmt::Debug>(name: &str, document: &T) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../lib/api/contract")
        .join(format!("{name}.json"));
    let text = format!("{:#}\n", to_value(document));
    if std::env::var_os("HALITE_UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == text,
        "{} is not what ctl answers: run this test with HALITE_UPDATE_GOLDENS=1, then read the difference.\n{text}",
        path.display()
    );
    assert_eq!(&from_text::<T>(&stored).unwrap(), document, "{name}");
}

/// The time in all documents.
pub fn time() -> Time {
    Time::from_millis(1_800_000_000_000)
}

/// A text of a document.
pub fn text(text: &str) -> String {
    text.to_owned()
}

/// The return of a state.
pub fn state() -> StateReturn {
    StateReturn {
        index: 0,
        id: text("motd"),
        name: text("/etc/motd"),
        function: text("file.managed"),
        sls: text("motd"),
        result: Some(true),
        changes: Map::from_iter([(text("mode"), json!({"old": "0600", "new": "0644"}))]),
        comment: text("the mode of /etc/motd was changed"),
        start_time: time().to_string(),
        duration: 0.5,
        run_num: 0,
        ran: true,
        fail_run: true,
    }
}

#[test]
fn hosts_and_their_journals() {
    let worker = NodeStatus {
        name: "worker-1".parse().unwrap(),
        declared: true,
        roles: vec![text("worker")],
        address: Some(text("10.10.1.12")),
        key: Some(KeyState::Accepted),
        connected: true,
        version: Some(text("0.1.0")),
        last_seen: Some(time()),
        kubernetes: Some(KubernetesNode {
            ready: true,
            reasons: Vec::new(),
            kubelet: Some(text("v1.36.3")),
        }),
        highstate: Some(LastHighstate {
            job: "20270115080000000001".parse().unwrap(),
            result: HighstateResult::Succeeded,
            ended: Some(time()),
            error: None,
        }),
        uses: None,
        bundle: "0.1.0".parse().ok(),
        bundles: Some(vec!["0.1.0".parse().unwrap()]),
    };
    check("node", &worker);
    let shown = printed::node(&worker);
    assert!(shown.contains("last highstate  succeeded 2027"), "{shown}");
    let nodes = NodeList {
        nodes: vec![worker],
    };
    check("nodes", &nodes);
    let shown = printed::nodes(&nodes.nodes);
    assert!(shown.contains("worker-1  worker"), "{shown}");
    let journal = HostJournal {
        host: "worker-1".parse().unwrap(),
        unit: Some(text("kubelet")),
        lines: vec![text(
            "2027-01-15T08:00:00+00:00 worker-1 kubelet[812]: Started kubelet",
        )],
    };
    check("journal", &journal);
}

#[test]
fn ctl_and_its_host() {
    let versions = Versions {
        ctl: text("0.1.0"),
        master: Some(text("0.1.0")),
    };
    check("versions", &versions);
    let access = ClusterContext {
        masters: vec![text("10.10.0.11:4550"), text("10.10.0.12:4550")],
        identity: Some(text("/home/alice/prod.pem")),
    };
    let contexts = ContextList {
        file: Some(text("/home/alice/.config/halite/contexts.yaml")),
        current: Some(text("prod")),
        contexts: [(text("prod"), access)].into(),
    };
    check("contexts", &contexts);
    let archive = SupportArchive {
        file: text("halite-support-20270115T080000Z.tar.gz"),
        hosts: 3,
        missing: [(
            text("worker-2"),
            text("it has not enrolled, or is not connected"),
        )]
        .into(),
    };
    check("support-archive", &archive);
    let outcome = LocalOutcome {
        minion: text("worker-1"),
        changed: 1,
        failed: 0,
        states: vec![state()],
    };
    check("local-outcome", &outcome);
    let problem = DeclarationProblem {
        file: text("/etc/halite/cluster.yaml"),
        line: Some(7),
        column: Some(11),
        path: Some(text("networks.pods")),
        message: text("10.0.0.0/40 is not a network"),
        hint: Some(text("write an IPv4 network such as 10.233.0.0/16")),
    };
    let checked = DeclarationCheck {
        valid: false,
        problems: vec![problem],
        warnings: Vec::new(),
    };
    check("declaration-check", &checked);
    let displayed = DisplayedDeclaration {
        cluster: json!({"apiVersion": "halite/v1", "kind": "Cluster", "metadata": {"name": "prod"}}),
        nodes: [(
            text("cp-1"),
            json!({"apiVersion": "halite/v1", "kind": "Node", "metadata": {"name": "cp-1"}}),
        )]
        .into(),
        custom: None,
    };
    check("displayed-declaration", &displayed);
    let plan = BootstrapPlan {
        preflight: vec![PreflightCheck {
            check: text("swap"),
            verdict: PreflightVerdict::Warning,
            message: text("swap is on: /swapfile"),
            hint: text("Halite turns it off"),
        }],
        changed: false,
        plan: Some(PlannedStates {
            states: vec![state()],
            changed: 1,
            failed: 0,
        }),
    };
    check("bootstrap-plan", &plan);
}

#[test]
fn bundles() {
    let (version, before) = ("0.2.0".parse().unwrap(), "0.1.0".parse().unwrap());
    let path = text("/var/lib/halite/bundles/0.2.0");
    let image = BundleImage {
        reference: text("registry.k8s.io/etcd:3.6.8-0"),
        component: Some(text("etcd")),
        size: 24_000_000,
        digest: format!("sha256:{DIGEST}"),
    };
    let images = ImageList {
        bundle: version,
        images: vec![image],
    };
    check("images", &images);
    let ImageList {
        bundle: version,
        images,
    } = images;
    bundle_files(&version, &images);
    let added = AddedBundle {
        version: version.clone(),
        path: path.clone(),
        elsewhere: None,
        changed: true,
        would_change: None,
    };
    check("added-bundle", &added);
    let copied = CopiedBundle {
        version: version.clone(),
        path: path.clone(),
        changed: true,
        fetched: Some(300_000_000),
        reused: Some(500_000_000),
    };
    check("copied-bundle", &copied);
    let removed = RemovedBundle {
        version: version.clone(),
        changed: true,
        path: Some(path),
        elsewhere: Some(text("/media/halite")),
    };
    check("removed-bundle", &removed);
    let change = |name: &str, old: &str, new: &str| BundleChange {
        name: text(name),
        old: Some(text(old)),
        new: Some(text(new)),
    };
    let diff = BundleDiff {
        versions: vec![change("kubernetes", "v1.36.3", "v1.36.4")],
        components: vec![change("kubelet", "v1.36.3", "v1.36.4")],
        images: Vec::new(),
        packages: Vec::new(),
        charts: Vec::new(),
        states: Vec::new(),
        old_size: 800_000_000,
        new_size: 810_000_000,
        added_size: 310_000_000,
    };
    check("bundle-diff", &diff);
    let used = UsedBundle {
        version,
        before: Some(before),
        changed: true,
        other_halite: false,
        changes: Some(diff),
    };
    check("used-bundle", &used);
    let refused = RefusedBundle {
        problems: vec![text("bin/ctl: its content is damaged")],
        changed: false,
    };
    check("refused-bundle", &refused);
}

/// A bundle in a directory or an image.
fn bundle_files(version: &BundleVersion, images: &[BundleImage]) {
    let content = BundleContent {
        version: version.clone(),
        built: text("2027-01-15T08:00:00Z"),
        kubernetes: text("v1.36.3"),
        components: [(text("etcd"), text("3.6.8"))].into(),
        images: images.to_vec(),
        packages: vec![BundlePackage {
            name: text("containerd"),
            version: text("2.2.1-1"),
            size: 31_000_000,
        }],
        rpms: Vec::new(),
        charts: [(text("ingress"), text("1.0.0"))].into(),
        files: 812,
        size: 800_000_000,
    };
    check("bundle-content", &content);
    let signer = || text("7C0A1F33B2D4E596");
    let side = |version: &BundleVersion| DeltaSide {
        version: version.clone(),
        kubernetes: text("v1.36.3"),
        built: content.built.clone(),
        manifest_sha256: text(DIGEST),
    };
    let verified = VerifiedBundle {
        sound: false,
        version: Some(version.to_string()),
        files: 812,
        size: None,
        problems: vec![BundleProblem {
            message: text(
                "bin/ctl: bytes 0 to 4095 (at 8192 of the image) have changed since sealing",
            ),
            path: Some(text("bin/ctl")),
            offset: Some(8192),
            size: Some(4096),
        }],
        signers: Some(vec![BundleSigner {
            key: signer(),
            name: Some(text("builder")),
        }]),
        ignored: Vec::new(),
        completeness_checked: None,
        delta: None,
    };
    check("verified-bundle", &verified);
    let packed = PackedBundle {
        image: text("halite.iso"),
        size: 801_000_000,
        version: version.clone(),
        signers: vec![signer()],
    };
    check("packed-bundle", &packed);
    let exported = ExportedDelta {
        image: text("delta.iso"),
        size: 310_000_000,
        old: side(&"0.1.0".parse().unwrap()),
        new: side(version),
        signers: vec![signer()],
    };
    check("exported-delta", &exported);
    let key = NewSigningKey {
        key: signer(),
        secret: text("builder.key"),
        public: text("builder.pub"),
        line: text("RWSW5dSyMx8KfFnFbWl0b3JhdGVkIGV4YW1wbGUga2V5IGZvciB0ZXN0cw=="),
    };
    check("new-signing-key", &key);
}

#[test]
fn backups() {
    let made = MadeBackup {
        backup: text("prod-20270115T080000Z.halite-backup"),
        path: text("/srv/backup/prod-20270115T080000Z.halite-backup"),
        cluster: text("prod"),
        ca_hash: text(DIGEST),
        signed: true,
        created: time(),
        size: 42_000_000,
        files: 61,
        member: text("cp-1"),
        encrypted: true,
        removed: vec![text("prod-20270108T080000Z.halite-backup")],
        not_followed_since: None,
        problems: Vec::new(),
    };
    check("made-backup", &made);
    let verified = VerifiedBackup {
        path: made.path.clone(),
        cluster: made.cluster.clone(),
        created: time(),
        size: made.size,
        digest: text(DIGEST),
        files: Some(made.files),
        ca_hash: made.ca_hash.clone(),
        signed: Some(true),
        sound: true,
        started: Some(StartedEtcd {
            made: None,
            keys: 1420,
            revision: 90_817,
            compared: true,
        }),
    };
    check("verified-backup", &verified);
    let copied = CopiedBackup {
        path: text("/media/stick/prod.halite-backup"),
        size: made.size,
        digest: text(DIGEST),
        sound: true,
    };
    check("copied-backup", &copied);
}

#[test]
fn backups_of_the_registry() {
    let made = MadeRegistryBackup {
        backup: text("20270115T080000Z"),
        path: text("/srv/backup/registry/20270115T080000Z"),
        tags: 5,
        blobs: 31,
        size: 120_000_000,
        added_size: 3_000_000,
        removed: vec![text("20270108T080000Z")],
        problem: None,
    };
    check("made-registry-backup", &made);
    let verified = VerifiedRegistryBackup {
        backup: made.backup.clone(),
        path: made.path.clone(),
        blobs: made.blobs,
        size: made.size,
        sound: true,
    };
    check("verified-registry-backup", &verified);
    let restored = RestoredRegistry {
        backup: made.backup.clone(),
        tags: made.tags,
        blobs: made.blobs,
        size: made.size,
        added_size: 9_000_000,
    };
    check("restored-registry", &restored);
}

#[test]
fn secrets_without_their_values() {
    let list = SecretList {
        secrets: vec![NamedSecret {
            name: text("registry-ci"),
            roles: vec![text("worker")],
            nodes: vec![text("master")],
            used_by: vec![text("siteRegistry.users.ci")],
            places: vec![text("/etc/halite/secrets.yaml.age")],
            encrypted: true,
        }],
    };
    check("secrets", &list);
    assert!(printed::secrets(&list).contains("siteRegistry.users.ci"));
    let recipients = SecretRecipients {
        recipients: vec![RecipientOfSecrets {
            host: Some(text("cp-1")),
            recipient: text("age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj"),
        }],
        missing: vec![text("cp-2")],
        outdated: false,
        exists: true,
        problem: None,
    };
    check("secret-recipients", &recipients);
    let shown = printed::secret_recipients(&recipients, &Paint { colour: false });
    assert!(
        shown.contains("cp-2 cannot decrypt the values yet"),
        "{shown}"
    );
}
