//! `host.*`

use super::{arg, on_minion, required};
use crate::signature::{Kind, Signature};

pub(super) const SIGNATURES: &[Signature] = &[on_minion(
    "host",
    "present",
    "A host name in `/etc/hosts`; other lines, names and comments stay.",
    &[
        required("ip", Kind::TextList, "Addresses of the name."),
        arg(
            "clean",
            Kind::Boolean,
            "Remove the name from all other addresses (default true).",
        ),
    ],
)];
