//! Tests of creating, keeping, importing and signing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use halite_errors::chain;
use halite_proto::identity::{Identity, IdentityKind};
use halite_proto::pki::{Inspected, PrivateKey};
use halite_states::low::{Chunk, Controls, Position, Requisites};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, SanType};
use serde_json::json;
use tempfile::TempDir;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::*;

/// A day in 2027: after the fixtures were made.
const NOW: Millis = 1_800_000_000_000;
const YEAR: i64 = 365 * 24 * 60 * 60;

fn made() -> (Cas, TempDir) {
    let directory = TempDir::new().unwrap();
    let cas = Cas::create_or_load(directory.path(), "prod", NOW).unwrap();
    (cas, directory)
}

fn files_under(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for place in [directory.to_owned(), directory.join("ca")] {
        for entry in std::fs::read_dir(place).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                found.insert(
                    entry.path().display().to_string(),
                    std::fs::read(entry.path()).unwrap(),
                );
            }
        }
    }
    found
}

#[test]
fn the_cas_are_as_kubeadm_makes_them() {
    let (cas, _directory) = made();
    for (name, subject, dns) in [
        ("kubernetes", "CN=kubernetes", "kubernetes"),
        ("etcd", "CN=etcd-ca", "etcd-ca"),
        ("front-proxy", "CN=front-proxy-ca", "front-proxy-ca"),
    ] {
        let found = Inspected::from_pem(cas.certificate_pem(name).unwrap()).unwrap();
        assert_eq!(
            (found.subject.as_str(), found.issuer.as_str()),
            (subject, subject)
        );
        assert_eq!(found.dns_names, [dns]);
        assert_eq!(found.not_before, NOW / 1000 - 3600);
        assert_eq!(found.not_after - found.not_before, 10 * YEAR);
        let der = pki::certificates(cas.certificate_pem(name).unwrap()).unwrap();
        let (_, certificate) = X509Certificate::from_der(&der[0]).unwrap();
        let constraints = certificate.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical && constraints.value.ca);
        assert_eq!(constraints.value.path_len_constraint, None);
        let usage = certificate.key_usage().unwrap().unwrap();
        assert!(usage.critical);
        assert_eq!(
            usage.value.to_string(),
            "Digital Signature, Key Encipherment, Key Cert Sign"
        );
    }
    for name in [HALITE, SITE] {
        let found = Inspected::from_pem(cas.certificate_pem(name).unwrap()).unwrap();
        assert_eq!(found.subject, format!("CN={name}-ca prod"));
        assert!(found.is_ca);
    }
    assert!(matches!(
        cas.certificate_pem("other"),
        Err(CaError::Unknown(_))
    ));
    assert!(
        cas.sa_public_pem()
            .starts_with("-----BEGIN PUBLIC KEY-----")
    );
    assert!(!format!("{cas:?}").contains("PRIVATE"));
}

#[test]
fn making_again_changes_nothing_and_files_are_private() {
    let (_, directory) = made();
    let before = files_under(directory.path());
    assert_eq!(before.len(), 12);
    Cas::create_or_load(directory.path(), "prod", NOW + 5).unwrap();
    assert_eq!(files_under(directory.path()), before);
    for path in before.keys() {
        assert_eq!(
            std::fs::metadata(path).unwrap().permissions().mode() & 0o777,
            0o600,
            "{path}"
        );
    }
    let mode = std::fs::metadata(directory.path().join("ca"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_crash_at_any_file_is_repaired_by_making_again() {
    let (_, whole) = made();
    let all: Vec<String> = files_under(whole.path()).into_keys().collect();
    for lost in &all {
        let (_, directory) = made();
        let lost = directory
            .path()
            .join(Path::new(lost).strip_prefix(whole.path()).unwrap());
        // The key is written first: a crash can leave a key without certificate, but never the
        // reverse.
        if lost.extension().is_some_and(|e| e == "key") {
            std::fs::remove_file(&lost).unwrap();
            let other = lost.with_extension(if lost.ends_with("sa.key") {
                "pub"
            } else {
                "crt"
            });
            std::fs::remove_file(other).unwrap();
        } else {
            std::fs::remove_file(&lost).unwrap();
        }
        // Also leave the temporary file of a write that did not reach its rename.
        let name = lost.file_name().unwrap().to_str().unwrap();
        std::fs::write(lost.with_file_name(format!(".{name}.new")), "half").unwrap();
        Cas::create_or_load(directory.path(), "prod", NOW).unwrap();
        assert_eq!(
            files_under(directory.path()).len(),
            12,
            "{}",
            lost.display()
        );
    }
}

#[test]
fn a_certificate_without_its_key_is_not_replaced() {
    let (_, directory) = made();
    std::fs::remove_file(directory.path().join("ca/kubernetes.key")).unwrap();
    let error = Cas::create_or_load(directory.path(), "prod", NOW)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("kubernetes.key does not; put the key beside it"),
        "{error}"
    );
}

#[test]
fn the_daemon_makes_nothing() {
    let (_, directory) = made();
    std::fs::remove_file(directory.path().join("ca/site.crt")).unwrap();
    let error = Cas::load(directory.path()).unwrap_err().to_string();
    assert!(
        error.contains("site.crt is missing; `halite-master init`"),
        "{error}"
    );
}

#[test]
fn existing_cas_are_used_as_they_are() {
    let directory = TempDir::new().unwrap();
    std::fs::create_dir(directory.path().join("ca")).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rsa-ca");
    for name in ["etcd.crt", "etcd.key", "front-proxy.crt", "front-proxy.key"] {
        std::fs::copy(fixtures.join(name), directory.path().join("ca").join(name)).unwrap();
    }
    let cas = Cas::create_or_load(directory.path(), "prod", NOW).unwrap();
    for name in ["etcd", "front-proxy"] {
        let given = std::fs::read_to_string(fixtures.join(format!("{name}.crt"))).unwrap();
        assert_eq!(cas.certificate_pem(name).unwrap(), given);
        let issued = cas.sign(name, &request(), &profile(), NOW).unwrap();
        let ca = Inspected::from_pem(&given).unwrap();
        assert_eq!(
            Inspected::from_pem(&issued.certificate_pem).unwrap().issuer,
            ca.subject
        );
        verified(&issued.certificate_pem, &given);
    }
}

/// Checks the signature of a certificate with another's key.
fn verified(certificate_pem: &str, ca_pem: &str) {
    let [leaf, ca] =
        [certificate_pem, ca_pem].map(|pem| pki::certificates(pem).unwrap().swap_remove(0));
    let (_, leaf) = X509Certificate::from_der(&leaf).unwrap();
    let (_, ca) = X509Certificate::from_der(&ca).unwrap();
    leaf.verify_signature(Some(ca.public_key())).unwrap();
}

#[test]
fn what_cannot_be_a_ca_is_named() {
    let other = PrivateKey::generate().unwrap();
    let leaf = {
        let params = CertificateParams::new(vec!["x".to_owned()]).unwrap();
        params.self_signed(other.as_key_pair()).unwrap().pem()
    };
    for (file, content, wanted) in [
        ("kubernetes.key", other.to_pem(), "is not the key of"),
        ("kubernetes.crt", leaf, "not the certificate of a CA"),
        (
            "kubernetes.crt",
            "garbage".to_owned(),
            "kubernetes.crt: cannot read the certificate: there is no CERTIFICATE block",
        ),
        (
            "kubernetes.key",
            "garbage".to_owned(),
            "kubernetes.key: cannot read the private key: no items found",
        ),
        ("../sa.pub", other.public_pem(), "is not the public half"),
    ] {
        let (_, directory) = made();
        std::fs::write(directory.path().join("ca").join(file), content).unwrap();
        let error = chain(&Cas::load(directory.path()).unwrap_err());
        assert!(error.contains(wanted), "{file}: {error}");
        assert!(!error.contains("PRIVATE"), "{error}");
    }
}

#[test]
fn an_expired_ca_is_loaded_named_and_signs_only_identities() {
    let (_, directory) = made();
    let cas = Cas::load(directory.path()).unwrap();
    assert_eq!(cas.expired(NOW), []);
    let late = NOW + 11 * YEAR * 1000;
    let expired = cas.expired(late);
    assert_eq!(expired.len(), NAMES.len());
    for ca in &expired {
        let said = ca.to_string();
        let wanted = format!("the CA {} expired on 2037-", ca.name);
        assert!(said.starts_with(&wanted), "{said}");
        let remedy = match ca.name.as_str() {
            HALITE => "`ctl certs rotate halite`".to_owned(),
            name => format!("`ctl certs rotate {name} --compromised`"),
        };
        assert!(said.contains(&remedy), "{said}");
    }
    for name in CHUNK_CAS {
        let error = cas.sign(name, &request(), &profile(), late).unwrap_err();
        let said = chain(&error);
        let wanted = format!("cannot sign: the CA {name} expired on 2037-");
        assert!(said.starts_with(&wanted), "{said}");
    }
    let identity = Identity::new("prod", IdentityKind::Minion, "worker-1").unwrap();
    let profile = Profile::identity(&identity);
    let signed = cas.sign(HALITE, &request(), &profile, late).unwrap();
    assert_eq!(signed.not_after, late / 1000 + YEAR);
    verified(
        &signed.certificate_pem,
        cas.certificate_pem(HALITE).unwrap(),
    );
}

fn request() -> String {
    PrivateKey::generate().unwrap().request("whatever").unwrap()
}

fn profile() -> Profile {
    Profile {
        common_name: "kube-apiserver".to_owned(),
        organization: vec!["system:masters".to_owned()],
        dns_names: vec!["api.prod.internal".to_owned()],
        addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        server_auth: true,
        days: 365,
        ..Profile::default()
    }
}

#[test]
fn a_certificate_says_what_the_profile_says_and_nothing_of_the_request() {
    let (cas, _directory) = made();
    let key = PrivateKey::generate().unwrap();
    let mut wish = CertificateParams::new(vec!["evil.example".to_owned()]).unwrap();
    wish.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    wish.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    let uri = "halite://prod/operator/eve".try_into().unwrap();
    wish.subject_alt_names.push(SanType::URI(uri));
    let csr = wish
        .serialize_request(key.as_key_pair())
        .unwrap()
        .pem()
        .unwrap();

    let issued = cas.sign("kubernetes", &csr, &profile(), NOW).unwrap();
    let found = Inspected::from_pem(&issued.certificate_pem).unwrap();
    assert_eq!(found.subject, "O=system:masters, CN=kube-apiserver");
    assert_eq!(found.issuer, "CN=kubernetes");
    assert_eq!(found.fingerprint, key.fingerprint());
    assert_eq!(found.dns_names, ["api.prod.internal"]);
    assert_eq!(found.addresses, profile().addresses);
    assert!(found.uris.is_empty() && !found.is_ca);
    assert_eq!(found.not_before, NOW / 1000 - 3600);
    assert_eq!(found.not_after, NOW / 1000 + YEAR);
    verified(&issued.certificate_pem, &issued.ca_pem);

    let der = pki::certificates(&issued.certificate_pem).unwrap();
    let (_, certificate) = X509Certificate::from_der(&der[0]).unwrap();
    let usage = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && !usage.client_auth && !usage.code_signing && !usage.any);
    let usage = certificate.key_usage().unwrap().unwrap();
    assert_eq!(
        usage.value.to_string(),
        "Digital Signature, Key Encipherment"
    );
    assert!(
        certificate
            .basic_constraints()
            .unwrap()
            .is_some_and(|c| c.critical && !c.value.ca)
    );
}

#[test]
fn serial_numbers_are_random_and_lives_end_with_the_ca() {
    let (cas, _directory) = made();
    let csr = request();
    let [a, b] = [0, 1].map(|_| cas.sign("etcd", &csr, &profile(), NOW).unwrap());
    assert_ne!(a.serial, b.serial);
    assert_eq!(a.serial.len(), 32);
    let late = NOW + (10 * YEAR - YEAR / 2) * 1000;
    let cut = cas.sign("etcd", &csr, &profile(), late).unwrap();
    let ca = Inspected::from_pem(cas.certificate_pem("etcd").unwrap()).unwrap();
    assert_eq!(cut.not_after, ca.not_after);
}

#[test]
fn a_request_without_a_good_proof_is_refused() {
    let (cas, _directory) = made();
    let good = request();
    let der = rustls_pki_types::pem::PemObject::from_pem_slice(good.as_bytes());
    let der: rustls_pki_types::CertificateSigningRequestDer<'_> = der.unwrap();
    let mut forged = der.to_vec();
    // The last byte belongs to the signature.
    *forged.last_mut().unwrap() ^= 1;
    for bad in [
        pki::pem("CERTIFICATE REQUEST", &forged),
        String::new(),
        "garbage".to_owned(),
        pki::pem("CERTIFICATE REQUEST", b"garbage"),
        format!("{good}{}", " ".repeat(20_000)),
    ] {
        let error = cas.sign("etcd", &bad, &profile(), NOW).unwrap_err();
        assert!(
            matches!(error, CaError::Request(_) | CaError::LargeRequest { .. }),
            "{error}"
        );
        assert!(request_fingerprint(&bad).is_err());
    }
}

#[test]
fn identities_name_cluster_kind_and_id() {
    let (cas, _directory) = made();
    for (kind, server) in [
        (IdentityKind::Minion, false),
        (IdentityKind::Operator, false),
        (IdentityKind::Master, true),
    ] {
        let identity = Identity::new("prod", kind, "one").unwrap();
        let issued = cas
            .sign(HALITE, &request(), &Profile::identity(&identity), NOW)
            .unwrap();
        let found = Inspected::from_pem(&issued.certificate_pem).unwrap();
        assert_eq!(found.identity().unwrap(), identity);
        assert_eq!(Profile::identity(&identity).server_auth, server);
    }
}

fn chunk(function: &str, args: serde_json::Value) -> Chunk {
    let (state, fun) = function.split_once('.').unwrap();
    Chunk {
        state: state.to_owned(),
        fun: fun.to_owned(),
        id: "id".to_owned(),
        name: "/etc/x.crt".to_owned(),
        sls: "halite.base.pki".to_owned(),
        source: Position::default(),
        args: args.as_object().unwrap().clone(),
        requisites: Requisites::default(),
        controls: Controls::default(),
        sensitive: false,
    }
}

#[test]
fn a_chunk_says_which_ca_and_what() {
    let (ca, found) = Profile::of_chunk(&chunk(
        "x509.certificate",
        json!({
            "ca": "kubernetes", "common_name": "kube-apiserver", "organization": ["o"],
            "sans_dns": ["a", "b"], "sans_ip": "10.0.0.1", "server_auth": true, "days": 30, "algorithm": "ecdsa-p256",
        }),
    ))
    .unwrap();
    assert_eq!(ca, "kubernetes");
    assert_eq!(found.dns_names, ["a", "b"]);
    assert_eq!(found.addresses.len(), 1);
    assert_eq!(
        (found.server_auth, found.client_auth, found.days),
        (true, false, 30)
    );
    let (ca, found) = Profile::of_chunk(&chunk(
        "kubeconfig.managed",
        json!({ "common_name": "kubernetes-admin" }),
    ))
    .unwrap();
    assert_eq!(
        (
            ca.as_str(),
            found.server_auth,
            found.client_auth,
            found.days
        ),
        ("kubernetes", false, true, 365)
    );
}

#[test]
fn what_no_state_may_ask_for_is_refused() {
    let with = |change: serde_json::Value| {
        let mut args = json!({ "ca": "etcd", "common_name": "x", "client_auth": true });
        args.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        chunk("x509.certificate", args)
    };
    assert!(Profile::of_chunk(&with(json!({}))).is_ok());
    for (change, wanted) in [
        (json!({ "ca": "halite" }), "cannot use the CA \"halite\""),
        (json!({ "ca": "../site" }), "cannot use the CA"),
        (json!({ "common_name": null }), "common_name"),
        (json!({ "common_name": "" }), "common_name"),
        (json!({ "common_name": "x".repeat(65) }), "common_name"),
        (json!({ "common_name": ["x"] }), "common_name"),
        (json!({ "organization": ["a", "b"] }), "organization"),
        (json!({ "sans_ip": ["10.0.0"] }), "sans_ip"),
        (json!({ "sans_dns": [{}] }), "sans_dns"),
        (json!({ "client_auth": "yes" }), "client_auth"),
        (
            json!({ "client_auth": false }),
            "server_auth or client_auth",
        ),
        (json!({ "days": 0 }), "days"),
        (json!({ "days": 3651 }), "days"),
        (json!({ "days": -1 }), "days"),
    ] {
        let error = Profile::of_chunk(&with(change.clone()))
            .unwrap_err()
            .to_string();
        assert!(error.contains(wanted), "{change}: {error}");
    }
    let error = Profile::of_chunk(&chunk("file.managed", json!({})))
        .unwrap_err()
        .to_string();
    assert!(error.contains("does not request a certificate"), "{error}");
}
