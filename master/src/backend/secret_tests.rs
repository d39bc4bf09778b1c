//! Secrets whose values are in the encrypted file.

use std::net::IpAddr;
use std::path::Path;

use halite_age::Identity;
use halite_core::names::minion;
use halite_core::saved;
use halite_proto::ids::JobId;
use halite_proto::v1;
use halite_proto::v1::minion_message::Body;
use halite_secret_file::SecretFile;
use serde_json::{Value, json};

use super::fixture::{CANARY, Life, Site};

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  'worker-*':\n    - secret\n"),
    (
        "secret.sls",
        "key:\n  file.managed:\n    - name: /etc/key\n    - contents: '{{ pillar.halite.secrets.canary }}'\n",
    ),
];

fn file(site: &Site) -> SecretFile {
    SecretFile::new(&site.path().join("etc"), &site.path().join("state"))
}

/// A site whose secret is in the encrypted file, to which the master `first` has given way.
fn encrypted_site() -> Site {
    let site = Site::new(TREE);
    encrypt(&site);
    site
}

/// Puts the secret of a site into the encrypted file.
pub(super) fn encrypt(site: &Site) {
    let first = site.live();
    let snapshot = first.runtime.block_on(async {
        let declarations = first.backend.jobs().declarations();
        declarations.load().await.unwrap()
    });
    let plain = format!("canary: {CANARY}\n");
    file(site).write(&plain, snapshot.declaration()).unwrap();
    first.accept("worker-1");
    first.kill();
    change(site, &format!("value: {CANARY}, "), "");
}

/// Replaces a text in the cluster document.
fn change(site: &Site, from: &str, to: &str) {
    let path = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(&path, text.replace(from, to)).unwrap();
}

/// The files below a directory that contain the secret.
fn plain_files(directory: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            plain_files(&path, found);
        } else if String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains(CANARY) {
            found.push(path.display().to_string());
        }
    }
}

fn plain(site: &Site) -> Vec<String> {
    let mut found = Vec::new();
    plain_files(site.path(), &mut found);
    found
}

fn status(life: &Life) -> Value {
    let status = life.runtime.block_on(life.backend.status()).unwrap();
    halite_api::to_value(&status)
}

async fn hand_in(life: &Life, job_id: &JobId) {
    let body = Some(Body::Returned(v1::JobReturn {
        job: job_id.to_string(),
        retcode: 0,
        return_json: json!({ "text": format!("password: {CANARY}") }).to_string(),
        error: String::new(),
    }));
    let message = v1::MinionMessage { body };
    let worker = minion("worker-1");
    life.backend.on_message(&worker, message).await.unwrap();
}

async fn stored(life: &Life, job_id: &JobId) -> String {
    let row = life.store.row(job_id, &minion("worker-1")).await.unwrap();
    format!("{:?}", row.unwrap().return_json)
}

/// Starts the job that needs the secret; returns its id and the low state that is sent.
fn secret_job(life: &Life) -> (JobId, String) {
    life.runtime.block_on(async {
        let request = v1::RunRequest {
            target: "worker-1".into(),
            function: "state.apply".into(),
            args_json: json!({ "sls": ["secret"] }).to_string(),
            ..Default::default()
        };
        let _watched = life.backend.run("root", request).await.unwrap();
        let job_id = life.store.jobs(1).await.unwrap()[0].job_id.clone();
        let here = IpAddr::from([10, 10, 1, 12]);
        let worker = minion("worker-1");
        let (_connection, mut messages) = life.app.connections.join(&worker, here);
        let hello = v1::MinionHello {
            protocol: 1,
            grains_json: json!({ "ip4_interfaces": { "eth0": ["10.10.1.12"] } }).to_string(),
            ..Default::default()
        };
        life.backend.on_connected(&worker, &hello).await.unwrap();
        let Some(v1::master_message::Body::Job(job)) = messages.recv().await.unwrap().body else {
            panic!("no job");
        };
        (job_id, job.low_json)
    })
}

#[test]
fn an_encrypted_secret_reaches_its_host_and_is_nowhere_on_disk() {
    let site = encrypted_site();
    let life = site.live();
    let (job_id, low) = secret_job(&life);
    assert!(low.contains(CANARY));
    life.runtime.block_on(async {
        hand_in(&life, &job_id).await;
        let stored = stored(&life, &job_id).await;
        assert!(stored.contains("(secret)"), "{stored}");
    });
    assert_eq!(plain(&site), Vec::<String>::new());
    let saved = saved::files(&life.app.config).unwrap();
    let names: Vec<&str> = saved.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"config/secrets.yaml.age"), "{names:?}");
    assert!(names.contains(&"config/secrets.recipients"), "{names:?}");
    assert!(
        !names.iter().any(|name| name.contains("identity")),
        "{names:?}"
    );
}

#[test]
fn the_last_valid_documents_have_the_encrypted_file_and_work_with_a_mistake_in_it() {
    let site = encrypted_site();
    let first = site.live();
    let (job_id, _) = secret_job(&first);
    let snapshot = first.runtime.block_on(async {
        let declarations = first.backend.jobs().declarations();
        declarations.load().await.unwrap()
    });
    first.kill();
    let mistake = format!("canary: {CANARY}\nstranger: {CANARY}-2\n");
    let declaration = snapshot.declaration();
    file(&site).write(&mistake, declaration).unwrap();
    let life = site.live();
    let shown = status(&life).to_string();
    assert!(
        shown.contains("secrets.yaml.age:2:") && shown.contains("does not declare"),
        "{shown}"
    );
    assert!(!shown.contains(CANARY), "{shown}");
    life.runtime.block_on(async {
        hand_in(&life, &job_id).await;
        let stored = stored(&life, &job_id).await;
        assert!(stored.contains("(secret)"), "{stored}");
    });
    assert_eq!(plain(&site), Vec::<String>::new());
}

#[test]
fn a_master_without_its_identity_says_so_first_and_stores_no_return() {
    let site = encrypted_site();
    let first = site.live();
    let (job_id, _) = secret_job(&first);
    first.kill();
    let identity = file(&site).identity_path();
    let aside = site.path().join("identity.aside");
    std::fs::rename(&identity, &aside).unwrap();
    let life = site.live();
    let shown = status(&life);
    let first = &shown["problems"][0];
    let first = first.to_string();
    for part in [
        "secrets.yaml.age",
        "is missing on this host",
        "ctl secrets recover --key FILE",
        "bootstrap-1 age1",
    ] {
        assert!(first.contains(part), "{first}");
    }
    life.runtime.block_on(async {
        let declarations = life.backend.jobs().declarations();
        let in_force = declarations.in_force().await.unwrap();
        assert_eq!(in_force.declaration().nodes.len(), 2);
        let mut low = json!("halite-secret::secrets.canary::");
        let refused = declarations.fill(&minion("worker-1"), &mut low).await;
        let refused = refused.unwrap_err().message;
        assert!(refused.contains("cannot decrypt"), "{refused}");
        let request = v1::RunRequest {
            target: "worker-1".into(),
            function: "test.ping".into(),
            args_json: "{}".into(),
            ..Default::default()
        };
        let highstate = v1::RunRequest {
            function: "state.highstate".into(),
            ..request.clone()
        };
        assert!(life.backend.run("root", highstate).await.is_err());
        assert!(life.backend.run("root", request).await.is_ok());

        let here = IpAddr::from([10, 10, 1, 12]);
        let (_connection, mut messages) = life.app.connections.join(&minion("worker-1"), here);
        hand_in(&life, &job_id).await;
        assert_eq!(stored(&life, &job_id).await, "None");
        life.backend.jobs().expire_parts().await.unwrap();
        assert!(life.app.connections.is_connected(&minion("worker-1")));
        std::fs::rename(&aside, &identity).unwrap();
        declarations.load().await.unwrap();
        life.backend.jobs().expire_parts().await.unwrap();
        while messages.recv().await.is_some() {}
        hand_in(&life, &job_id).await;
        let stored = stored(&life, &job_id).await;
        assert!(stored.contains("(secret)"), "{stored}");
    });
    let shown = status(&life).to_string();
    assert!(!shown.contains("secrets.yaml.age"), "{shown}");
}

#[test]
fn a_rotation_and_another_recipient_are_noticed_without_a_restart() {
    let site = encrypted_site();
    let life = site.live();
    let load = || {
        life.runtime.block_on(async {
            let declarations = life.backend.jobs().declarations();
            declarations.load().await.unwrap()
        })
    };
    let snapshot = load();
    file(&site).rotate(snapshot.declaration()).unwrap();
    let (_, low) = secret_job(&life);
    assert!(low.contains(CANARY));
    let before = std::fs::read(site.path().join("state/last-valid/documents.json")).unwrap();
    file(&site).rotate(load().declaration()).unwrap();
    load();
    let after = std::fs::read(site.path().join("state/last-valid/documents.json")).unwrap();
    assert!(
        before != after,
        "it has the file that the new identity opens"
    );
    let stranger = Identity::generate().unwrap();
    // Only declared standbys become recipients.
    let recipient = stranger.recipient().to_string();
    let added = life.backend.add_secret_recipient("worker-1", &recipient);
    life.runtime.block_on(added).unwrap();
    let recipients = file(&site).recipients().unwrap();
    assert_eq!(recipients.of_host("worker-1"), None);
    assert!(recipients.of_host("bootstrap-1").is_some());
}

#[test]
fn changed_recovery_recipients_are_a_finding_until_the_secrets_are_encrypted_to_them() {
    let site = encrypted_site();
    let life = site.live();
    let load = || {
        life.runtime.block_on(async {
            let declarations = life.backend.jobs().declarations();
            declarations.load().await.unwrap()
        })
    };
    let remedy = "ctl certs rotate secrets";
    load();
    let shown = status(&life).to_string();
    assert!(!shown.contains(remedy), "{shown}");
    let other = Identity::generate().unwrap().recipient().to_string();
    change(
        &site,
        "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj",
        &other,
    );
    let snapshot = load();
    let shown = status(&life).to_string();
    assert!(shown.contains(remedy), "{shown}");
    file(&site).rotate(snapshot.declaration()).unwrap();
    load();
    let shown = status(&life).to_string();
    assert!(!shown.contains(remedy), "{shown}");
}
