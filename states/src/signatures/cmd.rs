//! Signatures of `cmd.*`.

use crate::signature::{Arg, ArgumentKind, COUNT, Signature, arg, on_minion};

const ARGS: &[Arg] = &[
    arg(
        "cwd",
        ArgumentKind::Text,
        "Working directory (default: the home of `runas` or root, `/` if there is none).",
    ),
    arg(
        "env",
        ArgumentKind::Variables,
        "Variables: a mapping, or a list of mappings. The others are `HOME`, `USER` and `LOGNAME` of `runas` or root, `PATH`, and `LANG` and `LC_ALL` of `C.UTF-8`.",
    ),
    arg(
        "prepend_path",
        ArgumentKind::Text,
        "Directories, separated by colons, that come before those of `PATH`.",
    ),
    arg(
        "umask",
        ArgumentKind::Mode,
        "Permission bits that new files do not get (default 0022).",
    ),
    arg(
        "shell",
        ArgumentKind::Text,
        "Shell that runs the line (default `/bin/sh`).",
    ),
    arg(
        "stdin",
        ArgumentKind::Text,
        "Text written to standard input; pass secrets here.",
    ),
    arg(
        "timeout",
        COUNT,
        "Seconds until the command is killed and fails (default: no limit).",
    ),
    arg(
        "success_retcodes",
        ArgumentKind::Codes,
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
