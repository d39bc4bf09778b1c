//! The contract of the master's replies and records that are not documents: real ones, which its
//! tests have stored in `lib/api/contract`, become the documents of `ctl`.

use std::path::{Path, PathBuf};

use halite_api::{BackupHead, HandOver, StreamReport};
use halite_backup::{SIGNATURE, SNAPSHOT};
use halite_pillar::masters::STANDBY_OF;
use halite_proto::transport::ClientIdentity;
use halite_proto::v1;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cli::OperatorCreate;
use crate::commands::printed;
use crate::identity_renewal::renewed;
use crate::local_contract_tests::check;

/// The path of a stored value.
fn contract(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../lib/api/contract")
        .join(format!("{name}.json"))
}

/// A real reply of the master, which its tests have stored.
fn reply<T: DeserializeOwned>(name: &str) -> T {
    let path = contract(name);
    let text = std::fs::read_to_string(&path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn what_is_new() {
    let added: v1::AddNodeReply = reply("add-node-reply");
    let nodes = printed::new_nodes(added.nodes);
    check("new-nodes", &nodes);
    let token = printed::created_token(reply("create-token-reply")).unwrap();
    check("new-token", &token);
    assert!(printed::new_token(&token).contains("token    6e6f746f."));
    let args = OperatorCreate {
        name: "alice".to_owned(),
        role: "viewer".to_owned(),
        ttl: 90,
        out: PathBuf::from("alice.pem"),
    };
    let operator = printed::created_operator(args, &reply("create-operator-reply")).unwrap();
    check("new-operator", &operator);
    assert!(printed::new_operator(&operator).contains("identity  alice.pem"));
    let own = ClientIdentity {
        certificate_pem: String::new(),
        key_pem: "key".to_owned(),
    };
    let own = renewed(own, reply("renew-operator-reply"));
    assert_eq!(own.key_pem, "key");
    assert!(
        own.certificate_pem
            .starts_with("-----BEGIN CERTIFICATE-----\n")
    );
    let access: v1::KubeconfigReply = reply("kubeconfig-reply");
    let file = printed::written_kubeconfig(Path::new("prod.kubeconfig"), &access).unwrap();
    check("kubeconfig-file", &file);
    assert!(printed::kubeconfig_file(&file).contains("server   https://"));
    let kubeconfig = printed::kubeconfig_value(&access, "key").to_string();
    for part in [&access.server, &access.tls_server_name, &access.cluster] {
        assert!(!part.is_empty() && kubeconfig.contains(part.as_str()));
    }
}

/// The record of a real move to the standby `cp-2`.
pub fn hand_over() -> HandOver {
    reply("hand-over")
}

/// The head of a real backup.
pub fn backup_head() -> BackupHead {
    let parts: StoredParts = reply("backup-parts");
    serde_json::from_value(parts.head).unwrap()
}

/// The head of a backup, and its files without their content.
#[derive(Deserialize)]
struct StoredParts {
    head: Value,
    files: Vec<StoredFile>,
}

#[derive(Deserialize)]
struct StoredFile {
    path: String,
    mode: u32,
}

#[test]
fn the_parts_of_a_backup() {
    let parts: StoredParts = reply("backup-parts");
    let header = printed::backup_header(&parts.head.to_string()).unwrap();
    assert_eq!(header.cluster, "test");
    assert_eq!(header.etcd.member, "bootstrap-1");
    assert_eq!(header.recipients.len(), 1);
    let paths: Vec<&str> = parts.files.iter().map(|file| file.path.as_str()).collect();
    assert!(paths.contains(&SNAPSHOT), "{paths:?}");
    assert_eq!(paths.last(), Some(&SIGNATURE));
    let key = parts.files.iter().find(|file| file.path.ends_with(".key"));
    assert_eq!(key.unwrap().mode, 0o600);
}

#[test]
fn the_records_of_a_move_and_of_a_standby() {
    let directory = tempfile::tempdir().unwrap();
    let problem = |stored: &str, path: &Path| {
        let text = std::fs::read_to_string(contract(stored)).unwrap();
        std::fs::write(directory.path().join(path), text).unwrap();
        printed::masters_here(directory.path())
            .unwrap()
            .problems
            .remove(0)
    };
    let text = problem("hand-over", Path::new(HandOver::FILE));
    assert!(text.contains("hands the master over to cp-2"), "{text}");
    std::fs::remove_file(directory.path().join(HandOver::FILE)).unwrap();

    std::fs::write(directory.path().join(STANDBY_OF), "10.0.0.11:4550\n").unwrap();
    std::fs::create_dir(directory.path().join("standby")).unwrap();
    let report = Path::new("standby").join(StreamReport::FILE);
    for (stored, part) in [
        (
            "standby-report-following",
            "this host follows 10.0.0.11:4550",
        ),
        (
            "standby-report-answered",
            "of 10.0.0.11:4550 until 2027-01-15T08:01:00.000Z, and may lack later changes, because the master answered at",
        ),
        (
            "standby-report-off",
            "because halite-master did not run on this host from 2027-01-15T08:00:00.000Z to",
        ),
    ] {
        let text = problem(stored, &report);
        assert!(text.contains(part), "{stored}: {text}");
    }
}
