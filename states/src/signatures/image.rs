//! Signatures of `image.*`.

use crate::signature::{Signature, on_minion};

pub(super) const SIGNATURES: &[Signature] = &[on_minion(
    "image",
    "present",
    "A container image (the name is its full reference) in containerd's `k8s.io` namespace.",
    &[],
)];
