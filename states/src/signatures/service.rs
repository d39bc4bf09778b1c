//! `service.*`

use super::{arg, on_minion};
use crate::signature::{Arg, Kind, Signature};

const ENABLE: Arg = arg(
    "enable",
    Kind::Boolean,
    "Whether it is to start at boot (default: left as it is).",
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
                Kind::Boolean,
                "A watched change reloads instead of restarting (default false).",
            ),
            arg("unmask", Kind::Boolean, "Unmask it first (default false)."),
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
    on_minion("service", "masked", "A unit that nothing can start.", &[]),
];
