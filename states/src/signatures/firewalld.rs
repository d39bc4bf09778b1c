//! `firewalld.*`

use super::{arg, on_minion, required};
use crate::signature::{Arg, Kind, Signature};

const DESCRIPTION: Arg = arg("description", Kind::Text, "For people.");
const SERVICES: Arg = arg(
    "services",
    Kind::TextList,
    "Services that are let in, by firewalld's names.",
);
const PORTS: Arg = arg(
    "ports",
    Kind::TextList,
    "Ports that are let in: `port/protocol` or `first-last/protocol`.",
);
const PROTOCOLS: Arg = arg(
    "protocols",
    Kind::TextList,
    "IP protocols that are let in, for example `vrrp`.",
);
const RICH: Arg = arg(
    "rich_rules",
    Kind::TextList,
    "Rich rules, in firewalld.richlanguage(5).",
);
const MASQUERADE: Arg = arg(
    "masquerade",
    Kind::Boolean,
    "Masquerade what leaves (default false).",
);

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "firewalld",
        "zone",
        "A zone with exactly these settings, in the permanent and the running configuration.",
        &[
            DESCRIPTION,
            arg(
                "target",
                Kind::Text,
                "`default` (default), `ACCEPT`, `DROP` or `REJECT`.",
            ),
            SERVICES,
            PORTS,
            PROTOCOLS,
            arg(
                "sources",
                Kind::TextList,
                "Source addresses and networks that belong to the zone.",
            ),
            arg(
                "interfaces",
                Kind::TextList,
                "Interfaces that belong to the zone.",
            ),
            RICH,
            MASQUERADE,
            arg(
                "forward",
                Kind::Boolean,
                "Forward within the zone (default false).",
            ),
        ],
    ),
    on_minion(
        "firewalld",
        "policy",
        "A policy with exactly these settings, in the permanent and the running configuration.",
        &[
            DESCRIPTION,
            arg(
                "target",
                Kind::Text,
                "`CONTINUE` (default), `ACCEPT`, `DROP` or `REJECT`.",
            ),
            required(
                "ingress_zones",
                Kind::TextList,
                "Zones, `HOST` or `ANY`: where traffic comes from.",
            ),
            required(
                "egress_zones",
                Kind::TextList,
                "Zones, `HOST` or `ANY`: where traffic goes.",
            ),
            arg(
                "priority",
                Kind::Integer,
                "Order; negative goes before the zones' rules (default -1).",
            ),
            SERVICES,
            PORTS,
            PROTOCOLS,
            RICH,
            MASQUERADE,
        ],
    ),
    on_minion(
        "firewalld",
        "owned",
        "No zones and policies named `halite-…` but the listed ones.",
        &[
            arg("zones", Kind::TextList, "Zones to keep."),
            arg("policies", Kind::TextList, "Policies to keep."),
        ],
    ),
];
