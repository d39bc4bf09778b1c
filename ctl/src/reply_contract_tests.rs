//! The contract of the master's replies that are messages, not documents: real ones, which its tests have
//! stored in `lib/api/contract`, become the documents of `ctl`.

use std::path::{Path, PathBuf};

use halite_backup::{SIGNATURE, SNAPSHOT};
use halite_proto::v1;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cli::OperatorCreate;
use crate::commands::printed;
use crate::local_contract_tests::check;

/// A real reply of the master, which its tests have stored.
fn reply<T: DeserializeOwned>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../lib/api/contract")
        .join(format!("{name}.json"));
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
    let access: v1::KubeconfigReply = reply("kubeconfig-reply");
    let file = printed::written_kubeconfig(Path::new("prod.kubeconfig"), &access).unwrap();
    check("kubeconfig-file", &file);
    assert!(printed::kubeconfig_file(&file).contains("server   https://"));
    let kubeconfig = printed::kubeconfig_value(&access, "key").to_string();
    for part in [&access.server, &access.tls_server_name, &access.cluster] {
        assert!(!part.is_empty() && kubeconfig.contains(part.as_str()));
    }
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
