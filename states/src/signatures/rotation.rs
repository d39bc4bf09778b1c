//! Signatures of `halite.ca_*`: steps of the rotation of a CA.

use super::halite::{TIMEOUT, step};
use crate::signature::{Arg, ArgumentKind, Signature, arg, required};

const CA: Arg = required(
    "ca",
    ArgumentKind::Text,
    "`kubernetes`, `etcd`, `front-proxy`, `halite`, `site`, or `sa` for the key pair of service accounts.",
);

pub(super) const SIGNATURES: &[Signature] = &[
    step(
        "ca_stage",
        "Takes the rotation of a CA one step further. A step that was taken before is not repeated. Fails unless each host in \
         `nodes` is connected and each standby of the master follows.",
        &[
            CA,
            required(
                "stage",
                ArgumentKind::Text,
                "`trust`: a new one, and both are trusted; `sign`: the new one signs; `only`: the old one leaves; `end`: the rotation \
                 ends.",
            ),
            required(
                "nodes",
                ArgumentKind::TextList,
                "The control planes, and with the CA of etcd all of its members. If others are declared by now, the step fails.",
            ),
            arg(
                "compromised",
                ArgumentKind::Boolean,
                "The old one leaves in the first stage (default false).",
            ),
            TIMEOUT,
        ],
    ),
    step(
        "ca_identities",
        "Waits until each accepted minion, or each operator, follows a stage of the rotation of the CA `halite`, by which Halite's own \
         programs recognise each other. Names the others.",
        &[
            required(
                "stage",
                ArgumentKind::Text,
                "The stage in which it waits; in another one the step does nothing.",
            ),
            required(
                "of",
                ArgumentKind::Text,
                "`hosts`: each minion trusts the CAs of the stage, and the CA that signs has signed its certificate; `connected`: the \
                 same of the connected ones, and the step succeeds when its time is over; `operators`: the CA that signs has signed the \
                 certificate of each operator of `ctl operator create`.",
            ),
            TIMEOUT,
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
