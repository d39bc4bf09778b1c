//! Signatures of `halite.ca_*`: steps of the rotation of a CA.

use super::halite::{TIMEOUT, step};
use crate::signature::{Arg, ArgumentKind, Signature, arg, required};

const CA: Arg = required(
    "ca",
    ArgumentKind::Text,
    "`kubernetes`, `etcd`, `front-proxy`, or `sa` for the key pair of service accounts.",
);

pub(super) const SIGNATURES: &[Signature] = &[
    step(
        "ca_stage",
        "Takes the rotation of a CA one step further. A step that was taken before is not repeated.",
        &[
            CA,
            required(
                "stage",
                ArgumentKind::Text,
                "`trust`: a new one, and both are trusted; `sign`: the new one signs; `only`: the old one leaves; `end`: the rotation \
                 ends.",
            ),
        ],
    ),
    step(
        "ca_pods",
        "Waits until no pod depends on a CA, or on a key of service accounts, that is being replaced. Names the others by their \
         owners.",
        &[
            CA,
            required(
                "stage",
                ArgumentKind::Text,
                "The stage in which it waits; in another one the step does nothing.",
            ),
            arg(
                "restart",
                ArgumentKind::Boolean,
                "Restart their Deployments, StatefulSets and DaemonSets, as `kubectl rollout restart` does (default false).",
            ),
            TIMEOUT,
        ],
    ),
];
