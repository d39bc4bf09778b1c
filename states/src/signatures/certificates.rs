//! Signatures of `x509.*` and `kubeconfig.*`.

use crate::signature::{Arg, ArgumentKind, Signature, arg, on_minion, required};

const ALGORITHM: Arg = arg(
    "algorithm",
    ArgumentKind::Word(&["ecdsa-p256", "rsa-2048", "rsa-4096", "ed25519"]),
    "Key: `ecdsa-p256` (default), `rsa-2048`, `rsa-4096` or `ed25519`.",
);
const ORGANIZATION: Arg = arg(
    "organization",
    ArgumentKind::TextList,
    "Organizations (O) of the subject; Kubernetes' groups.",
);
const DAYS: Arg = arg(
    "days",
    ArgumentKind::Within(1, 36_500),
    "Lifetime in days (default 365).",
);
const RENEW: Arg = arg(
    "renew_days",
    ArgumentKind::Within(0, 36_500),
    "Renew when fewer days than this are left (default a third of `days`).",
);
const CA_CERTIFICATE: &str = "PEM of the CA's certificate.";

pub(super) const SIGNATURES: &[Signature] = &[
    on_minion(
        "x509",
        "certificate",
        "A private key generated on the host and its certificate, signed by a CA of the master.",
        &[
            arg(
                "key",
                ArgumentKind::Path,
                "Path of the key (default: the name with `.key` for its extension).",
            ),
            required(
                "ca",
                ArgumentKind::Text,
                "CA that signs: `kubernetes`, `etcd`, `front-proxy`, `site`; `halite` for the operator of a control-plane host.",
            ),
            arg(
                "ca_certificate",
                ArgumentKind::Text,
                "PEM of the CA's certificate; if given, a certificate of another CA is replaced.",
            ),
            ALGORITHM,
            required(
                "common_name",
                ArgumentKind::Text,
                "Common name (CN) of the subject.",
            ),
            ORGANIZATION,
            arg("sans_dns", ArgumentKind::TextList, "DNS names."),
            arg("sans_ip", ArgumentKind::Addresses, "IP addresses."),
            arg(
                "sans_uri",
                ArgumentKind::TextList,
                "URIs; only with the CA `halite`.",
            ),
            arg(
                "server_auth",
                ArgumentKind::Boolean,
                "Extended key usage for TLS servers (default false).",
            ),
            arg(
                "client_auth",
                ArgumentKind::Boolean,
                "Extended key usage for TLS clients (default false).",
            ),
            DAYS,
            RENEW,
            arg(
                "user",
                ArgumentKind::Text,
                "Owner of both files (default root).",
            ),
            arg(
                "group",
                ArgumentKind::Text,
                "Group of both files (default root).",
            ),
            arg(
                "mode",
                ArgumentKind::Mode,
                "Permission bits of the certificate (default 0644; 0600 when combined); the key has 0600.",
            ),
            arg(
                "append_ca",
                ArgumentKind::Boolean,
                "Append the CA's certificate to the certificate (default false).",
            ),
            arg(
                "combined",
                ArgumentKind::Boolean,
                "Certificate and key in one file, at the name (default false).",
            ),
        ],
    ),
    on_minion(
        "kubeconfig",
        "managed",
        "A kubeconfig file with an embedded client certificate, as kubeadm makes them.",
        &[
            required("server", ArgumentKind::Text, "URL of the API server."),
            required("cluster", ArgumentKind::Text, "Name of the cluster entry."),
            required("user", ArgumentKind::Text, "Name of the user entry."),
            arg(
                "context",
                ArgumentKind::Text,
                "Name of the context (default `USER@CLUSTER`).",
            ),
            arg("namespace", ArgumentKind::Text, "Namespace of the context."),
            required("ca_certificate", ArgumentKind::Text, CA_CERTIFICATE),
            arg(
                "ca",
                ArgumentKind::Text,
                "CA that signs the client certificate (default `kubernetes`).",
            ),
            arg(
                "common_name",
                ArgumentKind::Text,
                "User name in Kubernetes (CN); required without `client_certificate_file`.",
            ),
            ORGANIZATION,
            ALGORITHM,
            DAYS,
            RENEW,
            arg(
                "client_certificate_file",
                ArgumentKind::Text,
                "Refer to this certificate instead of embedding one.",
            ),
            arg(
                "client_key_file",
                ArgumentKind::Text,
                "Refer to this key; required with `client_certificate_file`.",
            ),
            arg(
                "owner",
                ArgumentKind::Text,
                "Owner of the file (default root).",
            ),
            arg(
                "group",
                ArgumentKind::Text,
                "Group of the file (default root).",
            ),
            arg(
                "mode",
                ArgumentKind::Mode,
                "Permission bits (default 0600).",
            ),
        ],
    ),
];
