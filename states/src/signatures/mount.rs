//! `mount.*` and `swap.*`

use super::{arg, on_minion, required};
use crate::signature::{Kind, Signature};

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "mount",
        "mounted",
        "A mounted file system.",
        &[
            required("device", Kind::Text, "Device or source, as in fstab(5)."),
            required("fstype", Kind::Text, "File system type."),
            arg("opts", Kind::TextList, "Options (default `defaults`)."),
            arg(
                "mkmnt",
                Kind::Boolean,
                "Make the mount point (default false).",
            ),
            arg("dump", Kind::Integer, "fstab(5)'s fifth field (default 0)."),
            arg(
                "pass_num",
                Kind::Integer,
                "fstab(5)'s sixth field (default 0).",
            ),
            arg(
                "persist",
                Kind::Boolean,
                "Keep it in `/etc/fstab` (default true).",
            ),
            arg("mount", Kind::Boolean, "Mount it now (default true)."),
        ],
    ),
    on_minion(
        "mount",
        "unmounted",
        "Nothing mounted at that path.",
        &[
            arg(
                "device",
                Kind::Text,
                "Only when this is the mounted device.",
            ),
            arg(
                "persist",
                Kind::Boolean,
                "Remove it from `/etc/fstab` too (default false).",
            ),
        ],
    ),
    on_minion(
        "swap",
        "absent",
        "No swap on a device or file (the name), or none at all (`all`): off now, its line in `/etc/fstab` commented out.",
        &[],
    ),
];
