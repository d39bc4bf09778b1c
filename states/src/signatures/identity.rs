//! Signatures of `user.*` and `group.*`.

use crate::signature::{Kind, Signature, arg, on_minion};

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "user",
        "present",
        "A user account.",
        &[
            arg(
                "uid",
                Kind::Integer,
                "User id (default: chosen by the system).",
            ),
            arg(
                "gid",
                Kind::Text,
                "Primary group, name or number (default: a group with the user's name).",
            ),
            arg("groups", Kind::TextList, "Supplementary groups."),
            arg(
                "remove_groups",
                Kind::Boolean,
                "Leave supplementary groups that are not listed (default true).",
            ),
            arg("home", Kind::Text, "Home directory."),
            arg(
                "createhome",
                Kind::Boolean,
                "Create the home directory of a new user (default true; false for system users).",
            ),
            arg("shell", Kind::Text, "Login shell."),
            arg("fullname", Kind::Text, "Full name (GECOS)."),
            arg(
                "system",
                Kind::Boolean,
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
            Kind::Boolean,
            "Remove the home directory too (default false).",
        )],
    ),
    on_minion(
        "group",
        "present",
        "A group.",
        &[
            arg(
                "gid",
                Kind::Integer,
                "Group id (default: chosen by the system).",
            ),
            arg(
                "system",
                Kind::Boolean,
                "Create a new group as a system group (default false).",
            ),
            arg("members", Kind::TextList, "The exact list of members."),
            arg("addusers", Kind::TextList, "Users that must be members."),
            arg(
                "delusers",
                Kind::TextList,
                "Users that must not be members.",
            ),
        ],
    ),
    on_minion("group", "absent", "No group with that name.", &[]),
];
