//! The restore up to the daemons, with directories instead of a host's and a program instead of
//! `etcdutl`. The lab restores a real snapshot with the real one.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;

use halite_backup::{Directory, EtcdSource, Header, SIGNATURE};
use halite_errors::chain;
use halite_pillar::load::Text;
use halite_pillar::node::Node;
use halite_pillar::role::Role;
use halite_testkit::{BackupCa, empty_etcd_snapshot};

use super::super::{add_existing, documents};
use super::*;
use crate::output::Format;
use crate::preflight::{ExistingCluster, NodeFacts};

mod known_origin;

const CLUSTER: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: prod}\nnetworks:\n  controlPlane: {cidrs: [10.0.0.0/24]}\nkubernetes: {version: \"1.36\"}\n";

fn node(name: &str, address: &str, roles: &str, etcd: &str) -> String {
    format!(
        "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [{roles}]\naddress: {address}\n\
         resolved:\n  controlPlane: {address}\n  workloadPlane: {address}\n{etcd}"
    )
}

/// A backup and a bare host, in one directory.
struct Scene {
    dir: tempfile::TempDir,
    backup: PathBuf,
    key: Identity,
    ca: BackupCa,
}

/// The time of the restores.
fn time() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = Identity::generate().unwrap();
        let ca = BackupCa::new();
        let backup = Self::backup(dir.path(), &key, Some(&ca), 0);
        Self {
            dir,
            backup,
            key,
            ca,
        }
    }

    fn backup(dir: &Path, key: &Identity, ca: Option<&BackupCa>, second: i64) -> PathBuf {
        let header = Header {
            cluster: "prod".to_owned(),
            cluster_id: ca.map_or_else(|| "a".repeat(64), BackupCa::hash),
            created: Timestamp::from_second(1_800_000_000 + second).unwrap(),
            epoch: 3,
            halite: "0.1.0".to_owned(),
            kubernetes: "v1.36.3".to_owned(),
            bundle: Some("1".to_owned()),
            etcd: EtcdSource {
                member: "cp-2".to_owned(),
                version: "3.6.6".to_owned(),
                cluster: "cafe".to_owned(),
                keys: None,
            },
            recipients: vec![key.recipient()],
        };
        let etcd = "  etcd:\n    member: cp-2\n    initialCluster: \"cp-1=https://10.0.0.1:2380,cp-2=https://127.0.0.1:2380\"\n";
        let planes = "registry, etcd, control-plane";
        let facts = serde_json::to_value(&header).unwrap();
        let mut pending = Directory::new(&dir.join("backups")).begin(header).unwrap();
        let mut files: Vec<(&str, u32, Vec<u8>)> = vec![
            ("config/cluster.yaml", 0o600, CLUSTER.into()),
            ("config/custom/app/init.sls", 0o644, "own: {}\n".into()),
            (
                "config/nodes/cp-1.yaml",
                0o644,
                node("cp-1", "10.0.0.1", &format!("bootstrap, {planes}"), "").into(),
            ),
            (
                "config/nodes/cp-2.yaml",
                0o644,
                node("cp-2", "10.0.0.2", planes, etcd).into(),
            ),
            ("state/ca/halite.key", 0o600, "the key".into()),
            ("state/store.db", 0o600, "the store".into()),
            (SNAPSHOT, 0o600, empty_etcd_snapshot()),
        ];
        if let Some(ca) = ca {
            let signature = ca.sign(&BackupCa::statement(&facts, &files));
            files.push((SIGNATURE, 0o600, signature.to_string().into()));
        }
        for (path, mode, content) in files {
            let size = content.len() as u64;
            let added = pending
                .writer
                .file(path, mode, size, &mut content.as_slice());
            added.unwrap();
        }
        pending.finish().unwrap().path().to_owned()
    }

    fn places(&self) -> Places {
        let at = |name: &str| self.dir.path().join(name);
        Places {
            config: at("etc"),
            state: at("master"),
            etcd: at("etcd"),
            record: at("etcd-member.json"),
            work: at("restore"),
        }
    }

    fn open(&self) -> anyhow::Result<Restore> {
        self.open_from(Origin {
            ca_hash: Some(self.ca.hash()),
            ..Origin::default()
        })
    }

    fn open_from(&self, origin: Origin) -> anyhow::Result<Restore> {
        let keys = Identity::parse_file(&self.key.to_text()).unwrap();
        let file = BackupFile::open(&self.backup)?;
        Restore::of_backup(file, keys, origin, self.places())
    }

    /// A program that records its arguments and makes a member, or fails halfway.
    fn restorer(&self, fails: bool) -> Restorer {
        let program = self.dir.path().join(if fails { "fails" } else { "works" });
        let end = if fails {
            "echo no room >&2; exit 1"
        } else {
            "echo log >$6/member/wal/0-0.wal"
        };
        let called = self.dir.path().join("called");
        let text = format!(
            "#!/bin/sh\nset -- x \"$@\"\ntest \"$5\" = --data-dir || exit 9\ntest -e \"$6\" && exit 8\n\
             echo \"$@\" >{}\nmkdir -p $6/member/wal\n{end}\n",
            called.display()
        );
        halite_testkit::process::make_program(&program, &text);
        Restorer::of_program(&program)
    }

    fn fill(&self, restore: &mut Restore, fails: bool) -> anyhow::Result<()> {
        let member = RestoredMember {
            name: "cp-1".to_owned(),
            address: Ipv4Addr::new(10, 0, 0, 1),
        };
        restore.fill(&member, time(), |_| Ok(self.restorer(fails)))
    }

    /// The files of the host, except the restore's own.
    fn host(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for place in ["etc", "master", "etcd"] {
            let root = self.dir.path().join(place);
            for name in files::walk(&root).unwrap_or_default() {
                let text = fs::read_to_string(root.join(&name)).unwrap();
                found.push((format!("{place}/{name}"), text));
            }
        }
        found
    }
}

fn refused<T>(result: anyhow::Result<T>) -> String {
    format!("{:#}", result.err().expect("it is not refused"))
}

#[test]
fn a_restored_host_has_everything_but_the_document_that_is_written_last() {
    let scene = Scene::new();
    let mut restore = scene.open().unwrap();
    assert!(restore.is_bare());
    assert_eq!(scene.host(), [], "opening changes nothing");
    scene.fill(&mut restore, false).unwrap();
    let host = scene.host();
    let names: Vec<&str> = host.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "etc/custom/app/init.sls",
            "etc/nodes/cp-1.yaml",
            "etc/nodes/cp-2.yaml",
            "master/acts-alone",
            "master/ca/halite.key",
            "master/store.db",
            "master/store.db.epoch",
            "etcd/member/wal/0-0.wal",
        ]
    );
    let record = fs::read_to_string(scene.dir.path().join("etcd-member.json")).unwrap();
    assert_eq!(
        record,
        "{\"member\":\"cp-1\",\"initialCluster\":\"cp-1=https://10.0.0.1:2380\"}\n"
    );
    // The backup has the epoch 3; minions may have seen any later one.
    let epoch = fs::read_to_string(scene.dir.path().join("master/store.db.epoch"));
    assert_eq!(epoch.unwrap(), "1800000000 0\n");
    let mode = |path: &str| {
        let found = fs::metadata(scene.dir.path().join(path)).unwrap();
        found.permissions().mode() & 0o777
    };
    assert_eq!(
        (mode("master"), mode("master/ca"), mode("etcd")),
        (0o700, 0o700, 0o700)
    );
    assert_eq!(
        (mode("master/store.db"), mode("etc/nodes/cp-1.yaml")),
        (0o600, 0o644)
    );
    // The record of the other member is gone, so that its host is added again.
    let text = fs::read_to_string(scene.dir.path().join("etc/nodes/cp-2.yaml")).unwrap();
    assert!(
        text.contains("controlPlane: 10.0.0.2") && !text.contains("initialCluster"),
        "{text}"
    );
    // Changes are relative to the backup, not to the documents prepared from it.
    let backed_up = scene.open().unwrap().document("nodes/cp-2.yaml").unwrap();
    assert!(backed_up.contains("initialCluster"), "{backed_up}");
    let called = fs::read_to_string(scene.dir.path().join("called")).unwrap();
    let token = BackupFile::open(&scene.backup).unwrap().digest().to_owned();
    assert!(
        called.contains(&format!(
            "--name cp-1 --initial-cluster cp-1=https://10.0.0.1:2380 --initial-advertise-peer-urls https://10.0.0.1:2380 \
             --initial-cluster-token {token} --bump-revision 1000000000 --mark-compacted"
        )),
        "{called}"
    );
    assert!(
        !scene.dir.path().join("restore/etcd.snapshot").exists(),
        "a copy of all Secrets stays"
    );
}

/// The preflight refuses a host with a Kubernetes, but the data of an interrupted restore does not
/// count as one.
#[test]
fn data_of_an_interrupted_restore_is_not_a_foreign_kubernetes() {
    let scene = Scene::new();
    let member = scene.places().member().display().to_string();
    let found = || vec!["/etc/kubernetes/admin.conf".to_owned(), member.clone()];
    let bare = scene.open().unwrap();
    assert_eq!(bare.foreign(found()), found());
    scene.fill(&mut scene.open().unwrap(), false).unwrap();
    let again = scene.open().unwrap();
    assert_eq!(again.foreign(found()), ["/etc/kubernetes/admin.conf"]);
}

/// With or without a damaged bundle, the documents of the backup do not count as a cluster on the
/// host, nor the data of the interrupted restore as a Kubernetes.
#[test]
fn the_host_of_an_interrupted_restore_has_no_cluster_yet() {
    let scene = Scene::new();
    scene.fill(&mut scene.open().unwrap(), false).unwrap();
    let again = scene.open().unwrap();
    let initial = documents(None, "cp-1", Some(&again)).unwrap();
    let member = scene.places().member().display().to_string();
    let mut facts = NodeFacts {
        kubernetes: vec!["/etc/kubernetes/admin.conf".to_owned(), member],
        ..NodeFacts::default()
    };
    add_existing(&mut facts, &initial, Some(&again));
    assert_eq!(facts.existing, ExistingCluster::None);
    assert_eq!(facts.kubernetes, ["/etc/kubernetes/admin.conf"]);
}

/// After any interruption before the last mark, the next run starts over with the same result.
#[test]
fn an_interrupted_restore_is_repeated() {
    let whole = {
        let scene = Scene::new();
        scene.fill(&mut scene.open().unwrap(), false).unwrap();
        scene.host()
    };
    type Damage = fn(&Scene);
    let moments: [(&str, Damage); 6] = [
        ("after the mark", |scene| {
            scene
                .places()
                .begin(BackupFile::open(&scene.backup).unwrap().digest())
                .unwrap()
        }),
        ("in etcdutl", |scene| {
            let error = refused(scene.fill(&mut scene.open().unwrap(), true));
            assert!(
                error.contains("cannot restore etcd's snapshot: no room"),
                "{error}"
            );
        }),
        ("after etcd", |scene| {
            scene.fill(&mut scene.open().unwrap(), false).unwrap();
            for place in ["etc", "master"] {
                fs::remove_dir_all(scene.dir.path().join(place)).unwrap();
            }
        }),
        ("before the record", |scene| {
            scene.fill(&mut scene.open().unwrap(), false).unwrap();
            for place in ["etc", "master"] {
                fs::remove_dir_all(scene.dir.path().join(place)).unwrap();
            }
            fs::remove_file(scene.dir.path().join("etcd-member.json")).unwrap();
        }),
        ("in a file of the master", |scene| {
            scene.fill(&mut scene.open().unwrap(), false).unwrap();
            fs::rename(
                scene.dir.path().join("master/store.db"),
                scene.dir.path().join("master/.store.db.new"),
            )
            .unwrap();
        }),
        ("before the document", |scene| {
            scene.fill(&mut scene.open().unwrap(), false).unwrap();
        }),
    ];
    for (moment, interrupted) in moments {
        let scene = Scene::new();
        interrupted(&scene);
        let mut restore = scene
            .open()
            .unwrap_or_else(|error| panic!("{moment}: {error:#}"));
        assert!(restore.is_bare(), "{moment}");
        scene.fill(&mut restore, false).unwrap();
        assert_eq!(scene.host(), whole, "{moment}");
        assert!(scene.places().record.exists(), "{moment}");
    }
}

#[test]
fn after_the_last_mark_the_hosts_own_state_counts() {
    let scene = Scene::new();
    let mut restore = scene.open().unwrap();
    scene.fill(&mut restore, false).unwrap();
    restore.placed().unwrap();
    fs::write(scene.dir.path().join("master/store.db"), "newer").unwrap();
    // The key is no longer needed, and nothing is restored again.
    let mut again = Restore::of_backup(
        BackupFile::open(&scene.backup).unwrap(),
        Vec::new(),
        Origin::default(),
        scene.places(),
    )
    .unwrap();
    assert!(!again.is_bare());
    assert_eq!(again.config(), scene.dir.path().join("etc"));
    again.placed().unwrap();
    assert_eq!(
        fs::read_to_string(scene.dir.path().join("master/store.db")).unwrap(),
        "newer"
    );
    again.finish().unwrap();
    let error = refused(scene.open());
    assert!(error.contains("this host has a cluster"), "{error}");
}

#[test]
fn a_host_with_a_cluster_is_refused() {
    for trace in [
        "etc/cluster.yaml",
        "master/store.db",
        "etcd/member/wal/0-0.wal",
    ] {
        let scene = Scene::new();
        let path = scene.dir.path().join(trace);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "there").unwrap();
        let error = refused(scene.open());
        assert!(
            error.contains("this host has a cluster"),
            "{trace}: {error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "there");
    }
}

#[test]
fn another_backup_key_or_byte_is_refused() {
    let mut scene = Scene::new();
    let other = Identity::generate().unwrap();
    let open = |keys| {
        Restore::of_backup(
            BackupFile::open(&scene.backup).unwrap(),
            keys,
            Origin::default(),
            scene.places(),
        )
    };
    let error = refused(open(vec![other]));
    assert!(error.contains("the key does not fit"), "{error}");
    let error = refused(open(Vec::new()));
    let recipient = scene.key.recipient().to_string();
    assert!(
        error.contains(&recipient) && error.contains("--key"),
        "{error}"
    );

    scene
        .places()
        .begin(BackupFile::open(&scene.backup).unwrap().digest())
        .unwrap();
    scene.backup = Scene::backup(scene.dir.path(), &scene.key, Some(&scene.ca), 1);
    let error = refused(scene.open());
    assert!(
        error.contains("a restore of another backup was started"),
        "{error}"
    );

    let mut bytes = fs::read(&scene.backup).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&scene.backup, bytes).unwrap();
    let error = chain(
        &BackupFile::open(&scene.backup)
            .unwrap()
            .check()
            .unwrap_err(),
    );
    assert!(error.contains("its digest differs"), "{error}");
}

#[test]
fn a_cluster_that_lives_elsewhere_is_not_restored_and_each_part_is_named() {
    refuse(&[]).unwrap();
    let node = |name: &str, last: u8| {
        Node::new(name, Some([10, 0, 0, last].into()), &[Role::ControlPlane])
    };
    let parts = living::possible(&[&node("cp-2", 2), &node("cp-3", 3)]);
    let text = refused(refuse(&parts));
    assert!(
        text.starts_with("cannot restore the cluster here: "),
        "{text}"
    );
    for part in [
        "the API server on cp-2 answers at 10.0.0.2:6443",
        "the master or standby on cp-3 answers at 10.0.0.3:4550",
        "switch those hosts off",
        "Nothing was changed.",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn the_key_of_the_backup_encrypts_the_secrets_to_the_new_host() {
    let scene = Scene::new();
    let mut restore = scene.open().unwrap();
    scene.fill(&mut restore, false).unwrap();
    let places = scene.places();
    let screen = &mut Screen::new(Format::Json);
    restore.recover_secrets(screen);
    // The file of the lost host, whose key is gone.
    let lost = SecretFile::new(&places.config, &scene.dir.path().join("lost"));
    let cluster =
        CLUSTER.to_owned() + &format!("backup: {{recipients: [{}]}}\n", scene.key.recipient());
    let text = |file: &str, text: String| Text {
        file: file.to_owned(),
        text,
    };
    let texts = Texts {
        cluster: text("cluster.yaml", cluster),
        nodes: vec![text(
            "nodes/cp-1.yaml",
            node(
                "cp-1",
                "10.0.0.1",
                "bootstrap, registry, etcd, control-plane",
                "",
            ),
        )],
        ..Texts::default()
    };
    let declaration = load(&texts, &Context::default()).unwrap();
    lost.write("smtp: canary\n", &declaration).unwrap();
    let file = SecretFile::new(&places.config, &places.state);
    assert!(file.read().is_err());
    restore.recover_secrets(screen);
    assert_eq!(file.read().unwrap().unwrap().reveal(), "smtp: canary\n");
    // Another run finds nothing to do.
    let before = fs::read(file.path()).unwrap();
    restore.recover_secrets(screen);
    assert_eq!(fs::read(file.path()).unwrap(), before);
}
