//! `sysctl.*` and `kmod.*`

use super::{arg, on_minion};
use crate::signature::{Kind, Signature};

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "sysctl",
        "present",
        "A kernel parameter, now and after a boot.",
        &[
            arg(
                "value",
                Kind::Any,
                "The value; without one, or with null, the parameter is left alone.",
            ),
            arg(
                "config",
                Kind::Text,
                "File that keeps it (default `/etc/sysctl.d/99-halite.conf`).",
            ),
        ],
    ),
    on_minion(
        "kmod",
        "present",
        "A kernel module, loaded now and after a boot.",
        &[
            arg("mods", Kind::TextList, "Modules, instead of the name."),
            arg(
                "persist",
                Kind::Boolean,
                "Load after a boot too, by `/etc/modules-load.d/halite.conf` (default true).",
            ),
        ],
    ),
];
