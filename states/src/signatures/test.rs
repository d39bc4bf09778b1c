//! Signatures of `test.*`: functions for testing requisites.

use crate::signature::{Arg, ArgumentKind, Signature, arg, on_minion};

const COMMENT: Arg = arg("comment", ArgumentKind::Text, "The comment of the return.");

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
        "Succeeds and reports a change.",
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
        "Fails and reports a change.",
        &[COMMENT],
    ),
    on_minion(
        "test",
        "configurable_test_state",
        "Succeeds or fails, with or without changes, as its arguments say.",
        &[
            arg(
                "changes",
                ArgumentKind::Boolean,
                "Whether it reports a change (default true).",
            ),
            arg(
                "result",
                ArgumentKind::Boolean,
                "Whether it succeeds (default true).",
            ),
            COMMENT,
        ],
    ),
    on_minion(
        "test",
        "show_notification",
        "Returns a text as its comment.",
        &[arg("text", ArgumentKind::Text, "The text.")],
    ),
];
