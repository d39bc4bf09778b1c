//! Signatures of `static_pod.*`, and of `unit.*`: units of systemd in their place.

use crate::signature::{Arg, ArgumentKind, COUNT, Signature, arg, on_minion, required};

/// The arguments that describe a wait.
pub(super) const MANIFEST: Arg = required(
    "manifest",
    ArgumentKind::Path,
    "The manifest's path in the kubelet's directory.",
);
pub(super) const READY: Arg = required(
    "ready",
    ArgumentKind::Text,
    "URL of the readiness probe; as for the kubelet, any certificate is accepted.",
);
pub(super) const TIMEOUT: Arg = arg(
    "timeout",
    COUNT,
    "Seconds until it fails (default 330: the kubelet waits up to 300 between two restarts of a container).",
);

const LIVE: Arg = arg(
    "live",
    ArgumentKind::Text,
    "URL that answers when the program runs, even if it lacks its peers.",
);
const QUORUM: Arg = arg(
    "quorum",
    ArgumentKind::Boolean,
    "The program has peers: it need not be ready, only run for a while and answer `live` (default false).",
);
const READS: Arg = arg(
    "reads",
    ArgumentKind::TextList,
    "Files that the program reads only when it starts: it is restarted when one has changed since it was ready last.",
);

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "static_pod",
        "running",
        "Waits until the kubelet runs the pod of a manifest as it is on disk, and its readiness probe answers; otherwise fails with the last lines of the container's log, after it has put back the last manifest whose pod was ready. After a change that it watches it waits, too.",
        &[
            MANIFEST,
            READY,
            arg(
                "pod",
                ArgumentKind::Text,
                "Name of the pod, its container and the program in it (default: the manifest's file name).",
            ),
            LIVE,
            QUORUM,
            READS,
            arg(
                "behind",
                ArgumentKind::Text,
                "URL without whose answer the pod cannot be ready; while it does not answer, no manifest is put back.",
            ),
            TIMEOUT,
        ],
    ),
    on_minion(
        "unit",
        "ready",
        "Waits until systemd runs the unit (the name) as its file in /etc/systemd/system is, and its readiness probe answers; otherwise fails with the last lines of its log, after it has put back the last file whose program was ready and started the unit with it. The program has the unit's name, and the file one of its arguments on each line. After a change that it watches it waits, too.",
        &[READY, LIVE, QUORUM, READS, TIMEOUT],
    ),
];
