//! `http.*`

use super::{arg, on_minion};
use crate::signature::{Kind, Signature};

pub(super) const SIGNATURES: &[Signature] = &[on_minion(
    "http",
    "wait_for_successful_query",
    "Waits until a GET of a URL (the name) is answered as wanted.",
    &[
        arg("status", Kind::Integer, "Wanted status (default 200)."),
        arg("match", Kind::Text, "Text that the body contains."),
        arg(
            "wait_for",
            Kind::Integer,
            "Seconds after which it has failed (default 300).",
        ),
        arg(
            "ca",
            Kind::Text,
            "Trusted CA: PEM, or the path of a PEM file on the host; without it no certificate is checked.",
        ),
    ],
)];
