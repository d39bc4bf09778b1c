//! A standby becomes the master, however often the promotion is interrupted.

use std::io;
use std::sync::Mutex;

use halite_core::ca::Cas;
use halite_core::clock::{Clock as _, Steady, SystemClock};
use halite_core::init::init;
use halite_core::isolation::{AFTER, Isolation, Surroundings};
use halite_core::succession::Succession;
use halite_manifest::{Manifest, manifest};
use halite_store::{Job, JobRow, JobStatus, RowState, Token};

use super::*;
use crate::promote::{Boundary, PromoteError, Promoted, Promotion, PromotionRequest, Unit};
use crate::{mark, mark_before};

#[derive(Default)]
pub(super) struct Calls(Mutex<Vec<&'static str>>);

impl Unit for Calls {
    fn stop(&self) -> io::Result<()> {
        self.0.lock().unwrap().push("stop");
        Ok(())
    }

    fn start(&self) -> io::Result<()> {
        self.0.lock().unwrap().push("start");
        Ok(())
    }
}

pub(super) fn forced() -> PromotionRequest {
    PromotionRequest {
        force: true,
        cluster: Some("prod".to_owned()),
    }
}

pub(super) async fn promote(
    host: &MasterHost,
    wanted: &PromotionRequest,
    end_at: Option<Boundary>,
) -> Result<Promoted, PromoteError> {
    let unit = Calls::default();
    let mut promotion = Promotion::new(&host.config, host.directory.path(), &SystemClock, &unit);
    promotion.end_at = end_at;
    promotion.run(wanted).await
}

fn job() -> Job {
    Job {
        job_id: halite_proto::ids::JobId::from_number(1),
        function: "state.highstate".to_owned(),
        args_json: "{}".to_owned(),
        test: false,
        operator: "root".to_owned(),
        target: "a".to_owned(),
        minions: vec![minion("a")],
        order: Vec::new(),
        created: 1,
        deadline: None,
        steady_deadline: None,
        request_id: None,
        status: JobStatus::Running,
        retcode: None,
        finished: None,
        bundle: None,
    }
}

/// Creates a standby that has everything of a master with a job under way, and that previously had
/// a store and documents of its own.
async fn standby() -> (MasterHost, String) {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let made = init(&master.config, SystemClock.now()).unwrap();
    std::fs::write(
        master.config.config_dir.join("cluster.yaml"),
        "kind: Cluster",
    )
    .unwrap();
    let store = master.store().await;
    accept(&store, "a").await;
    let job = job();
    store
        .create_job(&job, &[JobRow::queued(&job.job_id, &minion("a"), None)])
        .await
        .unwrap();
    store.mark_sent(&job.job_id, &minion("a"), 1).await.unwrap();
    let token = Token {
        id: "t".to_owned(),
        secret_sha256: "hash".to_owned(),
        expires: i64::MAX,
        uses_left: 1,
        roles: Vec::new(),
        bound_id: None,
        created: 1,
        operator: "root".to_owned(),
    };
    store.put_token(&token).await.unwrap();
    let mut link = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(link.following().await);
    write(&store, 7, 10).await;
    link.cut().await;
    store.close().await;
    let old = standby.store().await;
    write(&old, 1, 10).await;
    old.close().await;
    std::fs::write(standby.config.config_dir.join("old.yaml"), "old").unwrap();
    std::fs::write(standby.config.config_dir.join("master.yaml"), "own").unwrap();
    std::fs::write(mark(&standby.config), "127.0.0.1:1\n").unwrap();
    (standby, made.ca_sha256)
}

async fn check(host: &MasterHost, ca: &str, case: Option<Boundary>) {
    assert!(!mark(&host.config).exists(), "{case:?}");
    assert!(!directory(&host.config).exists(), "{case:?}");
    let before = std::fs::read_to_string(mark_before(&host.config));
    assert_eq!(before.unwrap(), "127.0.0.1:1\n", "{case:?}");
    let etc = |name: &str| std::fs::read_to_string(host.config.config_dir.join(name)).ok();
    assert_eq!(etc("cluster.yaml").as_deref(), Some("kind: Cluster"));
    assert_eq!(etc("old.yaml"), None);
    assert_eq!(etc("master.yaml").as_deref(), Some("own"));
    let aside = host.config.state_dir.join("before-epoch-2/config/old.yaml");
    assert_eq!(std::fs::read_to_string(aside).unwrap(), "old", "{case:?}");
    let cas = Cas::load(&host.config.state_dir).unwrap();
    assert_eq!(cas.certificate_sha256(halite_core::ca::HALITE).unwrap(), ca);
    assert!(host.config.state_dir.join("identity.crt").exists());
    assert!(etc("operator/operator.crt").is_some());
    let store = host.store().await;
    store.check().await.unwrap();
    assert_eq!(store.epoch(), 2, "{case:?}: raised once");
    let row = store
        .row(&job().job_id, &minion("a"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row.state, RowState::Sent, "its minion reports the result");
    assert_eq!(store.tokens().await.unwrap(), []);
    assert_eq!(store.keys().await.unwrap().len(), 1);
    store.close().await;
    let path = host.config.state_dir.join("store.db");
    assert_eq!(numbers(&path).await, [7], "{case:?}");
}

#[tokio::test]
async fn a_promotion_interrupted_at_any_boundary_continues() {
    for boundary in Boundary::ALL {
        let (host, ca) = standby().await;
        let ended = promote(&host, &forced(), Some(boundary)).await.unwrap_err();
        assert!(matches!(ended, PromoteError::Ended(at) if at == boundary));
        let again = promote(&host, &forced(), None).await.unwrap();
        assert_eq!(again, Promoted::Done(2), "{boundary:?}");
        check(&host, &ca, Some(boundary)).await;
        let again = promote(&host, &forced(), None).await.unwrap();
        assert_eq!(again, Promoted::WasMaster, "{boundary:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_promoted_is_refused_with_the_reason() {
    let host = MasterHost::new();
    let error = promote(&host, &PromotionRequest::default(), None)
        .await
        .unwrap_err();
    assert!(matches!(error, PromoteError::NoStandby(_)), "{error}");
    std::fs::write(mark(&host.config), "127.0.0.1:1\n").unwrap();
    let unit = Calls::default();
    let promotion = Promotion::new(&host.config, host.directory.path(), &SystemClock, &unit);
    let error = promotion.run(&forced()).await.unwrap_err();
    assert!(matches!(error, PromoteError::NoCopy), "{error}");
    assert_eq!(
        unit.0.lock().unwrap().as_slice(),
        &[""; 0],
        "it continues to follow"
    );
}

#[tokio::test]
async fn a_replaced_master_is_taken_back_by_force_only() {
    let host = MasterHost::new();
    let store = host.store().await;
    write(&store, 1, 10).await;
    store.close().await;
    let was = promote(&host, &PromotionRequest::default(), None)
        .await
        .unwrap();
    assert_eq!(was, Promoted::WasMaster);
    let own = Succession::new(&host.config.state_dir, first(), "");
    own.hear(6, "cp-2-22", "minion:a").unwrap_err();
    let error = promote(&host, &PromotionRequest::default(), None)
        .await
        .unwrap_err();
    assert!(matches!(error, PromoteError::Replaced(_)), "{error}");
    let done = promote(&host, &forced(), None).await.unwrap();
    assert_eq!(done, Promoted::Done(7));
    let store = host.store().await;
    assert_eq!(store.epoch(), 7);
    halite_core::succession::check(&host.config.state_dir, 7).unwrap();
    store.close().await;
}

/// Creates a standby of a master that continues.
pub(super) async fn pair() -> (MasterHost, Arc<Store>, MasterHost) {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    init(&master.config, SystemClock.now()).unwrap();
    let store = master.store().await;
    let mut link = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(link.following().await);
    write(&store, 1, 3000).await;
    link.cut().await;
    std::fs::write(mark(&standby.config), "127.0.0.1:1\n").unwrap();
    // The identity of the standby's minion, with which it queries the master, which does not
    // answer.
    halite_proto::transport::install_crypto();
    let state = &master.config.state_dir;
    for (from, to) in [
        ("identity.crt", "identity.crt"),
        ("identity.key", "identity.key"),
        ("ca/halite.crt", "ca.crt"),
    ] {
        std::fs::copy(state.join(from), standby.directory.path().join(to)).unwrap();
    }
    (master, store, standby)
}

#[tokio::test]
async fn a_copy_that_a_promotion_has_touched_is_taken_again_and_not_continued() {
    for boundary in [
        Boundary::Raised,
        Boundary::Files,
        Boundary::Store,
        Boundary::Epoch,
    ] {
        let (master, store, standby) = pair().await;
        let before = standby.receiver().hello();
        assert!(before.position.is_some(), "it could be continued");
        promote(&standby, &forced(), Some(boundary))
            .await
            .unwrap_err();
        // The daemon restarts while the master still answers.
        let receiver = standby.receiver();
        assert_eq!(receiver.hello().position, None, "{boundary:?}");
        let mut link = link(&master, &store, receiver, PATIENT, None);
        assert!(link.following().await, "{boundary:?}");
        write(&store, 2, 10).await;
        link.cut().await;
        let (_scratch, copy) = taken_over(&standby).await;
        assert_eq!(numbers(&copy).await, [1, 2], "{boundary:?}");
        let done = promote(&standby, &forced(), None).await.unwrap();
        assert_eq!(done, Promoted::Done(2), "{boundary:?}");
        let own = standby.config.state_dir.join("store.db");
        assert_eq!(numbers(&own).await, [1, 2], "{boundary:?}");
        store.close().await;
    }
}

#[tokio::test]
async fn what_a_killed_write_has_left_among_the_documents_blocks_no_promotion() {
    let (master, store, standby) = pair().await;
    let etc = &master.config.config_dir;
    std::fs::create_dir(etc.join("nodes")).unwrap();
    for (name, text) in [
        ("cluster.yaml", "whole"),
        (".cluster.yaml.new", "half"),
        ("nodes/cp-1.yaml", "whole"),
        ("nodes/.cp-1.yaml.new", "half"),
        ("X.new", "of an editor"),
    ] {
        std::fs::write(etc.join(name), text).unwrap();
    }
    let mut link = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(link.following().await);
    link.cut().await;
    let done = promote(&standby, &forced(), None).await.unwrap();
    assert_eq!(done, Promoted::Done(2));
    for (name, text) in [
        ("cluster.yaml", "whole"),
        ("nodes/cp-1.yaml", "whole"),
        ("X.new", "of an editor"),
    ] {
        let found = std::fs::read_to_string(standby.config.config_dir.join(name));
        assert_eq!(found.unwrap(), text, "{name}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_refused_promotion_leaves_the_standby_and_its_log_as_they_are() {
    let (_master, store, standby) = pair().await;
    let log = standby.receiver().copy().unwrap().store();
    let log = log.with_file_name("store.db-wal");
    // Append a commit that is not complete yet.
    let mut bytes = std::fs::read(&log).unwrap();
    bytes.extend_from_slice(&[7; 500]);
    std::fs::write(&log, &bytes).unwrap();
    let other = PromotionRequest {
        force: true,
        cluster: Some("other".to_owned()),
    };
    let unit = Calls::default();
    let promotion = Promotion::new(
        &standby.config,
        standby.directory.path(),
        &SystemClock,
        &unit,
    );
    let error = promotion.run(&other).await.unwrap_err();
    assert!(error.to_string().contains("--cluster prod"), "{error}");
    assert_eq!(std::fs::read(&log).unwrap(), bytes);
    assert_eq!(unit.0.lock().unwrap().as_slice(), &[""; 0]);
    store.close().await;
}

/// Adds a bundle, in which only its build time counts; returns the path of its program.
fn bundle(bundles: &Path, version: &str, built: &str) -> PathBuf {
    let directory = bundles.join(version);
    std::fs::create_dir_all(directory.join("bin")).unwrap();
    let text = format!(
        r#"{{"format":1,"name":"halite","version":"{version}","built":"{built}","kubernetes":"v1.36.3",
            "components":{{}},"images":{{}},"packages":{{}},"files":{{}}}}"#
    );
    std::fs::write(directory.join(manifest::FILE), &text).unwrap();
    let checksum = Manifest::checksum(text.as_bytes());
    std::fs::write(directory.join(manifest::CHECKSUM), checksum).unwrap();
    directory.join("bin/halite-master")
}

/// The master's host has a newer Halite, and the standby not yet.
#[tokio::test]
async fn a_copy_of_a_newer_program_is_refused_with_the_commands_and_followed_again() {
    let (master, store, mut standby) = pair().await;
    store.record_unknown_migration().await;
    let mut stream = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(stream.following().await);
    write(&store, 2, 10).await;
    stream.cut().await;
    let bundles = TempDir::new().unwrap();
    // Their names are in another order than their build times.
    let older = bundle(bundles.path(), "0.8.0", "2026-01-01T00:00:00Z");
    std::fs::write(older, "an older program").unwrap();
    let own = bundle(bundles.path(), "0.9.0", "2026-02-01T00:00:00Z");
    std::os::unix::fs::symlink(std::env::current_exe().unwrap(), own).unwrap();
    let newer = bundle(bundles.path(), "0.10.0", "2026-03-01T00:00:00Z");
    standby.config.bundles = bundles.path().to_owned();
    let log = standby.receiver().copy().unwrap().store();
    let log = log.with_file_name("store.db-wal");
    let before = std::fs::read(&log).unwrap();
    let install = |from: &str| {
        format!("install -m 0755 {from}/bin/halite-master /usr/local/bin/halite-master")
    };
    let from_iso = install("/mnt");
    let from_bundle = install(&bundles.path().join("0.10.0").display().to_string());
    for (has_newer, wanted, options) in [
        (false, PromotionRequest::default(), "--no-wait`"),
        (true, PromotionRequest::default(), "--no-wait`"),
        (true, forced(), "--no-wait --force --cluster prod`"),
    ] {
        if has_newer {
            std::fs::write(&newer, "a newer program").unwrap();
        }
        let unit = Calls::default();
        let promotion = Promotion::new(
            &standby.config,
            standby.directory.path(),
            &SystemClock,
            &unit,
        );
        let error = promotion.run(&wanted).await.unwrap_err();
        assert!(
            matches!(error, PromoteError::Newer { last: 1000, .. }),
            "{error}"
        );
        let text = error.to_string();
        let install = if has_newer { &from_bundle } else { &from_iso };
        let promote = format!("bin/ctl master promote {options}");
        for part in [install, &promote] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(unit.0.lock().unwrap().as_slice(), ["stop", "start"]);
        assert!(std::fs::read(&log).unwrap() == before);
        assert!(mark(&standby.config).exists());
    }
    let mut stream = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(stream.following().await);
    stream.cut().await;
    store.close().await;
}

#[tokio::test]
async fn an_isolated_master_acts_alone_by_force_only_and_with_a_higher_epoch() {
    let host = MasterHost::new();
    let store = host.store().await;
    write(&store, 1, 10).await;
    let before = store.epoch();
    store.close().await;
    let directory = &host.config.state_dir;
    let isolation = Isolation::new(directory);
    let lost = Surroundings {
        standbys: 2,
        alone_since: Some(0),
        accepted: 4,
        connected: 1,
    };
    isolation.look(Steady(0), lost);
    isolation.look(Steady(AFTER), lost);
    let refused = promote(&host, &PromotionRequest::default(), None)
        .await
        .unwrap_err();
    assert!(matches!(refused, PromoteError::Isolated), "{refused}");
    let promoted = promote(&host, &forced(), None).await.unwrap();
    assert_eq!(promoted, Promoted::Done(before + 1));
    // The master that starts then.
    let isolation = Isolation::new(directory);
    isolation.look(Steady(0), lost);
    isolation.look(Steady(AFTER), lost);
    assert_eq!(isolation.reason(), None);
    let store = host.store().await;
    assert_eq!(store.epoch(), before + 1);
    store.close().await;
    let again = promote(&host, &forced(), None).await.unwrap();
    assert_eq!(again, Promoted::WasMaster);
}

#[tokio::test]
async fn a_promoted_standby_acts_alone() {
    let (host, _) = standby().await;
    promote(&host, &forced(), None).await.unwrap();
    let isolation = Isolation::new(&host.config.state_dir);
    let lost = Surroundings {
        standbys: 1,
        alone_since: Some(0),
        accepted: 3,
        connected: 1,
    };
    isolation.look(Steady(0), lost);
    isolation.look(Steady(AFTER), lost);
    assert_eq!(isolation.reason(), None);
}
