//! Signatures of `etcd.*`.

use super::static_pod::{MANIFEST, READY, TIMEOUT};
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
        "Makes a new etcd cluster of this host's member if none ever ran here, and records the member in a file (the name): the manifest is written with `--initial-cluster-state=new`, and its pod waited for. A member that ran is only recorded.",
        &[
            MANIFEST,
            READY,
            required(
                "contents",
                Kind::Text,
                "The manifest as it is declared for a member that has run, with `--initial-cluster-state=existing`.",
            ),
            required("data", Kind::Text, "The data directory."),
            required("member", Kind::Text, "Name of the member."),
            required(
                "initial_cluster",
                Kind::Text,
                "The members at the first start, as in `--initial-cluster`.",
            ),
            arg(
                "live",
                Kind::Text,
                "URL that answers when the program runs, even if it lacks its peers.",
            ),
            TIMEOUT,
        ],
    ),
];
