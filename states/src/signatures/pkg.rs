//! Signatures of `pkg.*` and `pkgrepo.*`.

use crate::signature::{ArgumentKind, Signature, arg, on_minion};

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "pkg",
        "installed",
        "Installed packages, in one transaction. Their services are not started: `service.running` does that. A virtual package counts as installed when an installed one provides it.",
        &[
            arg(
                "version",
                ArgumentKind::Text,
                "Version, for a single package: exact, without its epoch if it has one and none is given, or a pattern such as `1.2.*`.",
            ),
            arg(
                "pkgs",
                ArgumentKind::Packages,
                "Packages, instead of the name: a list of names and of `{name: version}`.",
            ),
            arg(
                "refresh",
                ArgumentKind::Boolean,
                "Read the indexes again before installing (default: only if a package is not found).",
            ),
            arg(
                "prefer_bundle",
                ArgumentKind::Boolean,
                "Take packages of Halite's repository before those of all other sources, whatever their versions (apt; default false).",
            ),
            arg(
                "install_recommends",
                ArgumentKind::Boolean,
                "Also install what the packages recommend, dnf's weak dependencies (default: as the package manager is configured, which is true for apt and dnf themselves).",
            ),
            arg(
                "allow_erasing",
                ArgumentKind::Boolean,
                "Remove installed packages that conflict (default false: the state fails).",
            ),
            arg(
                "allow_downgrades",
                ArgumentKind::Boolean,
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
            ArgumentKind::TextList,
            "Packages, instead of the name.",
        )],
    ),
    on_minion(
        "pkgrepo",
        "absent",
        "No repository of packages with that name: with apt, an entry of sources.list(5) (`deb URI SUITE COMPONENT…`) in all lists, or the name of a `pkgrepo.managed`; with dnf, the name of a section.",
        &[arg(
            "keyid",
            ArgumentKind::Text,
            "Key to remove from the keyring of apt-key(8) together with the entry.",
        )],
    ),
    on_minion(
        "pkgrepo",
        "managed",
        "A package repository: `/etc/apt/sources.list.d/NAME.list` or `/etc/yum.repos.d/NAME.repo`; its indexes are read when it changes.",
        &[
            arg(
                "humanname",
                ArgumentKind::Text,
                "Description (dnf; default: the name).",
            ),
            arg(
                "uris",
                ArgumentKind::TextList,
                "Addresses of the repository; dnf's `baseurl`.",
            ),
            arg(
                "suite",
                ArgumentKind::Text,
                "Suite (apt; default `stable`).",
            ),
            arg(
                "components",
                ArgumentKind::TextList,
                "Components (apt; default `main`).",
            ),
            arg(
                "architectures",
                ArgumentKind::TextList,
                "Only these architectures (apt).",
            ),
            arg(
                "signed_by",
                ArgumentKind::Text,
                "Path of the keyring (apt) or key (dnf) that signs it.",
            ),
            arg(
                "gpgcheck",
                ArgumentKind::Boolean,
                "Verify the signatures of packages (dnf; default true, with the keys that the host has imported if there is no `signed_by`; apt always verifies).",
            ),
            arg(
                "sslcacert",
                ArgumentKind::Text,
                "Path of the CA that signs the server (dnf; apt has its own configuration).",
            ),
            arg(
                "signed_index",
                ArgumentKind::Boolean,
                "Also verify the signature of the repository's index (dnf's `repo_gpgcheck`; default false; apt always does).",
            ),
            arg(
                "proxy",
                ArgumentKind::Text,
                "Proxy for the repository; `_none_` overrides a proxy of the host's configuration (dnf).",
            ),
            arg(
                "exclusive",
                ArgumentKind::Boolean,
                "Disable all other repositories of the host (default false).",
            ),
        ],
    ),
];
