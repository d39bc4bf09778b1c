//! Signatures of `etcd.*`.

use crate::signature::{Kind, Signature, arg, on_minion, required};

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "etcd",
        "data",
        "Fails if an etcd member ran on the host and its data is no longer in the directory (the name); changes nothing.",
        &[required(
            "record",
            Kind::Text,
            "The file that exists if a member ran on the host; JSON with the key `member`.",
        )],
    ),
    on_minion(
        "etcd",
        "founded",
        "Makes a new etcd cluster of this host's member if none ever ran here, and records the member in a file (the name): etcd is started once by containerd, with `--initial-cluster-state=new`, until it serves, and its data are moved to their place. A member that ran is only recorded.",
        &[
            required("image", Kind::Text, "The image that has etcd."),
            required(
                "command",
                Kind::TextList,
                "etcd with the arguments of a member that has run, with `--initial-cluster-state=existing`.",
            ),
            required("data", Kind::Text, "The data directory."),
            required(
                "reads",
                Kind::Text,
                "The directory of its certificates and keys.",
            ),
            required("member", Kind::Text, "Name of the member."),
            required(
                "initial_cluster",
                Kind::Text,
                "The members at the first start, as in `--initial-cluster`.",
            ),
            arg(
                "timeout",
                Kind::Integer,
                "Seconds until etcd serves (default 60).",
            ),
        ],
    ),
    on_minion(
        "etcd",
        "joined",
        "Starts the etcd of a host that joins once, by containerd, until it has received what the other members have, and ends it, if the data directory (the name) has no log of a member. A member that starts with data serves at once; one that receives them as a snapshot may wait for seven seconds. It is no failure if nothing arrives: the member's pod or unit receives it then.",
        &[
            required("image", Kind::Text, "The image that has etcd."),
            required(
                "command",
                Kind::TextList,
                "etcd with the arguments of the member.",
            ),
            required(
                "reads",
                Kind::Text,
                "The directory of its certificates and keys.",
            ),
            required("member", Kind::Text, "Name of the member."),
            arg(
                "timeout",
                Kind::Integer,
                "Seconds in which nothing arrives, after which it is ended (default 15).",
            ),
        ],
    ),
];
