//! `pkg.*` and `pkgrepo.*`

use super::{arg, on_minion};
use crate::signature::{Kind, Signature};

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "pkg",
        "installed",
        "Installed packages, in one transaction.",
        &[
            arg("version", Kind::Text, "Exact version of the one package."),
            arg(
                "pkgs",
                Kind::Any,
                "Packages instead of the name: a list of names and of `{name: version}`.",
            ),
            arg(
                "refresh",
                Kind::Boolean,
                "Read the indexes anew before installing (default: when a package is not offered).",
            ),
        ],
    ),
    on_minion(
        "pkg",
        "removed",
        "Packages that are not installed.",
        &[arg(
            "pkgs",
            Kind::TextList,
            "Packages, instead of the name.",
        )],
    ),
    on_minion(
        "pkgrepo",
        "managed",
        "A package repository: `/etc/apt/sources.list.d/NAME.list` or `/etc/yum.repos.d/NAME.repo`, indexes read when it changed.",
        &[
            arg(
                "humanname",
                Kind::Text,
                "For people (dnf; default: the name).",
            ),
            arg(
                "uris",
                Kind::TextList,
                "Addresses of the repository; dnf's `baseurl`.",
            ),
            arg("suite", Kind::Text, "Suite (apt; default `stable`)."),
            arg(
                "components",
                Kind::TextList,
                "Components (apt; default `main`).",
            ),
            arg(
                "architectures",
                Kind::TextList,
                "Only these architectures (apt).",
            ),
            arg(
                "signed_by",
                Kind::Text,
                "Path of the keyring (apt) or key (dnf) that signs it.",
            ),
            arg(
                "sslcacert",
                Kind::Text,
                "Path of the CA that signs the server (dnf; apt has its own configuration).",
            ),
            arg(
                "signed_index",
                Kind::Boolean,
                "Check the signature of the repository's index too (dnf's `repo_gpgcheck`; default false; apt always does).",
            ),
            arg(
                "proxy",
                Kind::Text,
                "Proxy for it; `_none_` for none whatever the host's configuration says (dnf).",
            ),
            arg(
                "exclusive",
                Kind::Boolean,
                "Switch all other repositories of the host off (default false).",
            ),
        ],
    ),
];
