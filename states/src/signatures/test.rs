//! `test.*`: for trying out requisites.

use super::{arg, on_minion};
use crate::signature::{Arg, Kind, Signature};

const COMMENT: Arg = arg("comment", Kind::Text, "The comment of the return.");

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion("test", "nop", "Does nothing.", &[COMMENT]),
    on_minion(
        "test",
        "succeed_without_changes",
        "Succeeds and changes nothing.",
        &[COMMENT],
    ),
    on_minion(
        "test",
        "succeed_with_changes",
        "Succeeds and says that it changed something.",
        &[COMMENT],
    ),
    on_minion(
        "test",
        "fail_without_changes",
        "Fails and changes nothing.",
        &[COMMENT],
    ),
    on_minion(
        "test",
        "fail_with_changes",
        "Fails and says that it changed something.",
        &[COMMENT],
    ),
    on_minion(
        "test",
        "configurable_test_state",
        "Succeeds or fails, with or without changes, as told.",
        &[
            arg(
                "changes",
                Kind::Boolean,
                "Whether it says that it changed something (default true).",
            ),
            arg(
                "result",
                Kind::Boolean,
                "Whether it succeeds (default true).",
            ),
            COMMENT,
        ],
    ),
    on_minion(
        "test",
        "show_notification",
        "Shows a text as its comment.",
        &[arg("text", Kind::Text, "The text.")],
    ),
];
