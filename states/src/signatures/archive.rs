//! Signatures of `archive.*`.

use crate::signature::{Kind, Signature, arg, on_minion, required};

pub(super) const SIGNATURES: &[Signature] = &[on_minion(
    "archive",
    "extracted",
    "A directory with the files of an archive (tar or gzipped tar).",
    &[
        required(
            "source",
            Kind::Text,
            "`salt://path`, `bundle://path`, or an absolute path on the host.",
        ),
        arg(
            "strip",
            Kind::Integer,
            "Leading path components to remove from every name (default 0).",
        ),
        arg(
            "user",
            Kind::Text,
            "Owner of everything from the archive (default root).",
        ),
        arg(
            "group",
            Kind::Text,
            "Group of everything from the archive (default root).",
        ),
        arg(
            "if_missing",
            Kind::Text,
            "Do nothing when this path exists.",
        ),
        arg(
            "clean",
            Kind::Boolean,
            "Remove files that the archive does not contain (default false).",
        ),
    ],
)];
