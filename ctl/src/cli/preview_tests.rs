//! Each command that changes something has `--test`, or is listed here with those that need none
//! (docs/decisions/0081-flags-and-questions.md, 0125-changes-without-a-preview.md).

use std::collections::BTreeSet;

use clap::CommandFactory as _;

use super::loss_tests::{find, runnable};
use super::*;

/// Commands that change nothing.
const READING: &[&str] = &[
    "audit",
    "backup list",
    "backup restore",
    "backup verify",
    "bundle diff",
    "bundle list",
    "bundle needs",
    "bundle show",
    "bundle verify",
    "certs list",
    "completion",
    "config example",
    "config schema",
    "config show",
    "config validate",
    "context list",
    "etcd status",
    "events",
    "grains",
    "health",
    "help",
    "images",
    "job follow",
    "job list",
    "job show",
    "key list",
    "kubeconfig list",
    "local render",
    "logs",
    "master list",
    "node list",
    "node show",
    "notify list",
    "operator list",
    "orchestrate follow",
    "orchestrate list",
    "pillar",
    "ping",
    "registry list",
    "registry verify",
    "render",
    "secrets list",
    "secrets recipients",
    "status",
    "token list",
    "upgrade status",
    "version",
];
/// Commands whose whole effect is new files.
const WRITING: &[&str] = &[
    "backup create",
    "backup get",
    "bundle build",
    "bundle copy",
    "bundle export",
    "bundle init",
    "bundle key",
    "bundle lock",
    "bundle pack",
    "certs csr",
    "config wizard",
    "generate",
    "kubeconfig",
    "registry backup",
    "support",
];
/// Commands that change only the object that they name, and others whose preview would repeat the
/// command line, or what another command shows.
const OBVIOUS: &[&str] = &[
    "certs import",
    "cmd",
    "context delete",
    "context set",
    "context use",
    "job cancel",
    "key accept",
    "key delete",
    "key reject",
    "node add",
    "notify test",
    "operator create",
    "operator revoke",
    "orchestrate cancel",
    "secrets edit",
    "secrets recover",
    "token create",
    "token revoke",
    "upgrade pause",
    "upgrade resume",
];

#[test]
fn each_command_that_changes_something_has_a_preview() {
    let cli = Cli::command();
    let mut all = BTreeSet::new();
    runnable(&cli, "", &mut all);
    let without = |name: &str| {
        let mut arguments = find(&cli, name).get_arguments();
        !arguments.any(|argument| argument.get_long() == Some("test"))
    };
    let without: BTreeSet<&str> = all
        .iter()
        .filter(|name| without(name))
        .map(String::as_str)
        .collect();
    let mut listed = BTreeSet::new();
    for name in [READING, WRITING, OBVIOUS].concat() {
        assert!(listed.insert(name), "{name} is listed twice");
    }
    assert_eq!(without, listed);
}
