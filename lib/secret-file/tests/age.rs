//! The encrypted file against Debian's `age`, which `HALITE_AGE` names.

#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

use std::process::Command;

use halite_pillar::load::{Text, Texts, load};
use halite_pillar::validate::Context;
use halite_secret_file::SecretFile;

#[test]
#[ignore = "needs Debian's age: cargo lab test --full source:"]
fn age_decrypts_the_file_and_encrypts_to_the_list_of_recipients() {
    let program = std::env::var_os("HALITE_AGE")
        .expect("HALITE_AGE has to be set; `cargo lab test --full source:` does that");
    let directory = tempfile::tempdir().unwrap();
    let (etc, state) = (directory.path().join("etc"), directory.path().join("state"));
    std::fs::create_dir(&etc).unwrap();
    let text = |file: &str, text: &str| Text {
        file: file.to_owned(),
        text: text.to_owned(),
    };
    let texts = Texts {
        cluster: text(
            "cluster.yaml",
            "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: test}\nnetworks:\n  controlPlane: {cidrs: [10.10.0.0/24]}\n\
             kubernetes: {version: \"1.36\"}\n",
        ),
        nodes: vec![text(
            "nodes/cp-1.yaml",
            "apiVersion: halite/v1\nkind: Node\nmetadata: {name: cp-1}\nroles: [bootstrap, registry, etcd, control-plane]\naddress: 10.10.0.11\n",
        )],
        ..Texts::default()
    };
    let declaration = load(&texts, &Context::default()).unwrap();
    let file = SecretFile::new(&etc, &state);
    let plain = "smtp: canary-4711\n";
    file.write(plain, &declaration).unwrap();
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        output.stdout
    };
    let identity = file.identity_path();
    let mut decrypt = Command::new(&program);
    let read = run(decrypt.arg("-d").arg("-i").arg(&identity).arg(file.path()));
    assert_eq!(read, plain.as_bytes());

    let source = directory.path().join("plain");
    std::fs::write(&source, "smtp: by age\n").unwrap();
    let list = etc.join(halite_secret_file::RECIPIENTS_FILE);
    let mut encrypt = Command::new(&program);
    let sealed = run(encrypt.arg("-R").arg(list).arg(&source));
    assert_eq!(file.open(&sealed).unwrap().reveal(), "smtp: by age\n");
}
