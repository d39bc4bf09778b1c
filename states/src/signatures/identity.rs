//! Signatures of `user.*` and `group.*`.

use crate::signature::{ArgumentKind, COUNT, Signature, arg, on_minion};

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "user",
        "present",
        "A user account.",
        &[
            arg("uid", COUNT, "User id (default: chosen by the system)."),
            arg(
                "gid",
                ArgumentKind::Text,
                "Primary group, name or number (default: a group with the user's name).",
            ),
            arg("groups", ArgumentKind::TextList, "Supplementary groups."),
            arg(
                "remove_groups",
                ArgumentKind::Boolean,
                "Leave supplementary groups that are not listed (default true).",
            ),
            arg("home", ArgumentKind::Text, "Home directory."),
            arg(
                "createhome",
                ArgumentKind::Boolean,
                "Create the home directory of a new user (default true; false for system users).",
            ),
            arg("shell", ArgumentKind::Text, "Login shell."),
            arg("fullname", ArgumentKind::Text, "Full name (GECOS)."),
            arg(
                "system",
                ArgumentKind::Boolean,
                "Create a new user as a system user (default false).",
            ),
        ],
    ),
    on_minion(
        "user",
        "absent",
        "No user account with that name.",
        &[arg(
            "purge",
            ArgumentKind::Boolean,
            "Remove the home directory too (default false).",
        )],
    ),
    on_minion(
        "group",
        "present",
        "A group.",
        &[
            arg("gid", COUNT, "Group id (default: chosen by the system)."),
            arg(
                "system",
                ArgumentKind::Boolean,
                "Create a new group as a system group (default false).",
            ),
            arg(
                "members",
                ArgumentKind::TextList,
                "The exact list of members.",
            ),
            arg(
                "addusers",
                ArgumentKind::TextList,
                "Users that must be members.",
            ),
            arg(
                "delusers",
                ArgumentKind::TextList,
                "Users that must not be members.",
            ),
        ],
    ),
    on_minion("group", "absent", "No group with that name.", &[]),
];
