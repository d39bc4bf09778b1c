//! Minions that lie, and documents that become unreadable at a bad time.

use std::net::IpAddr;

use halite_core::names::minion;
use halite_core::saved;
use halite_proto::ids::JobId;
use halite_proto::v1;
use halite_proto::v1::minion_message::Body;
use serde_json::json;

use super::fixture::{CANARY, Life, Site};

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  'worker-*':\n    - secret\n"),
    (
        "secret.sls",
        "key:\n  file.managed:\n    - name: /etc/key\n    - contents: '{{ pillar.halite.secrets.canary }}'\n",
    ),
];

fn hello(address: &str) -> v1::MinionHello {
    v1::MinionHello {
        protocol: 1,
        grains_json: json!({ "ip4_interfaces": { "eth0": [address] } }).to_string(),
        ..Default::default()
    }
}

async fn hand_in(
    life: &Life,
    job_id: &JobId,
    text: &str,
) -> Result<(), halite_core::refusal::Refusal> {
    let body = Some(Body::Returned(v1::JobReturn {
        job: job_id.to_string(),
        retcode: 0,
        return_json: json!({ "text": text }).to_string(),
        error: text.to_owned(),
    }));
    let message = v1::MinionMessage { body };
    life.backend.on_message(&minion("worker-1"), message).await
}

async fn secret_job(life: &Life) -> JobId {
    let request = v1::RunRequest {
        target: "worker-1".into(),
        function: "state.apply".into(),
        args_json: json!({ "sls": ["secret"] }).to_string(),
        ..Default::default()
    };
    let _watched = life.backend.run("root", request).await.unwrap();
    life.store.jobs(1).await.unwrap()[0].job_id.clone()
}

async fn stored(life: &Life, job_id: &JobId) -> String {
    let row = life
        .store
        .row(job_id, &minion("worker-1"))
        .await
        .unwrap()
        .unwrap();
    format!("{:?} {}", row.return_json, row.error)
}

#[test]
fn a_return_loses_its_secrets_also_when_the_declaration_was_broken_or_changed_before() {
    let documents = [
        "{ this is not a document",
        "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: test}\nnetworks:\n  controlPlane: {cidrs: [10.10.0.0/24, 10.10.1.0/24]}\nkubernetes: {version: \"1.36\"}\nsecrets:\n  canary: {value: another-value-now, roles: [worker]}\n",
    ];
    for document in documents {
        let site = Site::new(TREE);
        let life = site.live();
        life.accept("worker-1");
        life.runtime.block_on(async {
            let here = IpAddr::from([10, 10, 1, 12]);
            let (_connection, mut messages) = life.app.connections.join(&minion("worker-1"), here);
            let job_id = secret_job(&life).await;
            life.backend
                .on_connected(&minion("worker-1"), &hello("10.10.1.12"))
                .await
                .unwrap();
            let Some(v1::master_message::Body::Job(job)) = messages.recv().await.unwrap().body
            else {
                panic!("no job");
            };
            assert!(job.low_json.contains(CANARY));
            std::fs::write(site.path().join("etc/cluster.yaml"), document).unwrap();
            hand_in(&life, &job_id, &format!("password: {CANARY}"))
                .await
                .unwrap();
            let stored = stored(&life, &job_id).await;
            assert!(
                stored.contains("(secret)") && !stored.contains(CANARY),
                "{stored}"
            );
        });
    }
}

#[test]
fn a_return_is_held_back_while_its_secrets_are_not_known() {
    let site = Site::new(TREE);
    let first = site.live();
    first.accept("worker-1");
    let job_id = first.runtime.block_on(secret_job(&first));
    first.kill();
    // The next master has never read the documents, and no earlier one has stored them.
    std::fs::remove_dir_all(site.path().join("state/last-valid")).unwrap();
    let path = site.path().join("etc/cluster.yaml");
    let sound = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, "{ this is not a document").unwrap();
    let life = site.live();
    life.runtime.block_on(async {
        let text = format!("password: {CANARY}");
        let here = IpAddr::from([10, 10, 1, 12]);
        let (_connection, mut messages) = life.app.connections.join(&minion("worker-1"), here);
        hand_in(&life, &job_id, &text).await.unwrap();
        assert!(!stored(&life, &job_id).await.contains("password"));
        life.backend.jobs().expire_parts().await.unwrap();
        assert!(life.app.connections.is_connected(&minion("worker-1")));
        std::fs::write(&path, sound).unwrap();
        // The minion is asked for the return: it resends unacknowledged returns when it reconnects.
        while messages.recv().await.is_some() {}
        hand_in(&life, &job_id, &text).await.unwrap();
        let stored = stored(&life, &job_id).await;
        assert!(
            stored.contains("password") && !stored.contains(CANARY),
            "{stored}"
        );
    });
}

#[test]
fn after_a_restart_with_invalid_documents_the_last_valid_ones_are_in_force() {
    let site = Site::new(TREE);
    let first = site.live();
    first.accept("worker-1");
    let job_id = first.runtime.block_on(secret_job(&first));
    first.kill();
    std::fs::write(
        site.path().join("etc/cluster.yaml"),
        "{ this is not a document",
    )
    .unwrap();
    let life = site.live();
    life.runtime.block_on(async {
        let here = IpAddr::from([10, 10, 1, 12]);
        let (_connection, mut messages) = life.app.connections.join(&minion("worker-1"), here);
        let hello = hello("10.10.1.12");
        life.backend
            .on_connected(&minion("worker-1"), &hello)
            .await
            .unwrap();
        let Some(v1::master_message::Body::Job(job)) = messages.recv().await.unwrap().body else {
            panic!("no job");
        };
        assert!(job.low_json.contains(CANARY), "started work continues");
        hand_in(&life, &job_id, &format!("password: {CANARY}"))
            .await
            .unwrap();
        let stored = stored(&life, &job_id).await;
        assert!(
            stored.contains("(secret)") && !stored.contains(CANARY),
            "{stored}"
        );
        let declarations = life.backend.jobs().declarations();
        let in_force = declarations.in_force().await.unwrap();
        assert_eq!(in_force.declaration().nodes.len(), 2);
        let refused = declarations.load().await.map(drop).unwrap_err();
        assert!(
            refused.message.contains("cluster.yaml:2:1: not valid YAML"),
            "{refused}"
        );
        let everything = life.everything_stored(&site);
        assert!(!everything.contains(CANARY));
        assert!(life.backend.standbys().await.is_ok());
        let saved = saved::files(&life.app.config).unwrap();
        let has = |place: &str| saved.iter().any(|(saved, _)| saved == place);
        assert!(
            has("state/last-valid/documents.json"),
            "for standbys and backups"
        );
    });
}

#[test]
fn an_address_that_is_not_the_hosts_own_is_refused_for_that_node_alone() {
    let site = Site::new(TREE);
    let document = site.path().join("etc/nodes/worker-2.yaml");
    let text = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: worker-2}\nroles: [worker]\n";
    std::fs::write(&document, text).unwrap();
    let life = site.live();
    life.accept("worker-2");
    life.runtime.block_on(async {
        let declarations = life.backend.jobs().declarations();
        for (claimed, peer) in [
            // The first host's; a free one that another machine answers; worker-1's.
            ("10.10.0.11", [10, 10, 0, 11]),
            ("10.10.1.77", [10, 10, 1, 13]),
            ("10.10.1.12", [10, 10, 1, 12]),
        ] {
            let (_connection, _messages) = life
                .app
                .connections
                .join(&minion("worker-2"), IpAddr::from(peer));
            life.backend
                .on_connected(&minion("worker-2"), &hello(claimed))
                .await
                .unwrap();
            let snapshot = declarations.load().await.unwrap();
            assert_eq!(snapshot.declaration().nodes.len(), 3, "{claimed}");
            assert_eq!(std::fs::read_to_string(&document).unwrap(), text);
        }
        let (_connection, _messages) = life
            .app
            .connections
            .join(&minion("worker-2"), IpAddr::from([10, 10, 1, 13]));
        life.backend
            .on_connected(&minion("worker-2"), &hello("10.10.1.13"))
            .await
            .unwrap();
        let recorded = std::fs::read_to_string(&document).unwrap();
        assert!(recorded.contains("controlPlane: 10.10.1.13"), "{recorded}");
    });
}

#[test]
fn job_ids_that_no_job_has_cost_nothing() {
    let site = Site::new(TREE);
    let life = site.live();
    life.accept("worker-1");
    life.runtime.block_on(async {
        let here = IpAddr::from([10, 10, 1, 12]);
        let (_connection, _messages) = life.app.connections.join(&minion("worker-1"), here);
        let job_id = secret_job(&life).await;
        let mut running: Vec<String> = (0..100_000).map(|n| format!("2027{n:016}")).collect();
        running.push(job_id.to_string());
        let hello = v1::MinionHello {
            running_jobs: running,
            ..hello("10.10.1.12")
        };
        let began = tokio::time::Instant::now();
        life.backend
            .on_connected(&minion("worker-1"), &hello)
            .await
            .unwrap();
        // Each one would have been a commit of some milliseconds; together they take minutes.
        assert!(began.elapsed() < std::time::Duration::from_secs(60));
        let row = life
            .store
            .row(&job_id, &minion("worker-1"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(row.state, halite_store::RowState::Started);
    });
}
