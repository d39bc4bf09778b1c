//! Signatures of `firewalld.*`.

use crate::signature::{Arg, ArgumentKind, Signature, arg, on_minion, required};

const DESCRIPTION: Arg = arg(
    "description",
    ArgumentKind::Text,
    "Description, for people.",
);
const SERVICES: Arg = arg(
    "services",
    ArgumentKind::TextList,
    "Services to allow, by firewalld's names.",
);
const PORTS: Arg = arg(
    "ports",
    ArgumentKind::TextList,
    "Ports to allow: `port/protocol` or `first-last/protocol`.",
);
const PROTOCOLS: Arg = arg(
    "protocols",
    ArgumentKind::TextList,
    "IP protocols to allow, for example `vrrp`.",
);
const RICH: Arg = arg(
    "rich_rules",
    ArgumentKind::TextList,
    "Rich rules, in the language of firewalld.richlanguage(5).",
);
const MASQUERADE: Arg = arg(
    "masquerade",
    ArgumentKind::Boolean,
    "Masquerade outgoing traffic (default false).",
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
                ArgumentKind::Word(&["default", "ACCEPT", "DROP", "REJECT"]),
                "`default` (default), `ACCEPT`, `DROP` or `REJECT`.",
            ),
            SERVICES,
            PORTS,
            PROTOCOLS,
            arg(
                "sources",
                ArgumentKind::TextList,
                "Source addresses and networks that belong to the zone.",
            ),
            arg(
                "interfaces",
                ArgumentKind::TextList,
                "Interfaces that belong to the zone.",
            ),
            RICH,
            MASQUERADE,
            arg(
                "forward",
                ArgumentKind::Boolean,
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
                ArgumentKind::Word(&["CONTINUE", "ACCEPT", "DROP", "REJECT"]),
                "`CONTINUE` (default), `ACCEPT`, `DROP` or `REJECT`.",
            ),
            required(
                "ingress_zones",
                ArgumentKind::TextList,
                "Zones, `HOST` or `ANY`, from which the traffic comes.",
            ),
            required(
                "egress_zones",
                ArgumentKind::TextList,
                "Zones, `HOST` or `ANY`, to which the traffic goes.",
            ),
            arg(
                "priority",
                ArgumentKind::Within(-32_768, 32_767),
                "Priority; a negative one is evaluated before the zones' rules (default -1).",
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
        "ipsets",
        "Sets of IPv4 addresses with exactly these entries, in the permanent and the running configuration. Rules name them \
         as `source ipset=` and `destination ipset=`.",
        &[required(
            "sets",
            ArgumentKind::Mapping,
            "Lists of addresses by name of the set.",
        )],
    ),
    on_minion(
        "firewalld",
        "owned",
        "No zones, policies and sets of addresses named `halite-…` except the listed ones.",
        &[
            arg("zones", ArgumentKind::TextList, "Zones to keep."),
            arg("policies", ArgumentKind::TextList, "Policies to keep."),
            arg(
                "ipsets",
                ArgumentKind::TextList,
                "Sets of addresses to keep.",
            ),
        ],
    ),
];
