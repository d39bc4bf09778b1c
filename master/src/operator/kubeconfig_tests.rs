use halite_core::clock::ManualClock;
use halite_proto::pki::{Inspected, PrivateKey};

use super::*;
use crate::backend::fixture::{Life, Site};

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    (
        "halite/base/pki/control_plane.sls",
        "/etc/kubernetes/pki/apiserver.crt:\n  x509.certificate:\n    - ca: kubernetes\n    - ca_certificate: x\n    - \
         common_name: kube-apiserver\n    - sans_dns: [api.test.internal, kubernetes, '*.lab.example']\n    - sans_ip: \
         [10.10.0.11, 'fd00::1']\n    - server_auth: True\n/etc/kubernetes/pki/other.crt:\n  x509.certificate:\n    - ca: \
         kubernetes\n    - ca_certificate: x\n    - common_name: other\n    - sans_dns: [other.example]\n    - \
         server_auth: True\n",
    ),
];

fn declare_vip(site: &Site) {
    let path = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}apiServer: {{vip: 10.10.0.100}}\n")).unwrap();
}

fn asked(life: &Life, requested: &str) -> Result<(String, String), String> {
    let way = way(&life.app, life.backend.jobs(), requested);
    let way = life.runtime.block_on(way);
    way.map(|way| (way.server, way.tls_server_name))
        .map_err(|refusal| refusal.message)
}

fn found(server: &str, name: &str) -> Result<(String, String), String> {
    Ok((server.to_owned(), name.to_owned()))
}

#[test]
fn the_way_is_the_vip_or_the_first_api_server_by_the_name_of_the_api() {
    let site = Site::new(TREE);
    let life = site.live();
    let endpoint = "api.test.internal";
    assert_eq!(asked(&life, ""), found("https://10.10.0.11:6443", endpoint));
    life.kill();
    declare_vip(&site);
    let life = site.live();
    let by_vip = |port: u16| found(&format!("https://10.10.0.100:{port}"), endpoint);
    assert_eq!(asked(&life, ""), by_vip(6443));
    assert_eq!(asked(&life, "10.10.0.100"), by_vip(6443));
    assert_eq!(asked(&life, "https://10.10.0.100:8443/"), by_vip(8443));
}

#[test]
fn a_server_has_to_be_in_the_certificate() {
    let site = Site::new(TREE);
    let life = site.live();
    for (requested, server) in [
        ("10.10.0.11", "https://10.10.0.11:6443"),
        ("10.10.0.11:443", "https://10.10.0.11:443"),
        ("fd00::1", "https://[fd00::1]:6443"),
        ("[fd00:0::1]:7443", "https://[fd00::1]:7443"),
        ("API.test.internal", "https://api.test.internal:6443"),
        ("k8s.lab.example:443", "https://k8s.lab.example:443"),
    ] {
        assert_eq!(asked(&life, requested), found(server, ""), "{requested}");
    }
    for absent in [
        "10.10.0.12",
        "a.b.lab.example",
        "lab.example",
        "other.example",
    ] {
        let error = asked(&life, absent).unwrap_err();
        assert!(
            error.starts_with(&format!("cannot make a kubeconfig for {absent}: "))
                && error.contains(
                    "which has *.lab.example, 10.10.0.11, api.test.internal, fd00::1, kubernetes; name one"
                )
                && error.contains("apiServer.certSANs"),
            "{error}"
        );
    }
    for text in [
        "10.10.0.300",
        "a b",
        "http://api.test.internal",
        "api.test.internal:0",
        "api.test.internal:70000",
        "10.10.0.11:0",
        "api.test.internal/x",
        ":6443",
    ] {
        let error = asked(&life, text).unwrap_err();
        assert!(
            error.contains("give an address or a name"),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_certificate_names_the_operator_and_ends_when_it_was_asked_to() {
    const NOW: i64 = 1_800_000_000_000;
    let site = Site::new(TREE);
    let life = site.live_at(std::sync::Arc::new(ManualClock::at(NOW)));
    let key = PrivateKey::generate().unwrap();
    let request = key.request("system:masters").unwrap();
    let signed_by = |csr: &str, ttl: u64, force: bool| {
        let wanted = KubeconfigRequest {
            csr_pem: csr,
            ttl_seconds: ttl,
            force,
        };
        let signed = sign(&life.app, "alice", wanted);
        life.runtime
            .block_on(signed)
            .map_err(|refusal| refusal.message)
    };
    let signed = |csr: &str, ttl: u64| signed_by(csr, ttl, true);
    let issued = signed(&request, 90).unwrap();
    let inspected = Inspected::from_pem(&issued.certificate_pem).unwrap();
    assert_eq!(inspected.subject, "O=kubeadm:cluster-admins, CN=alice");
    assert_eq!(inspected.issuer, "CN=kubernetes");
    assert_eq!(inspected.fingerprint, key.fingerprint());
    assert_eq!(inspected.not_after, NOW / 1000 + 90);
    assert!(!inspected.is_ca && inspected.uris.is_empty());
    let stored = life.runtime.block_on(life.store.certificates(1)).unwrap();
    assert_eq!(
        (stored[0].owner.as_str(), stored[0].ca.as_str()),
        ("operator:alice", "kubernetes")
    );

    // It cannot be revoked, so a long time must be intended.
    const DAYS: u64 = 30 * 24 * 60 * 60;
    assert!(signed_by(&request, DAYS, false).is_ok());
    let error = signed_by(&request, DAYS + 1, false).unwrap_err();
    assert!(
        error.contains("more than 30 days") && error.contains("--force"),
        "{error}"
    );
    assert!(signed_by(&request, DAYS + 1, true).is_ok());

    // As long as the CA is valid, and not a second longer.
    let left = life.app.cas.not_after("kubernetes").unwrap() - life.app.clock.now() / 1000;
    let left = u64::try_from(left).unwrap();
    assert!(signed(&request, left).is_ok());
    for (ttl, reason) in [
        (left + 1, "the CA of Kubernetes ends on 20"),
        (u64::MAX, "the CA of Kubernetes ends on 20"),
        (0, "for 0 s"),
    ] {
        let error = signed(&request, ttl).unwrap_err();
        assert!(error.contains(reason), "{ttl}: {error}");
    }
    assert!(signed("x", 90).unwrap_err().contains("certificate request"));
}

/// An issued kubeconfig works until it expires, so operators must be able to see it.
#[test]
fn what_was_issued_and_has_not_ended_is_listed() {
    const NOW: i64 = 1_800_000_000_000;
    let site = Site::new(TREE);
    let clock = std::sync::Arc::new(ManualClock::at(NOW));
    let life = site.live_at(clock.clone());
    let key = PrivateKey::generate().unwrap();
    let csr_pem = &key.request("x").unwrap();
    for (operator, ttl_seconds) in [("alice", 60), ("bob", 3600), ("alice", 7200)] {
        let wanted = KubeconfigRequest {
            csr_pem,
            ttl_seconds,
            force: false,
        };
        life.runtime
            .block_on(sign(&life.app, operator, wanted))
            .unwrap();
    }
    let listed = || {
        let found = life.runtime.block_on(list(&life.app)).unwrap();
        let rows = found.kubeconfigs.iter();
        let mut rows: Vec<String> = rows
            .map(|row| format!("{} {}", row.operator, row.expires))
            .collect();
        rows.sort();
        rows
    };
    let end = |seconds: i64| rfc3339(NOW + seconds * 1000);
    let row = |operator: &str, seconds| format!("{operator} {}", end(seconds));
    assert_eq!(
        listed(),
        [row("alice", 60), row("alice", 7200), row("bob", 3600)]
    );
    clock.advance(100_000);
    assert_eq!(listed(), [row("alice", 7200), row("bob", 3600)]);
}
