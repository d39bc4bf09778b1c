//! `user.*` and `group.*`

use super::{arg, on_minion};
use crate::signature::{Kind, Signature};

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "user",
        "present",
        "A user account.",
        &[
            arg(
                "uid",
                Kind::Integer,
                "User id (default: the system's choice).",
            ),
            arg(
                "gid",
                Kind::Text,
                "Primary group, name or number (default: a group of the user's name).",
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
                "Make the home directory of a new user (default true; system users: false).",
            ),
            arg("shell", Kind::Text, "Login shell."),
            arg("fullname", Kind::Text, "Full name (GECOS)."),
            arg(
                "system",
                Kind::Boolean,
                "A new user is a system user (default false).",
            ),
        ],
    ),
    on_minion(
        "user",
        "absent",
        "No such user account.",
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
                "Group id (default: the system's choice).",
            ),
            arg(
                "system",
                Kind::Boolean,
                "A new group is a system group (default false).",
            ),
            arg("members", Kind::TextList, "Exactly these members."),
            arg("addusers", Kind::TextList, "At least these members."),
            arg("delusers", Kind::TextList, "None of these members."),
        ],
    ),
    on_minion("group", "absent", "No such group.", &[]),
];
