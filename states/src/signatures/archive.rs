//! `archive.*`

use super::{arg, on_minion, required};
use crate::signature::{Kind, Signature};

pub(super) const SIGNATURES: &[Signature] = &[on_minion(
    "archive",
    "extracted",
    "A directory that holds the files of an archive (tar or gzipped tar).",
    &[
        required(
            "source",
            Kind::Text,
            "`salt://path`, `bundle://path`, or an absolute path on the host.",
        ),
        arg(
            "strip",
            Kind::Integer,
            "Leading path components to drop from every name (default 0).",
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
            "Remove what the archive does not have (default false).",
        ),
    ],
)];
