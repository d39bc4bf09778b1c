//! Signatures of `sysctl.*` and `kmod.*`.

use crate::signature::{ArgumentKind, Signature, arg, on_minion};

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "sysctl",
        "present",
        "A kernel parameter, set now and at boot.",
        &[
            arg(
                "value",
                ArgumentKind::Scalar,
                "The value; without it, or with null, the parameter is not changed.",
            ),
            arg(
                "config",
                ArgumentKind::Path,
                "File that sets it at boot (default `/etc/sysctl.d/zz-halite.conf`).",
            ),
        ],
    ),
    on_minion(
        "kmod",
        "present",
        "A kernel module, loaded now.",
        &[
            arg(
                "mods",
                ArgumentKind::TextList,
                "Modules, instead of the name.",
            ),
            arg(
                "persist",
                ArgumentKind::Boolean,
                "Also load it at boot, by `/etc/modules-load.d/halite.conf` (default false, as in Salt).",
            ),
        ],
    ),
];
