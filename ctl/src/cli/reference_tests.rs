//! Generates the reference of the commands (docs/reference/ctl.md) from the definition of the
//! command line.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};
use halite_cli::output::CLOSED_PIPE;

use super::help::GROUPS;
use super::{command, loss_tests, topic};

const HEAD: &str = include_str!("reference_head.txt");

/// A text as the cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// A help text with its last full stop, which clap removes.
fn sentence(text: &str) -> String {
    match text.ends_with(['.', '!', '?']) {
        true => text.to_owned(),
        false => format!("{text}."),
    }
}

/// The first sentence of a help text.
fn first_sentence(text: &str) -> String {
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let mut sentences = paragraph.split(". ");
    sentence(sentences.next().unwrap_or_default())
}

fn about(command: &Command) -> String {
    let text = command.get_long_about().or(command.get_about());
    sentence(&text.map(ToString::to_string).unwrap_or_default())
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    let below = command.get_subcommands();
    below.filter(|below| !below.is_hide_set() && below.get_name() != "help")
}

/// The exit codes in the text of `ctl help exit-codes`, with their meanings.
fn exit_codes() -> Vec<(i32, String)> {
    let mut found: Vec<(i32, String)> = Vec::new();
    for line in topic("exit-codes").unwrap().lines() {
        let line = line.trim_start();
        match line.split_once(' ') {
            Some((code, text)) if code.parse::<i32>().is_ok() => {
                found.push((code.parse().unwrap(), text.trim().to_owned()));
            }
            _ => {
                let (_, text) = found.last_mut().unwrap();
                let _ = write!(text, " {line}");
            }
        }
    }
    found
}

/// An argument as it is written: `HOST`, `--timeout TIME`.
fn written(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default();
    let mut value: Vec<String> = values.iter().map(ToString::to_string).collect();
    let is_list = matches!(arg.get_action(), ArgAction::Append) && arg.get_long().is_none();
    if is_list {
        value.push("…".to_owned());
    }
    let takes_value = arg.get_action().takes_values();
    let value = if takes_value {
        value.join(" ")
    } else {
        String::new()
    };
    let long = arg.get_long().map(|long| format!("--{long}"));
    let Some(long) = long else {
        return format!("`{value}`");
    };
    let long = format!("{long} {value}");
    match arg.get_short() {
        Some(short) => format!("`-{short}`, `{}`", long.trim_end()),
        None => format!("`{}`", long.trim_end()),
    }
}

/// The default of an argument.
fn default(arg: &Arg) -> String {
    if arg.is_required_set() {
        return "required".to_owned();
    }
    let values: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .filter(|value| !value.is_empty())
        .collect();
    let is_flag = !arg.get_action().takes_values();
    match values.is_empty() || is_flag || arg.is_hide_default_value_set() {
        true => String::new(),
        false => format!("`{}`", values.join(",")),
    }
}

/// The help of an argument, with its possible values.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help());
    let text = help.map(ToString::to_string).unwrap_or_default();
    assert!(!text.is_empty(), "{} has no help", arg.get_id());
    let mut text = sentence(&text);
    let values: Vec<String> = match arg.get_action().takes_values() {
        true => (arg.get_possible_values().iter())
            .map(|value| format!("`{}`", value.get_name()))
            .collect(),
        false => Vec::new(),
    };
    if !values.is_empty() {
        let _ = write!(text, " One of {}.", values.join(", "));
    }
    text
}

/// Writes the table of some arguments.
fn table<'a>(arguments: impl Iterator<Item = &'a Arg>, out: &mut String) {
    let mut rows = String::new();
    for arg in arguments.filter(|arg| !arg.is_hide_set()) {
        let cells = [written(arg), default(arg), meaning(arg)].map(|text| cell(&text));
        let _ = writeln!(rows, "| {} |", cells.join(" | "));
    }
    if !rows.is_empty() {
        out.push_str("\n| argument or option | default | meaning |\n|---|---|---|\n");
        out.push_str(&rows);
    }
}

/// Writes the section of a command, then those of its subcommands. `name` is without `ctl`.
fn section(command: &Command, name: &str, out: &mut String) {
    let level = if name.contains(' ') { "####" } else { "###" };
    let _ = write!(out, "\n{level} ctl {name}\n\n{}\n", about(command));
    let usage = command.clone().render_usage().to_string();
    let usage: Vec<String> = usage
        .trim_start_matches("Usage:")
        .lines()
        .map(|line| format!("`{}`", line.trim()))
        .collect();
    let _ = write!(out, "\nUsage: {}\n", usage.join(" or "));
    for loss in loss_tests::rows() {
        if loss.command == name {
            let _ = write!(
                out,
                "\n- Takes away: {}.\n- Asks first: {}.\n",
                loss.takes_away, loss.asks
            );
        }
    }
    if visible(command).next().is_some() {
        out.push('\n');
    }
    for below in visible(command) {
        let (about, path) = (about(below), format!("ctl {name} {}", below.get_name()));
        let _ = writeln!(
            out,
            "- [{path}](#{}): {}",
            path.replace(' ', "-"),
            first_sentence(&about)
        );
    }
    let own = |arg: &&Arg| !arg.is_global_set() && arg.get_id() != "help";
    let (positional, options): (Vec<&Arg>, Vec<&Arg>) = (command.get_arguments())
        .filter(own)
        .partition(|arg| arg.is_positional());
    table(positional.into_iter().chain(options), out);
    let examples = command.get_after_help().map(ToString::to_string);
    let examples = examples.unwrap_or_default().replace("Examples:\n", "");
    // The examples of a group are those of its commands.
    if visible(command).next().is_none() || command.is_args_conflicts_with_subcommands_set() {
        out.push_str("\n```sh\n");
        for line in examples.lines() {
            let _ = writeln!(out, "{}", line.trim());
        }
        out.push_str("```\n");
    }
    for below in visible(command) {
        section(below, &format!("{name} {}", below.get_name()), out);
    }
}

fn reference() -> String {
    let mut root = command();
    root.build();
    let mut out = HEAD.to_owned();
    out.push_str("\n## Exit codes\n\n| code | meaning |\n|---|---|\n");
    for (code, meaning) in exit_codes() {
        let _ = writeln!(out, "| {code} | {} |", cell(&meaning));
    }
    out.push_str("\n## Options of every command\n");
    table(
        root.get_arguments().filter(|arg| arg.is_global_set()),
        &mut out,
    );
    for (group, names) in GROUPS {
        let _ = write!(out, "\n## {group}\n");
        for name in *names {
            section(root.find_subcommand(name).unwrap(), name, &mut out);
        }
    }
    out
}

#[test]
fn the_reference_in_docs_is_current() {
    halite_golden::check_reference("ctl.md", &reference());
}

#[test]
fn the_exit_codes_of_the_help_are_those_of_the_program() {
    let codes: Vec<i32> = exit_codes().into_iter().map(|(code, _)| code).collect();
    let own = [
        0,
        crate::FAILED,
        crate::WOULD_CHANGE,
        crate::INCOMPLETE,
        crate::USAGE,
    ];
    let mut own = own.map(i32::from).to_vec();
    own.push(CLOSED_PIPE);
    assert_eq!(codes, own);
}
