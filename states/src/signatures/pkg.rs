//! Signatures of `pkg.*` and `pkgrepo.*`.

use crate::signature::{Kind, Signature, arg, on_minion};

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "pkg",
        "installed",
        "Installed packages, in one transaction. Their services are not started: `service.running` does that. A virtual package counts as installed when an installed one provides it.",
        &[
            arg(
                "version",
                Kind::Text,
                "Exact version, for a single package.",
            ),
            arg(
                "pkgs",
                Kind::Any,
                "Packages, instead of the name: a list of names and of `{name: version}`.",
            ),
            arg(
                "refresh",
                Kind::Boolean,
                "Read the indexes again before installing (default: only if a package is not found).",
            ),
            arg(
                "install_recommends",
                Kind::Boolean,
                "Also install what the packages recommend, dnf's weak dependencies (default: as the package manager is configured, which is true for apt and dnf themselves).",
            ),
            arg(
                "allow_erasing",
                Kind::Boolean,
                "Remove installed packages that conflict (default false: the state fails).",
            ),
            arg(
                "allow_downgrades",
                Kind::Boolean,
                "Replace an installed version by a lower one (apt; default true, as in Salt; dnf always does).",
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
        "A package repository: `/etc/apt/sources.list.d/NAME.list` or `/etc/yum.repos.d/NAME.repo`; its indexes are read when it changes.",
        &[
            arg(
                "humanname",
                Kind::Text,
                "Description (dnf; default: the name).",
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
                "gpgcheck",
                Kind::Boolean,
                "Verify the signatures of packages (dnf; default true, with the keys that the host has imported if there is no `signed_by`; apt always verifies).",
            ),
            arg(
                "sslcacert",
                Kind::Text,
                "Path of the CA that signs the server (dnf; apt has its own configuration).",
            ),
            arg(
                "signed_index",
                Kind::Boolean,
                "Also verify the signature of the repository's index (dnf's `repo_gpgcheck`; default false; apt always does).",
            ),
            arg(
                "proxy",
                Kind::Text,
                "Proxy for the repository; `_none_` overrides a proxy of the host's configuration (dnf).",
            ),
            arg(
                "exclusive",
                Kind::Boolean,
                "Disable all other repositories of the host (default false).",
            ),
        ],
    ),
];
