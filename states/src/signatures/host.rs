//! Signatures of `host.*`.

use crate::signature::{ArgumentKind, Signature, arg, on_minion, required};

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "host",
        "absent",
        "A host name that is not in `/etc/hosts` at the given addresses; its other addresses, other lines, names and comments are kept.",
        &[required(
            "ip",
            ArgumentKind::Addresses,
            "Addresses that lose the name.",
        )],
    ),
    on_minion(
        "host",
        "present",
        "A host name in `/etc/hosts`; other lines, names and comments are kept.",
        &[
            required("ip", ArgumentKind::Addresses, "Addresses of the name."),
            arg(
                "clean",
                ArgumentKind::Boolean,
                "Remove the name from all other addresses (default false, as in Salt; the comment names them).",
            ),
        ],
    ),
];
