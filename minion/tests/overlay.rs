//! The overlay's law: after effects were predicted, it gives the same answers as the host after
//! they were carried out.

use std::collections::BTreeMap;

use halite_minion::host::effect::{
    CertificateRequest, Command, Effect, FirewallChange, FirewallSettings, IpsetSettings, Meta,
    PackageOptions, UnitAction,
};
use halite_minion::host::overlay::{KNOWN_AFTER_APPLY, Overlay};
use halite_minion::host::{FileKind, Group, Host};
use halite_minion_fake::FakeHost;
use halite_minion_fake::disk::Node;
use proptest::prelude::*;

const PATHS: &[&str] = &[
    "/srv/a",
    "/srv/b",
    "/srv/d",
    "/srv/d/x",
    "/srv/d/y",
    "/srv/old",
    "/srv/link",
];
const UNITS: &[&str] = &["a.service", "b.service"];

fn host() -> FakeHost {
    let host = FakeHost::new();
    let mut state = host.state();
    state.put_file("/srv/a", b"first");
    state.put_file("/srv/old/inside", b"kept");
    state.disk.put("/srv/d", Node::directory());
    state.put_unit("a.service", true, false);
    state.put_unit("b.service", false, true);
    state.put_file("/etc/systemd/system/a.service", b"[Unit]");
    state.put_sysctl("net.ipv4.ip_forward", "0");
    state.loadable.insert("overlay".into());
    state.offer("nginx", "1.22", &[], &[]);
    state.packages.insert("old".into(), "1".into());
    state.registry.insert("img:1".into());
    state.swaps.push("/dev/sda2".into());
    drop(state);
    host
}

fn path() -> impl Strategy<Value = String> {
    prop::sample::select(PATHS).prop_map(str::to_owned)
}

fn meta() -> impl Strategy<Value = Meta> {
    let owner = prop::option::of(prop::sample::select(vec![
        "root".to_owned(),
        "web".to_owned(),
    ]));
    let mode = prop::option::of(prop::sample::select(vec![0o600, 0o640, 0o755]));
    (owner, mode).prop_map(|(user, mode)| Meta {
        user,
        group: None,
        mode,
    })
}

fn effect() -> impl Strategy<Value = Effect> {
    let unit = prop::sample::select(UNITS).prop_map(str::to_owned);
    let action = prop::sample::select(vec![
        UnitAction::Start,
        UnitAction::Stop,
        UnitAction::Restart,
        UnitAction::Enable,
        UnitAction::Disable,
        UnitAction::Mask,
        UnitAction::Unmask,
    ]);
    let zone = prop::sample::select(vec!["halite-a".to_owned(), "halite-b".to_owned()]);
    let settings = || FirewallSettings {
        ports: vec!["1/tcp".into()],
        ..FirewallSettings::default()
    };
    let set = || IpsetSettings {
        kind: "hash:ip".into(),
        entries: vec!["10.0.0.1".into()],
        ..IpsetSettings::default()
    };
    let text = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let useradd = Command {
        argv: text(&["useradd", "-r", "-u", "300", "web"]),
        ..Command::default()
    };
    let usermod = Command {
        argv: text(&["usermod", "-s", "/bin/false", "web"]),
        ..Command::default()
    };
    prop_oneof![
        8 => (path(), "[ab]{0,3}", meta()).prop_map(|(path, content, meta)| Effect::Write { path, content: content.into_bytes(), meta }),
        4 => (path(), meta()).prop_map(|(path, meta)| Effect::Mkdir { path, meta }),
        2 => path().prop_map(|target| Effect::Symlink { path: "/srv/link".into(), target }),
        4 => (path(), meta()).prop_map(|(path, meta)| Effect::SetMeta { path, meta }),
        4 => path().prop_map(|path| Effect::Remove { path }),
        3 => (unit, action).prop_map(|(name, action)| Effect::Unit { name, action }),
        1 => Just(Effect::Write { path: "/etc/systemd/system/a.service".into(), content: b"[Service]".to_vec(), meta: Meta::default() }),
        1 => Just(Effect::DaemonReload),
        1 => Just(Effect::Sysctl { key: "net.ipv4.ip_forward".into(), value: "1".into() }),
        1 => Just(Effect::LoadModule { name: "overlay".into() }),
        1 => Just(Effect::Packages { install: BTreeMap::from([("nginx".into(), None)]), remove: vec!["old".into()], options: PackageOptions::default() }),
        1 => Just(Effect::PullImage { reference: "img:1".into() }),
        1 => Just(Effect::SwapOff { device: "/dev/sda2".into() }),
        1 => Just(Effect::Mount { device: "/dev/sdb".into(), path: "/srv/d".into(), fstype: "ext4".into(), options: "ro".into() }),
        1 => Just(Effect::Unmount { path: "/srv/d".into() }),
        1 => Just(Effect::Run(useradd)),
        1 => Just(Effect::Run(usermod)),
        2 => zone.clone().prop_map(move |name| Effect::Firewall(FirewallChange::Zone { name, settings: settings() })),
        1 => zone.clone().prop_map(|name| Effect::Firewall(FirewallChange::RemoveZone { name })),
        2 => zone.clone().prop_map(move |name| Effect::Firewall(FirewallChange::Ipsets { sets: [(name, set())].into() })),
        1 => zone.prop_map(|name| Effect::Firewall(FirewallChange::RemoveIpset { name })),
    ]
}

/// All answers that a module could read about the touched objects.
async fn answers(host: &dyn Host) -> Vec<String> {
    let mut all = Vec::new();
    for path in PATHS
        .iter()
        .chain(&["/srv", "/srv/old/inside", "/srv/link/x"])
    {
        all.push(format!("{path} {:?}", host.stat(path).await));
        all.push(format!("{path} {:?}", host.read(path).await));
        all.push(format!("{path} {:?}", host.list(path).await));
    }
    for unit in UNITS {
        all.push(format!("{unit} {:?}", host.unit(unit).await));
    }
    for zone in ["halite-a", "halite-b"] {
        all.push(format!("{zone} {:?}", host.firewall_zone(zone).await));
        all.push(format!("{zone} {:?}", host.firewall_ipset(zone).await));
    }
    all.push(format!("{:?}", host.firewall_names().await));
    all.push(format!("{:?}", host.packages().await));
    all.push(format!("{:?}", host.sysctl("net.ipv4.ip_forward").await));
    all.push(format!("{:?}", host.kernel_module("overlay").await));
    all.push(format!(
        "{:?} {:?}",
        host.mounts().await,
        host.swaps().await
    ));
    all.push(format!(
        "{:?} {:?}",
        host.user("web").await,
        host.group("web").await
    ));
    all.push(format!("{:?}", host.image("img:1").await));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn predicted_is_what_happens(effects in prop::collection::vec(effect(), 1..14)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (real, below) = (host(), host());
            let before = answers(&below).await;
            let overlay = Overlay::new(&below);
            let mut done = Vec::new();
            for effect in &effects {
                // An effect that fails on a host fails in the run; only a successful one can be
                // predicted.
                if real.perform(effect).await.is_ok() {
                    overlay.predict(effect).await;
                    done.push(effect);
                    for (predicted, happened) in answers(&overlay).await.iter().zip(answers(&real).await) {
                        assert_eq!(*predicted, happened, "after {done:?}");
                    }
                }
            }
            assert_eq!(answers(&below).await, before, "test mode changed the host");
            assert_eq!(below.writes(), 0);
        });
    }
}

#[tokio::test]
async fn what_only_apply_can_tell_says_so() {
    let below = host();
    let overlay = Overlay::new(&below);
    assert!(!overlay.uncertain());
    assert_eq!(
        overlay.unit("kubelet.service").await.unwrap().load,
        "not-found"
    );
    let request = CertificateRequest {
        key_path: "/srv/k".into(),
        cert_path: "/srv/c".into(),
        ..CertificateRequest::default()
    };
    overlay.predict(&Effect::Certificate(request)).await;
    assert_eq!(
        overlay.read("/srv/c").await.unwrap().unwrap(),
        KNOWN_AFTER_APPLY.as_bytes()
    );
    assert_eq!(overlay.stat("/srv/k").await.unwrap().unwrap().mode, 0o600);

    overlay
        .predict(&Effect::RefreshPackages { only: None })
        .await;
    assert_eq!(
        overlay
            .package_candidate("kubelet", false)
            .await
            .unwrap()
            .as_deref(),
        Some(KNOWN_AFTER_APPLY)
    );
    let install = BTreeMap::from([("kubelet".to_owned(), None)]);
    overlay
        .predict(&Effect::Packages {
            install,
            remove: Vec::new(),
            options: PackageOptions::default(),
        })
        .await;
    assert!(overlay.uncertain());
    assert_eq!(
        overlay.packages().await.unwrap()["kubelet"],
        KNOWN_AFTER_APPLY
    );
    let unit = overlay.unit("kubelet.service").await.unwrap();
    assert_eq!(
        (unit.load.as_str(), unit.active.as_str()),
        ("loaded", "inactive")
    );
}

#[tokio::test]
async fn only_what_brings_a_unit_makes_one_likely() {
    let (foreign, own) = ("kubelet.service", "halite-registry.service");
    let pair = |load: &str, file: &str| (load.to_owned(), file.to_owned());
    // A unit's `load` and `file`.
    let load_and_file = async |host: &dyn Host, unit: &str| {
        let state = host.unit(unit).await.unwrap();
        (state.load, state.file)
    };
    let below = host();
    let overlay = Overlay::new(&below);
    let restart = Effect::Unit {
        name: "a.service".into(),
        action: UnitAction::Restart,
    };
    overlay.predict(&restart).await;
    assert!(overlay.uncertain());
    assert_eq!(
        load_and_file(&overlay, foreign).await,
        pair("loaded", "disabled"),
        "only a package would enable it"
    );
    let install = Effect::Packages {
        install: BTreeMap::from([("nginx".to_owned(), None)]),
        remove: Vec::new(),
        options: PackageOptions::default(),
    };
    overlay.predict(&install).await;
    assert_eq!(
        load_and_file(&overlay, foreign).await,
        pair("loaded", "enabled")
    );
    assert_eq!(load_and_file(&overlay, own).await, pair("not-found", ""));
    for (content, file) in [
        (
            "[Service]\n\n[Install]\nWantedBy=multi-user.target\n",
            "disabled",
        ),
        ("[Service]\n", "static"),
    ] {
        let write = Effect::Write {
            path: format!("/etc/systemd/system/{own}"),
            content: content.as_bytes().to_vec(),
            meta: Meta::default(),
        };
        overlay.predict(&write).await;
        assert_eq!(load_and_file(&overlay, own).await, pair("loaded", file));
    }
}

#[tokio::test]
async fn test_mode_waits_for_nothing() {
    let below = host();
    let overlay = Overlay::new(&below);
    let before = overlay.now();
    overlay.sleep(30.0).await;
    assert_eq!(overlay.now() - before, 30);
    assert_eq!(below.now(), before);
}

#[tokio::test]
async fn a_predicted_mount_hides_the_files_under_it() {
    let below = host();
    let overlay = Overlay::new(&below);
    let mount = |fstype: &str| Effect::Mount {
        device: "/dev/vdb1".into(),
        path: "/srv".into(),
        fstype: fstype.into(),
        options: "defaults".into(),
    };
    let unmount = Effect::Unmount {
        path: "/srv".into(),
    };
    overlay.predict(&mount("ext4")).await;
    assert_eq!(overlay.read("/srv/a").await.unwrap(), None);
    assert!(overlay.take_assumed(), "the volume may have the file");
    let write = Effect::Write {
        path: "/srv/a".into(),
        content: b"second".to_vec(),
        meta: Meta::default(),
    };
    overlay.predict(&write).await;
    overlay.take_assumed();
    assert_eq!(overlay.read("/srv/a").await.unwrap().unwrap(), b"second");
    assert!(!overlay.take_assumed());
    overlay.predict(&unmount).await;
    assert_eq!(overlay.read("/srv/a").await.unwrap().unwrap(), b"first");
    overlay.predict(&mount("tmpfs")).await;
    overlay.take_assumed();
    assert_eq!(overlay.read("/srv/a").await.unwrap(), None);
    assert!(!overlay.take_assumed(), "it is empty");

    let volume = BTreeMap::from([("/a".to_owned(), Node::file(b"of the volume"))]);
    below.state().volumes.insert("/dev/vdb1".into(), volume);
    below.perform(&mount("ext4")).await.unwrap();
    assert_eq!(
        below.read("/srv/a").await.unwrap().unwrap(),
        b"of the volume"
    );
    let overlay = Overlay::new(&below);
    overlay.predict(&unmount).await;
    assert_eq!(overlay.read("/srv/a").await.unwrap(), None);
    assert!(overlay.take_assumed(), "the directory may have the file");
    below.perform(&unmount).await.unwrap();
    assert_eq!(below.read("/srv/a").await.unwrap().unwrap(), b"first");
}

#[tokio::test]
async fn a_new_directory_hides_what_was_below_a_removed_one() {
    let below = host();
    let overlay = Overlay::new(&below);
    overlay
        .predict(&Effect::Remove {
            path: "/srv/old".into(),
        })
        .await;
    overlay
        .predict(&Effect::Mkdir {
            path: "/srv/old/".into(),
            meta: Meta::default(),
        })
        .await;
    assert_eq!(
        overlay.stat("/srv/old").await.unwrap().unwrap().kind,
        FileKind::Directory
    );
    assert_eq!(overlay.read("/srv/old/inside").await.unwrap(), None);
    assert!(overlay.list("/srv/old").await.unwrap().is_empty());
}

#[tokio::test]
async fn the_head_of_a_file_is_that_of_its_predicted_content() {
    let below = host();
    let overlay = Overlay::new(&below);
    let write = Effect::Write {
        path: "/srv/b".into(),
        content: b"second".to_vec(),
        meta: Meta::default(),
    };
    overlay.predict(&write).await;
    for (path, bytes, head) in [
        ("/srv/a", 3, Some("fir")),
        ("/srv/b", 3, Some("sec")),
        ("/srv/b", 99, Some("second")),
        ("/srv/none", 3, None),
    ] {
        let found = overlay.head(path, bytes).await.unwrap();
        assert_eq!(found.as_deref(), head.map(str::as_bytes), "{path} {bytes}");
    }
}

#[tokio::test]
async fn homes_and_memberships_are_predicted() {
    let (real, below) = (host(), host());
    let existing = "useradd -m -G adm old".split(' ').map(str::to_owned);
    let existing = Effect::Run(Command {
        argv: existing.collect(),
        ..Command::default()
    });
    for host in [&real, &below] {
        let adm = Group {
            name: "adm".into(),
            gid: 4,
            members: Vec::new(),
        };
        let mut state = host.state();
        state.accounts.groups.insert("adm".into(), Some(adm));
    }
    for host in [&real, &below] {
        host.perform(&existing).await.unwrap();
    }
    let overlay = Overlay::new(&below);
    for line in [
        "groupadd team",
        "useradd -m web",
        "gpasswd -M web,old team",
        "useradd -M -G adm,team ops",
        "usermod -G team old",
        "groupdel team",
        "userdel -r old",
        "userdel web",
    ] {
        let effect = Effect::Run(Command {
            argv: line.split(' ').map(str::to_owned).collect(),
            ..Command::default()
        });
        real.perform(&effect).await.unwrap();
        overlay.predict(&effect).await;
        assert_eq!(
            memberships(&overlay).await,
            memberships(&real).await,
            "after {line}"
        );
    }
    assert!(below.stat("/home/web").await.unwrap().is_none());
}

/// The groups of users, the members of groups, and the homes. Numbers are guesses.
async fn memberships(host: &dyn Host) -> Vec<String> {
    let mut all = Vec::new();
    for name in ["old", "web", "ops", "adm", "team"] {
        let user = host
            .user(name)
            .await
            .map(|user| user.map(|user| user.groups));
        let group = host
            .group(name)
            .await
            .map(|group| group.map(|group| group.members));
        let home = host.stat(&format!("/home/{name}")).await;
        all.push(format!("{name} {user:?} {group:?} {home:?}"));
    }
    all
}

#[tokio::test]
async fn the_root_of_a_new_tmpfs_has_its_own_mode() {
    for (options, mode) in [("defaults", 0o1777), ("nosuid,mode=0750", 0o750)] {
        let (real, below) = (host(), host());
        let mount = Effect::Mount {
            device: "tmpfs".into(),
            path: "/srv/d".into(),
            fstype: "tmpfs".into(),
            options: options.into(),
        };
        let overlay = Overlay::new(&below);
        overlay.predict(&mount).await;
        real.perform(&mount).await.unwrap();
        for host in [&overlay as &dyn Host, &real] {
            let stat = host.stat("/srv/d").await.unwrap().unwrap();
            assert_eq!(stat.mode, mode, "{options}");
        }
    }
}
