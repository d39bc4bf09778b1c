//! Groups and examples in the help texts, topics, and the commands about this program.

use clap::{Args, Command, ValueEnum};

/// The commands in the groups of `ctl --help`.
pub(super) const GROUPS: &[(&str, &[&str])] = &[
    (
        "Set up and change a cluster",
        &["bootstrap", "node", "upgrade", "master", "etcd", "destroy"],
    ),
    (
        "Watch and repair",
        &[
            "status",
            "health",
            "notify",
            "certs",
            "highstate",
            "apply",
            "events",
            "logs",
            "support",
        ],
    ),
    (
        "Work on hosts",
        &[
            "ping",
            "grains",
            "pillar",
            "render",
            "cmd",
            "job",
            "orchestrate",
            "local",
        ],
    ),
    (
        "Bundles, images and backups",
        &["bundle", "images", "registry", "backup"],
    ),
    (
        "Access",
        &["key", "token", "operator", "audit", "kubeconfig", "context"],
    ),
    (
        "Documents, and this program",
        &["config", "secrets", "version", "completion", "help"],
    ),
];

/// Command lines with remarks, for the help texts of their commands.
const EXAMPLES: &str = include_str!("examples.txt");

/// Texts of `ctl help TOPIC`, by name.
const TOPICS: &[(&str, &str)] = &[
    ("contexts", include_str!("topics/contexts.txt")),
    ("exit-codes", include_str!("topics/exit-codes.txt")),
    ("output", include_str!("topics/output.txt")),
    ("targets", include_str!("topics/targets.txt")),
    ("times", include_str!("topics/times.txt")),
];

/// `ctl help`.
#[derive(Debug, Args)]
pub struct Help {
    /// A command, for example `node add`; or a topic: contexts, exit-codes, output, targets, times.
    pub words: Vec<String>,
}

/// `ctl version`.
#[derive(Debug, Args)]
pub struct Version {
    /// Show only the version of this program; do not contact the master.
    #[arg(long)]
    pub client: bool,
}

/// `ctl completion`.
#[derive(Debug, Args)]
pub struct Completion {
    /// The shell.
    pub shell: Shell,
}

/// A shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// The text about a topic.
pub fn topic(name: &str) -> Option<&'static str> {
    let found = TOPICS.iter().find(|(topic, _)| *topic == name);
    found.map(|(_, text)| *text)
}

/// Adds groups and examples to the definition of the command line.
pub(super) fn complete(root: Command) -> Command {
    let template = template(&root);
    with_examples(root, "ctl").help_template(template)
}

/// The help of `ctl`, with its commands in groups.
fn template(root: &Command) -> String {
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        text.push_str(&format!("\n{group}:\n"));
        for name in *names {
            let about = root.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            // The rest is in the command's own help.
            let first = about.split(['.', ':', ';']).next().unwrap_or_default();
            text.push_str(&format!("  {name:12} {first}\n"));
        }
    }
    text.push_str("\nOptions:\n{options}\n\n{after-help}");
    text
}

/// Adds to each command below `path` its examples; a group of commands gets one example from each
/// of its first two commands.
fn with_examples(command: Command, path: &str) -> Command {
    let own = examples(&command, path);
    let command = match own.is_empty() {
        true => command,
        false => command.after_help(format!("Examples:\n{}", own.join("\n"))),
    };
    let path = path.to_owned();
    command.mut_subcommands(move |below| {
        let path = format!("{path} {}", below.get_name());
        with_examples(below, &path)
    })
}

fn examples(command: &Command, path: &str) -> Vec<String> {
    let own = |path: &str, command: &Command| -> Vec<String> {
        let begins = |line: &&str| {
            let rest = line.strip_prefix(path).map(|rest| rest.trim_start());
            // Not the examples of its subcommands.
            rest.is_some_and(|rest| {
                let next = rest.split(' ').next().unwrap_or_default();
                line.len() == path.len()
                    || line[path.len()..].starts_with(' ')
                        && command.find_subcommand(next).is_none()
            })
        };
        let lines = EXAMPLES.lines().filter(begins);
        lines.map(|line| format!("  {line}")).collect()
    };
    let mut found = own(path, command);
    let below = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    if found.is_empty() {
        let firsts = below.map(|below| own(&format!("{path} {}", below.get_name()), below));
        found = firsts
            .filter_map(|all| all.into_iter().next())
            .take(2)
            .collect();
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;
    use halite_cli::{builder, master, minion};

    use super::*;
    use crate::cli::{Cli, command};

    fn visible(command: &Command) -> impl Iterator<Item = &Command> {
        command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
    }

    #[test]
    fn every_command_is_in_one_group() {
        let root = Cli::command();
        let all: BTreeSet<&str> = visible(&root).map(Command::get_name).collect();
        let names: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let grouped: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(grouped.len(), names.len(), "{names:?}");
        assert_eq!(grouped, all);
    }

    /// Calls `check` with the words of each visible command, and its examples.
    fn each(command: &Command, path: &str, check: &mut impl FnMut(&str, &[&str])) {
        let text = command.get_after_help();
        let text = text.map(ToString::to_string).unwrap_or_default();
        let examples = text.strip_prefix("Examples:\n").unwrap_or_default();
        let examples: Vec<&str> = examples.lines().map(str::trim).collect();
        check(path, &examples);
        for below in visible(command) {
            each(below, &format!("{path} {}", below.get_name()), check);
        }
    }

    /// The programs that people run.
    fn programs() -> [Command; 4] {
        [
            command(),
            builder::Cli::command(),
            master::Cli::command(),
            minion::Arguments::command(),
        ]
    }

    #[test]
    fn every_help_text_has_two_valid_examples() {
        for program in programs() {
            let name = program.get_name();
            each(&program, name, &mut |path, examples| {
                assert!(examples.len() >= 2 || path == "ctl", "{path}: {examples:?}");
                for line in examples {
                    let line = line.split("  #").next().unwrap_or_default();
                    assert!(line.starts_with(path), "{path}: {line}");
                    let words = line.split_whitespace().map(|word| word.trim_matches('\''));
                    let words = words.take_while(|word| *word != "|");
                    if let Err(error) = program.clone().try_get_matches_from(words) {
                        panic!("{line}: {error}");
                    }
                }
            });
        }
    }

    #[test]
    fn every_line_of_examples_is_in_a_help_text() {
        let mut shown = BTreeSet::new();
        each(&command(), "ctl", &mut |_, examples| {
            shown.extend(examples.iter().map(ToString::to_string));
        });
        let lost: Vec<&str> = (EXAMPLES.lines())
            .filter(|line| !shown.contains(*line))
            .collect();
        assert!(lost.is_empty(), "{lost:?}");
    }

    #[test]
    fn the_help_of_ctl_fits_a_terminal_of_80_columns_and_names_every_topic() {
        let help = command().render_help().to_string();
        let (groups, _) = help.split_once("Options:").unwrap();
        for line in groups.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let about = command()
            .find_subcommand_mut("help")
            .unwrap()
            .render_long_help()
            .to_string();
        for (name, text) in TOPICS {
            assert!(about.contains(name), "{about}");
            assert!(
                text.ends_with('\n') && text.lines().all(|line| line.chars().count() <= 80),
                "{name}"
            );
        }
        assert_eq!(topic("absent"), None);
    }
}
