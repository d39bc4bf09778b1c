//! Tests of the next CA: its request, its import, and the rotation that takes it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use halite_errors::chain;
use halite_pillar::ca_rotation::RotationStage;
use halite_pillar::ca_rotation::RotationStage::{Only, Sign, Trust};
use halite_proto::pki;
use halite_proto::pki::{Inspected, PrivateKey};
use halite_secrets::SecretText;
use rcgen::{BasicConstraints, CertificateSigningRequestParams, IsCa};
use tempfile::TempDir;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::checked_tests::{DAY, NOW, OutsideCa, params};
use super::*;

fn made() -> (Cas, TempDir) {
    let directory = TempDir::new().unwrap();
    let cas = Cas::create_or_load(directory.path(), "prod", NOW).unwrap();
    (cas, directory)
}

fn record(directory: &TempDir) -> PathBuf {
    directory.path().join("ca/kubernetes.next.json")
}

fn begin(cas: &Cas, stage: RotationStage) -> Result<bool, CaError> {
    cas.begin_stage("kubernetes", stage, "prod", NOW)
}

/// A CA with its key.
fn with_key(ca: &OutsideCa) -> GivenCa {
    GivenCa {
        certificate: ca.pem.clone(),
        key: Some(SecretText::new(ca.key.serialize_pem())),
        chain: String::new(),
    }
}

/// A certificate for a request, from a root outside, with this path length.
fn signed_request(csr: &str, path_length: BasicConstraints) -> GivenCa {
    let root = OutsideCa::root(&params("root"));
    let mut request = CertificateSigningRequestParams::from_pem(csr).unwrap();
    let subject = request.params.distinguished_name.clone();
    request.params = params("x");
    request.params.distinguished_name = subject;
    request.params.is_ca = IsCa::Ca(path_length);
    let certificate = request.signed_by(&root.issuer()).unwrap().pem();
    GivenCa {
        certificate,
        key: None,
        chain: root.pem,
    }
}

/// The certificates of a server, DER.
fn server(cas: &Cas) -> Vec<Vec<u8>> {
    let request = PrivateKey::generate().unwrap().request("x").unwrap();
    let profile = Profile {
        common_name: "x".to_owned(),
        server_auth: true,
        days: 365,
        ..Profile::default()
    };
    let issued = cas.sign("kubernetes", &request, &profile, NOW).unwrap();
    let all = pki::certificates(&issued.certificate_pem).unwrap();
    all.iter().map(|der| der.to_vec()).collect()
}

/// Returns whether a CA (PEM) has signed a certificate, by key and name.
fn is_signed_by(certificate: &[u8], ca_pem: &str) -> bool {
    let ca = pki::certificates(ca_pem).unwrap().swap_remove(0);
    let (_, ca) = X509Certificate::from_der(&ca).unwrap();
    let (_, certificate) = X509Certificate::from_der(certificate).unwrap();
    let is_signed = certificate.verify_signature(Some(ca.public_key())).is_ok();
    is_signed && certificate.issuer().as_raw() == ca.subject().as_raw()
}

#[test]
fn a_request_names_kubeadms_ca_and_its_key_is_made_once() {
    for (name, subject) in [
        ("kubernetes", "kubernetes"),
        ("etcd", "etcd-ca"),
        ("front-proxy", "front-proxy-ca"),
    ] {
        let (cas, directory) = made();
        let csr = cas.request_next(name).unwrap();
        let request = CertificateSigningRequestParams::from_pem(&csr).unwrap();
        assert!(matches!(request.params.is_ca, IsCa::Ca(_)), "{name}");
        let found = request.params.distinguished_name;
        let found = found.get(&rcgen::DnType::CommonName).unwrap();
        assert_eq!(*found, rcgen::DnValue::Utf8String(subject.to_owned()));
        // A master that was started again has the same key, and never shows it.
        let again = Cas::load(directory.path()).unwrap();
        let again = again.request_next(name).unwrap();
        let [first, second] = [&csr, &again].map(|csr| request_fingerprint(csr).unwrap());
        assert_eq!(first, second);
        assert!(!csr.contains("PRIVATE"));
        let path = directory.path().join(format!("ca/{name}.next.json"));
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let certificate = None;
        let wanted = PreparedCa { name, certificate };
        assert_eq!(cas.prepared().unwrap(), [wanted]);
    }
}

#[test]
fn a_rotation_takes_an_intermediate_and_the_next_one_makes_a_ca() {
    let (cas, directory) = made();
    let old = cas.certificate_pem("kubernetes").unwrap().to_owned();
    let csr = cas.request_next("kubernetes").unwrap();
    let given = signed_request(&csr, BasicConstraints::Constrained(0));
    let imported = cas.import_next("kubernetes", &given, NOW).unwrap();
    assert_eq!(imported.path_length, Some(0));
    let own = imported.certificate;
    // Nothing else has changed yet, also for a master that is started again.
    assert_eq!(cas.certificate_pem("kubernetes").unwrap(), old);
    let cas = Cas::load(directory.path()).unwrap();
    assert_eq!(cas.prepared().unwrap()[0].certificate.as_ref(), Some(&own));
    begin(&cas, Trust).unwrap();
    assert_eq!(cas.certificates("kubernetes").unwrap(), [&old, &own]);
    assert_eq!(cas.prepared().unwrap(), []);
    assert!(!record(&directory).exists());
    begin(&cas, Sign).unwrap();
    // Clients with the old CA, and those with the root outside, verify a server.
    let [leaf, cross, intermediate] = &server(&cas)[..] else {
        panic!("a server has its certificate and two of its CA");
    };
    assert!(is_signed_by(leaf, &own) && is_signed_by(cross, &old));
    assert!(is_signed_by(intermediate, &given.chain));
    let crossed = pki::pem("CERTIFICATE", cross);
    assert!(is_signed_by(leaf, &crossed));
    let keys = [&own, &crossed].map(|pem| Inspected::from_pem(pem).unwrap());
    assert_eq!(keys[0].fingerprint, keys[1].fingerprint);
    begin(&cas, Only).unwrap();
    cas.end_rotation("kubernetes").unwrap();
    assert_eq!(cas.certificate_pem("kubernetes").unwrap(), own);
    assert_eq!(server(&cas).len(), 2);
    // It is used once. With a path length of 0, it cannot sign the CA after it.
    begin(&cas, Trust).unwrap();
    let next = cas.certificates("kubernetes").unwrap()[1].to_owned();
    assert_ne!(next, own);
    begin(&cas, Sign).unwrap();
    assert_eq!(server(&cas).len(), 1);
}

#[test]
fn an_imported_ca_with_its_key_replaces_a_compromised_one() {
    let (cas, _directory) = made();
    let root = OutsideCa::root(&params("Example Kubernetes CA"));
    cas.import_next("kubernetes", &with_key(&root), NOW)
        .unwrap();
    begin(&cas, Only).unwrap();
    let key = PrivateKey::from_pem(cas.key_pem("kubernetes").unwrap()).unwrap();
    let found = Inspected::from_pem(cas.certificate_pem("kubernetes").unwrap()).unwrap();
    assert_eq!(found.subject, "CN=Example Kubernetes CA");
    assert_eq!(found.fingerprint, key.fingerprint());
    let [leaf] = &server(&cas)[..] else {
        panic!("a root does not follow its certificates");
    };
    assert!(is_signed_by(leaf, &root.pem));
}

/// The record of the rotation is written first, and that of the import is removed second.
#[test]
fn a_master_that_is_killed_when_a_rotation_begins_takes_the_ca_once() {
    let (cas, directory) = made();
    let root = OutsideCa::root(&params("kubernetes"));
    cas.import_next("kubernetes", &with_key(&root), NOW)
        .unwrap();
    let before = fs::read(record(&directory)).unwrap();
    for (stage, is_new) in [(Trust, true), (Trust, false), (Sign, true), (Only, true)] {
        let cas = Cas::load(directory.path()).unwrap();
        assert_eq!(begin(&cas, stage).unwrap(), is_new);
        assert!(!record(&directory).exists());
        // The master was killed before the removal.
        fs::write(record(&directory), &before).unwrap();
        let cas = Cas::load(directory.path()).unwrap();
        assert_eq!(cas.prepared().unwrap(), []);
        assert_eq!(cas.rotation("kubernetes"), Some(stage));
    }
    let cas = Cas::load(directory.path()).unwrap();
    cas.end_rotation("kubernetes").unwrap();
    assert_eq!(cas.prepared().unwrap(), []);
    begin(&cas, Trust).unwrap();
    assert_eq!(cas.certificates("kubernetes").unwrap()[0], root_of(&root));
    assert_ne!(cas.certificates("kubernetes").unwrap()[1], root_of(&root));
    assert!(!record(&directory).exists());
}

/// The certificate as it is stored.
fn root_of(ca: &OutsideCa) -> String {
    pki::certificate_pem(&pki::certificates(&ca.pem).unwrap()[0])
}

#[test]
fn a_refused_or_interrupted_import_leaves_the_record_as_it_was() {
    let (cas, directory) = made();
    let csr = cas.request_next("kubernetes").unwrap();
    let good = signed_request(&csr, BasicConstraints::Unconstrained);
    cas.import_next("kubernetes", &good, NOW).unwrap();
    let before = fs::read(record(&directory)).unwrap();
    // A write that was killed leaves a part of its temporary file.
    let part = directory.path().join("ca/.kubernetes.next.json.new");
    fs::write(&part, "{\"key\": \"half").unwrap();
    let cas = Cas::load(directory.path()).unwrap();
    let other = OutsideCa::root(&params("other"));
    let bad = GivenCa {
        certificate: other.pem,
        ..good.clone()
    };
    let error = cas.import_next("kubernetes", &bad, NOW).unwrap_err();
    let said = chain(&error);
    assert!(
        said.starts_with("cannot import the CA kubernetes, nothing was changed:\n  - "),
        "{said}"
    );
    assert!(said.contains("the key of the request that waits"), "{said}");
    assert_eq!(fs::read(record(&directory)).unwrap(), before);
    cas.import_next("kubernetes", &good, NOW).unwrap();
    assert_eq!(fs::read(record(&directory)).unwrap(), before);
}

#[test]
fn what_does_not_fit_together_is_refused_with_the_remedy() {
    let (cas, directory) = made();
    let root = OutsideCa::root(&params("kubernetes"));
    let refused = |cas: &Cas, name: &str, given: &GivenCa| {
        chain(&cas.import_next(name, given, NOW).unwrap_err())
    };
    for name in ["halite", "site", "sa", "other"] {
        let said = refused(&cas, name, &with_key(&root));
        assert!(
            said.contains("name kubernetes, etcd or front-proxy"),
            "{said}"
        );
        assert!(cas.request_next(name).is_err() && cas.discard_next(name).is_err());
    }
    let without = GivenCa {
        key: None,
        ..with_key(&root)
    };
    let said = refused(&cas, "kubernetes", &without);
    assert!(said.contains("no request waits"), "{said}");
    let csr = cas.request_next("kubernetes").unwrap();
    let said = refused(&cas, "kubernetes", &with_key(&root));
    assert!(said.contains("omit `--key`"), "{said}");
    let said = chain(&begin(&cas, Trust).unwrap_err());
    assert!(said.contains("waits for its certificate"), "{said}");
    assert!(cas.discard_next("kubernetes").unwrap());
    assert!(!cas.discard_next("kubernetes").unwrap());
    let late = signed_request(&csr, BasicConstraints::Unconstrained);
    let said = refused(&cas, "kubernetes", &late);
    assert!(said.contains("no request waits"), "{said}");
    cas.import_next("kubernetes", &with_key(&root), NOW)
        .unwrap();
    let said = chain(&cas.request_next("kubernetes").unwrap_err());
    assert!(said.contains("one is imported with its key"), "{said}");
    let said = refused(&cas, "etcd", &with_key(&root));
    assert!(
        said.contains("the key of the CA that was imported for kubernetes"),
        "{said}"
    );
    begin(&cas, Trust).unwrap();
    let other = with_key(&OutsideCa::root(&params("other")));
    let said = refused(&cas, "kubernetes", &other);
    assert!(said.contains("its rotation has not ended"), "{said}");
    let said = refused(&cas, "etcd", &with_key(&root));
    assert!(said.contains("the key of the CA kubernetes"), "{said}");
    fs::write(record(&directory), "{\"key\": canary").unwrap();
    let said = chain(&cas.prepared().unwrap_err());
    assert!(
        said.contains("kubernetes.next.json") && !said.contains("canary"),
        "{said}"
    );
    assert!(cas.discard_next("kubernetes").unwrap());
}

#[test]
fn a_ca_that_has_expired_since_its_import_begins_no_rotation() {
    let (cas, _directory) = made();
    let root = OutsideCa::root(&params("kubernetes"));
    cas.import_next("kubernetes", &with_key(&root), NOW)
        .unwrap();
    let late = NOW + 3651 * DAY * 1000;
    let error = cas.begin_stage("kubernetes", Only, "prod", late);
    let said = chain(&error.unwrap_err());
    assert!(
        said.contains("cannot rotate the CA kubernetes")
            && said.contains("it expired on 2037-")
            && said.contains("`ctl certs import kubernetes --discard`"),
        "{said}"
    );
    assert_eq!(cas.rotation("kubernetes"), None);
    cas.discard_next("kubernetes").unwrap();
    assert!(cas.begin_stage("kubernetes", Only, "prod", late).unwrap());
}

#[test]
fn no_text_about_a_next_ca_has_its_key() {
    let (cas, directory) = made();
    let root = OutsideCa::root(&params("kubernetes"));
    let given = with_key(&root);
    let imported = cas.import_next("kubernetes", &given, NOW).unwrap();
    let said = format!("{given:?}{imported:?}{cas:?}{:?}", cas.prepared().unwrap());
    let key = root.key.serialize_pem();
    let body = key.lines().nth(1).unwrap();
    assert!(!said.contains(body) && !said.contains("PRIVATE"), "{said}");
    assert!(
        fs::read_to_string(record(&directory))
            .unwrap()
            .contains(body)
    );
}
