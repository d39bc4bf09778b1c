//! Signatures of `etcd.*`.

use crate::signature::{Kind, Signature, on_minion, required};

pub(super) const SIGNATURES: &[Signature] = &[on_minion(
    "etcd",
    "data",
    "Fails if an etcd member ran on the host and its data is no longer in the directory (the name); changes nothing.",
    &[required(
        "record",
        Kind::Text,
        "The file that exists if a member ran on the host; JSON with the key `member`.",
    )],
)];
