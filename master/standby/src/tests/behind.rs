//! Of two standbys, the one that may lack data is promoted only with `--force`, and names the
//! other.

use std::fs;

use halite_api::{StreamGap, StreamReport, Time};
use halite_core::clock::{Clock as _, SystemClock};

use super::promotion::{forced, pair, promote};
use super::*;
use crate::promote::{CheckError, PromoteError, Promoted, PromotionRequest};

const MINUTE: i64 = 60_000;

/// Declares a cluster of these control planes, the first of which has the master.
fn declare(host: &MasterHost, nodes: &[&str]) {
    let etc = &host.config.config_dir;
    fs::create_dir_all(etc.join("nodes")).unwrap();
    let cluster = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: prod}\n\
        networks:\n  controlPlane: {cidrs: [10.0.0.0/24]}\nkubernetes: {version: \"1.36\"}\n";
    fs::write(etc.join("cluster.yaml"), cluster).unwrap();
    for name in nodes {
        let address = match *name {
            "cp-1" => [10, 0, 0, 11],
            "cp-2" => [10, 0, 0, 12],
            _ => [10, 0, 0, 13],
        };
        let roles: &[halite_pillar::role::Role] = if *name == "cp-1" {
            &halite_pillar::role::BOOTSTRAP_ROLES
        } else {
            &[
                halite_pillar::role::Role::ControlPlane,
                halite_pillar::role::Role::Etcd,
            ]
        };
        let text = halite_pillar::node::Node::new(name, Some(address.into()), roles).to_text();
        fs::write(etc.join(format!("nodes/{name}.yaml")), text).unwrap();
    }
}

/// Creates a standby with a copy of this declaration, and this report.
async fn standby(
    nodes: &[&str],
    report: impl FnOnce(i64) -> StreamReport,
) -> (Arc<Store>, MasterHost) {
    let (master, store, mut standby) = pair().await;
    standby.config.advertise = vec![[10, 0, 0, 12].into()];
    declare(&master, nodes);
    let mut link = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(link.following().await);
    link.cut().await;
    let report = serde_json::to_vec(&report(SystemClock.now())).unwrap();
    fs::write(directory(&standby.config).join(StreamReport::FILE), report).unwrap();
    (store, standby)
}

/// The stream ended an hour ago, and the daemon has run since.
fn up(now: i64) -> StreamReport {
    StreamReport {
        master: "10.0.0.11:4550".to_owned(),
        since: Time::from_millis(now - 60 * MINUTE),
        following: false,
        alive: Some(Time::from_millis(now)),
        missed: None,
    }
}

/// The daemon has not run for an hour.
fn off(now: i64) -> StreamReport {
    StreamReport {
        following: true,
        alive: Some(Time::from_millis(now - 60 * MINUTE)),
        ..up(now)
    }
}

/// The master answered after the stream had ended.
fn answered(now: i64) -> StreamReport {
    StreamReport {
        missed: Some(StreamGap::Answered {
            at: Time::from_millis(now - MINUTE),
        }),
        ..up(now)
    }
}

const ALL: [&str; 3] = ["cp-1", "cp-2", "cp-3"];

#[tokio::test]
async fn a_standby_that_was_off_names_the_other_one_and_the_age_of_its_copy() {
    let cases: [fn(i64) -> StreamReport; 2] = [off, answered];
    for report in cases {
        let (store, host) = standby(&ALL, report).await;
        let error = promote(&host, &PromotionRequest::default(), None)
            .await
            .unwrap_err();
        assert!(
            matches!(error, PromoteError::Check(CheckError::Behind { .. })),
            "{error}"
        );
        let text = error.to_string();
        for part in ["1 h 0 min ago", "on cp-3 shows", "--force --cluster prod"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let done = promote(&host, &forced(), None).await.unwrap();
        assert_eq!(done, Promoted::Done(2));
        store.close().await;
    }
}

#[tokio::test]
async fn a_standby_that_ran_or_is_the_only_one_is_promoted() {
    let (store, host) = standby(&ALL, up).await;
    let done = promote(&host, &PromotionRequest::default(), None)
        .await
        .unwrap();
    assert_eq!(done, Promoted::Done(2));
    store.close().await;
    let (store, host) = standby(&ALL[..2], off).await;
    let done = promote(&host, &PromotionRequest::default(), None)
        .await
        .unwrap();
    assert_eq!(done, Promoted::Done(2));
    store.close().await;
}
