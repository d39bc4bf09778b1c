//! Signatures of `service.*`.

use crate::signature::{Arg, ArgumentKind, Signature, arg, on_minion};

const ENABLE: Arg = arg(
    "enable",
    ArgumentKind::Boolean,
    "Whether the unit starts at boot (default: unchanged).",
);

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "service",
        "running",
        "A running systemd unit; a watched change restarts it.",
        &[
            ENABLE,
            arg(
                "reload",
                ArgumentKind::Boolean,
                "Reload instead of restart on a watched change (default false).",
            ),
            arg(
                "unmask",
                ArgumentKind::Boolean,
                "Unmask the unit first (default false).",
            ),
            arg(
                "only_drop_ins",
                ArgumentKind::TextList,
                "File names of the drop-ins that may change the unit of a package. Others in `/etc/systemd/system` and `/run/systemd/system` are removed, and so is a unit file or alias there that takes the place of the package's (default: all stay).",
            ),
        ],
    ),
    on_minion("service", "dead", "A stopped systemd unit.", &[ENABLE]),
    on_minion("service", "enabled", "A unit that starts at boot.", &[]),
    on_minion(
        "service",
        "disabled",
        "A unit that does not start at boot.",
        &[],
    ),
    on_minion(
        "service",
        "masked",
        "A masked unit, which cannot be started.",
        &[],
    ),
];
