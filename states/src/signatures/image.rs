//! Signatures of `image.*`.

use crate::signature::{Signature, on_minion};

pub(super) const SIGNATURES: &[Signature] = &[on_minion(
    "image",
    "present",
    "A container image (the name is its full reference) in containerd's `k8s.io` namespace. \
     With a digest (`NAME:TAG@sha256:…`) it is exactly that image, stored without the tag, as the kubelet \
     looks for it; with a tag alone, the server decides which image it is.",
    &[],
)];
