//! Signatures of `cmd.*`.

use crate::signature::{Arg, Kind, Signature, arg, on_minion};

const ARGS: &[Arg] = &[
    arg("cwd", Kind::Text, "Working directory (default `/`)."),
    arg(
        "env",
        Kind::Any,
        "Variables: a mapping, or a list of mappings.",
    ),
    arg(
        "shell",
        Kind::Text,
        "Shell that runs the line (default `/bin/sh`).",
    ),
    arg(
        "stdin",
        Kind::Text,
        "Text written to standard input; pass secrets here.",
    ),
    arg(
        "timeout",
        Kind::Integer,
        "Seconds until the command is killed and fails (default: no limit).",
    ),
    arg(
        "success_retcodes",
        Kind::Any,
        "Exit codes other than 0 that mean success: a number, or a list of numbers.",
    ),
];

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "cmd",
        "run",
        "Runs a shell command in every run, unless `unless`, `onlyif`, `creates` or `onchanges` prevent it.",
        ARGS,
    ),
    on_minion(
        "cmd",
        "wait",
        "Runs a shell command when a watched state changed.",
        ARGS,
    ),
];
