//! Spellings of earlier versions. They are refused like every unknown word; the error names the
//! current spelling.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, Error};

use super::Cli;

/// The command, its removed option, and the text to write instead.
const REMOVED: &[(&str, &str, &str)] = &[
    (
        "apply",
        "--target",
        "name the target first: ctl apply TARGET SLS…",
    ),
    (
        "apply",
        "-t",
        "name the target first: ctl apply TARGET SLS…",
    ),
    ("backup create", "--to", "write --out DIRECTORY"),
    ("backup get", "--file", "write --out FILE"),
    ("backup get", "-f", "write --out FILE"),
    ("bootstrap", "--ca-fingerprint", "write --ca-hash HASH"),
    (
        "etcd defrag",
        "--member",
        "name the host first: ctl etcd defrag HOST",
    ),
    (
        "etcd recover",
        "--from",
        "name the host first: ctl etcd recover HOST",
    ),
    ("kubeconfig", "--file", "write --out FILE"),
    ("kubeconfig", "-f", "write --out FILE"),
    (
        "local apply",
        "--timeout",
        "omit it: states on this host have no time limit",
    ),
    (
        "operator create",
        "--days",
        "write --ttl with a unit, such as --ttl 30d",
    ),
    ("registry backup", "--to", "write --out DIRECTORY"),
    (
        "registry restore",
        "--without-damaged",
        "restore an intact backup: ctl registry verify names the damaged blobs",
    ),
    ("support", "--file", "write --out FILE"),
    ("support", "-f", "write --out FILE"),
];

/// Adds the current spelling to the error of a command line that has an earlier one.
pub fn explain(mut error: Error, words: &[String]) -> Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let command = command(words);
    let found = (REMOVED.iter())
        .find(|(of, removed, _)| *of == command && option.split('=').next() == Some(removed));
    if let Some((_, _, instead)) = found {
        let text = vec![(*instead).into()];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(text));
        error.remove(ContextKind::SuggestedArg);
    }
    error
}

/// The names of the commands in a command line: `backup get`.
fn command(words: &[String]) -> String {
    let root = Cli::command();
    let mut at: &Command = &root;
    let mut names = Vec::new();
    for word in words.iter().skip(1) {
        if let Some(below) = at.find_subcommand(word) {
            names.push(below.get_name());
            at = below;
        }
    }
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn error(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Cli::try_parse_from(&words).unwrap_err();
        explain(error, &words).to_string()
    }

    #[test]
    fn an_earlier_spelling_is_refused_with_the_one_of_today() {
        for (command, option, instead) in REMOVED {
            let said = error(&format!("ctl -o json {command} {option} x"));
            assert!(said.contains(instead), "{command} {option}: {said}");
            assert!(said.contains("unexpected argument"), "{said}");
        }
        let said = error("ctl kubeconfig --file=x");
        assert!(said.contains("--out FILE"), "{said}");
        // An option of another command, and one that never existed.
        for line in ["ctl status --file x", "ctl support --frobnicate"] {
            assert!(!error(line).contains("--out"), "{line}");
        }
    }

    #[test]
    fn a_time_without_a_unit_is_refused_with_the_form() {
        for line in [
            "ctl highstate --timeout 300",
            "ctl node drain a --grace-period 5",
            "ctl token create --ttl 24",
        ] {
            assert!(error(line).contains("30s, 15m"), "{line}: {}", error(line));
        }
    }
}
