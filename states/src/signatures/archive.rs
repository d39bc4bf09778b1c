//! Signatures of `archive.*`.

use crate::signature::{ArgumentKind, COUNT, Signature, arg, on_minion, required};

pub(super) const SIGNATURES: &[Signature] = &[on_minion(
    "archive",
    "extracted",
    "A directory with the files of an archive (tar or gzipped tar).",
    &[
        required(
            "source",
            ArgumentKind::Text,
            "`salt://path`, `bundle://path`, or an absolute path on the host.",
        ),
        arg(
            "strip",
            COUNT,
            "Leading path components to remove from every name (default 0).",
        ),
        arg(
            "user",
            ArgumentKind::Text,
            "Owner of everything from the archive (default root).",
        ),
        arg(
            "group",
            ArgumentKind::Text,
            "Group of everything from the archive (default root).",
        ),
        arg(
            "if_missing",
            ArgumentKind::Path,
            "Do nothing when this path exists.",
        ),
        arg(
            "clean",
            ArgumentKind::Boolean,
            "Remove files that the archive does not contain (default false).",
        ),
    ],
)];
