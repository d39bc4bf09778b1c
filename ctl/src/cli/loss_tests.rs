//! The guide's table of commands that cause a loss: it is complete, and each command requires the
//! confirmation in the table.

use std::collections::BTreeSet;

use clap::{Command, CommandFactory as _};

use super::*;

/// Commands that cause no loss. A new command must be in this list or in the table.
const HARMLESS: &[&str] = &[
    "audit",
    "backup get",
    "backup list",
    "backup restore",
    "backup verify",
    "bundle add",
    "bundle build",
    "bundle copy",
    "bundle diff",
    "bundle export",
    "bundle init",
    "bundle key",
    "bundle list",
    "bundle lock",
    "bundle needs",
    "bundle pack",
    "bundle show",
    "bundle update",
    "bundle use",
    "bundle verify",
    "certs csr",
    "certs list",
    "completion",
    "config example",
    "config schema",
    "config show",
    "config validate",
    "context delete",
    "context list",
    "context set",
    "context use",
    "etcd defrag",
    "etcd status",
    "events",
    "generate",
    "grains",
    "health",
    "help",
    "images",
    "job follow",
    "job list",
    "job show",
    "key accept",
    "key list",
    "kubeconfig list",
    "kubeconfig",
    "local render",
    "logs",
    "master list",
    "node add",
    "node cordon",
    "node list",
    "node show",
    "node uncordon",
    "notify list",
    "notify test",
    "operator create",
    "operator list",
    "orchestrate follow",
    "orchestrate list",
    "pillar",
    "ping",
    "registry list",
    "registry verify",
    "render",
    "secrets edit",
    "secrets encrypt",
    "secrets list",
    "secrets recipients",
    "secrets recover",
    "status",
    "support",
    "token create",
    "token list",
    "upgrade pause",
    "upgrade status",
    "version",
];

/// A row of the table.
pub(super) struct Loss {
    /// The command without `ctl`.
    pub command: String,
    /// The things that it takes away.
    pub takes_away: String,
    /// The confirmation that it requires.
    pub asks: String,
}

/// The rows of the table.
pub(super) fn rows() -> Vec<Loss> {
    let page = include_str!("../../../docs/guide/operators.md");
    let (_, table) = page.split_once("<!-- losses -->").unwrap();
    let (table, _) = table.split_once("<!-- end of losses -->").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `ctl "));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [command, takes_away, asks] = cells.as_slice() else {
            panic!("three cells: {row}")
        };
        let command = command.trim().trim_matches('`');
        let command = command.strip_prefix("ctl ").unwrap();
        Loss {
            command: command.to_owned(),
            takes_away: (*takes_away).to_owned(),
            asks: asks.trim().to_owned(),
        }
    })
    .collect()
}

/// The names of all subcommands that run something themselves.
pub(super) fn runnable(command: &Command, name: &str, found: &mut BTreeSet<String>) {
    let runs_itself =
        command.get_positionals().count() > 0 || command.is_args_conflicts_with_subcommands_set();
    if !name.is_empty() && (!command.has_subcommands() || runs_itself) {
        found.insert(name.to_owned());
    }
    for below in command.get_subcommands() {
        let name = format!("{name} {}", below.get_name());
        runnable(below, name.trim(), found);
    }
}

/// The subcommand with this name.
pub(super) fn find<'a>(command: &'a Command, name: &str) -> &'a Command {
    name.split(' ').fold(command, |command, word| {
        let found = command.find_subcommand(word);
        found.unwrap_or_else(|| panic!("there is no command {name}"))
    })
}

#[test]
fn every_command_that_takes_something_away_is_in_the_table() {
    let mut all = BTreeSet::new();
    runnable(&Cli::command(), "", &mut all);
    let mut listed: BTreeSet<String> = HARMLESS.iter().map(|&name| name.to_owned()).collect();
    for Loss { command, .. } in rows() {
        assert!(listed.insert(command.clone()), "{command} is listed twice");
    }
    assert_eq!(listed, all);
}

#[test]
fn each_command_asks_what_the_table_says() {
    let cli = Cli::command();
    for Loss {
        command: name,
        asks,
        ..
    } in rows()
    {
        let command = find(&cli, &name);
        for word in asks.split('`').skip(1).step_by(2) {
            let Some(option) = word.strip_prefix("--") else {
                continue;
            };
            let argument = command
                .get_arguments()
                .find(|a| a.get_long() == Some(option));
            let argument = argument.unwrap_or_else(|| panic!("ctl {name} has no {word}"));
            assert!(
                argument.is_required_set() || !asks.starts_with("always"),
                "ctl {name} runs without {word}"
            );
        }
        // If `--force` requires the name of the cluster, it is refused without it.
        if asks.contains("`--force` and `--cluster`") {
            let mut line = vec!["ctl".to_owned()];
            line.extend(name.split(' ').map(str::to_owned));
            let positionals = command.get_positionals().filter(|a| a.is_required_set());
            line.extend(positionals.map(|_| "worker".to_owned()));
            line.push("--force".to_owned());
            let error = Cli::try_parse_from(&line).map(drop).unwrap_err();
            assert!(error.to_string().contains("--cluster"), "{line:?}: {error}");
        }
    }
}
