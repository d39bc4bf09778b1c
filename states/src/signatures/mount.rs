//! Signatures of `mount.*` and `swap.*`.

use crate::signature::{ArgumentKind, COUNT, Signature, arg, on_minion, required};

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "mount",
        "mounted",
        "A mounted file system.",
        &[
            required(
                "device",
                ArgumentKind::Text,
                "Device or source, as in fstab(5).",
            ),
            required("fstype", ArgumentKind::Text, "File system type."),
            arg(
                "opts",
                ArgumentKind::TextList,
                "Options (default `defaults`).",
            ),
            arg(
                "mkmnt",
                ArgumentKind::Boolean,
                "Create the mount point (default false).",
            ),
            arg("dump", COUNT, "fstab(5)'s fifth field (default 0)."),
            arg("pass_num", COUNT, "fstab(5)'s sixth field (default 0)."),
            arg(
                "persist",
                ArgumentKind::Boolean,
                "Add it to `/etc/fstab` (default true).",
            ),
            arg(
                "mount",
                ArgumentKind::Boolean,
                "Mount it now (default true).",
            ),
        ],
    ),
    on_minion(
        "mount",
        "refused",
        "No file system mounted at these paths. A mounted one is an error, and stays: what Halite wrote there would be hidden or lost with it.",
        &[required("paths", ArgumentKind::TextList, "Directories.")],
    ),
    on_minion(
        "mount",
        "unmounted",
        "No file system mounted at that path.",
        &[
            arg(
                "device",
                ArgumentKind::Text,
                "Unmount only if this is the mounted device.",
            ),
            arg(
                "persist",
                ArgumentKind::Boolean,
                "Also remove it from `/etc/fstab` (default false).",
            ),
        ],
    ),
    on_minion(
        "swap",
        "absent",
        "No swap on a device or file (the name), or anywhere (`all`): switched off, its line in `/etc/fstab` commented out.",
        &[],
    ),
];
