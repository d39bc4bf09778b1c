//! Signatures of `etcd.*`.

use crate::signature::{ArgumentKind, COUNT, Signature, arg, on_minion, required};

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "etcd",
        "data",
        "Fails if an etcd member ran on the host and its data is no longer in the directory (the name), or the data there have the ids of another member or cluster; changes nothing.",
        &[required(
            "record",
            ArgumentKind::Path,
            "The file that exists if a member ran on the host; JSON with the key `member`, and the ids as `clusterId` and `memberId`. A record without ids accepts the existing data.",
        )],
    ),
    on_minion(
        "etcd",
        "founded",
        "Creates a new etcd cluster with this host's member if no member is recorded in a file (the name): containerd starts etcd once, with `--initial-cluster-state=new`, until it serves, and its data are moved into place. Existing data are the host's own if this state created them, or if a file of `started_by` exists; other data are refused.",
        &[
            required("image", ArgumentKind::Text, "The image that contains etcd."),
            required(
                "command",
                ArgumentKind::TextList,
                "etcd with the arguments of a member that has run, with `--initial-cluster-state=existing`.",
            ),
            required("data", ArgumentKind::Path, "The data directory."),
            required(
                "reads",
                ArgumentKind::Path,
                "The directory of its certificates and keys.",
            ),
            required("member", ArgumentKind::Text, "Name of the member."),
            arg(
                "started_by",
                ArgumentKind::TextList,
                "Files, one of which exists if the member has been started by its pod or unit.",
            ),
            arg("timeout", COUNT, "Seconds until etcd serves (default 60)."),
        ],
    ),
    on_minion(
        "etcd",
        "joined",
        "If the data directory (the name) has no log of this member: starts the etcd of a joining host once, with containerd, until it has received the other members' data, and stops it. The data of another member or cluster are set aside, as `member.other-cluster-TIME` or `member.other-member-TIME`. A member that starts with data serves at once; one that receives them as a snapshot may wait for seven seconds. If nothing arrives, the state still succeeds: the member's pod or unit then receives the data.",
        &[
            required("image", ArgumentKind::Text, "The image that contains etcd."),
            required(
                "command",
                ArgumentKind::TextList,
                "etcd with the arguments of the member.",
            ),
            required(
                "reads",
                ArgumentKind::Path,
                "The directory of its certificates and keys.",
            ),
            required("member", ArgumentKind::Text, "Name of the member."),
            arg(
                "cluster_id",
                ArgumentKind::Text,
                "The id of the cluster that it joins, in hexadecimal. Without it, data of any cluster count as its own.",
            ),
            arg(
                "member_id",
                ArgumentKind::Text,
                "The id that the cluster gave it, in hexadecimal. Without it, data of any member count as its own.",
            ),
            required(
                "record",
                ArgumentKind::Path,
                "The file that records a member. It is removed when data are set aside.",
            ),
            arg(
                "timeout",
                COUNT,
                "Seconds without new data after which it is stopped (default 15).",
            ),
        ],
    ),
    on_minion(
        "etcd",
        "recorded",
        "Records the etcd member in a file (the name), with the ids that its log has, if the data directory has a log.",
        &[
            required("data", ArgumentKind::Path, "The data directory."),
            required("member", ArgumentKind::Text, "Name of the member."),
            required(
                "initial_cluster",
                ArgumentKind::Text,
                "The members at the first start, as in `--initial-cluster`.",
            ),
        ],
    ),
];
