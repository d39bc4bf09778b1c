//! `cmd.*`

use super::{arg, on_minion};
use crate::signature::{Arg, Kind, Signature};

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
        "Written to standard input; the place for secrets.",
    ),
    arg(
        "timeout",
        Kind::Integer,
        "Seconds after which it is killed and has failed (default: none).",
    ),
    arg(
        "success_retcodes",
        Kind::Any,
        "Exit codes that mean success besides 0: a number, or a list of numbers.",
    ),
];

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "cmd",
        "run",
        "Runs a shell command, always, unless `unless`, `onlyif`, `creates` or `onchanges` say no.",
        ARGS,
    ),
    on_minion(
        "cmd",
        "wait",
        "Runs a shell command when a watched state changed.",
        ARGS,
    ),
];
