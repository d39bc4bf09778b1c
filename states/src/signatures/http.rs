//! Signatures of `http.*`.

use crate::signature::{ArgumentKind, COUNT, Signature, arg, on_minion};

pub(super) const SIGNATURES: &[Signature] = &[on_minion(
    "http",
    "wait_for_successful_query",
    "Waits until a GET of a URL (the name) has the expected answer.",
    &[
        arg(
            "status",
            ArgumentKind::Within(100, 599),
            "Expected status (default 200).",
        ),
        arg(
            "match",
            ArgumentKind::Text,
            "Text that the body must contain.",
        ),
        arg("wait_for", COUNT, "Seconds until it fails (default 300)."),
        arg(
            "ca",
            ArgumentKind::Text,
            "Trusted CA: PEM, or the path of a PEM file on the host (default: the CAs that the host trusts).",
        ),
        arg(
            "verify_ssl",
            ArgumentKind::Boolean,
            "Verify the server's certificate; false accepts any (default true).",
        ),
    ],
)];
