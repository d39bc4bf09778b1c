//! Tests of the checks of a CA that an operator imports.

use halite_store::Millis;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints,
};

use super::checked::{ImportedParts, check, ready};
use super::sign::set_validity;

/// 2027-01-15T08:00:00Z.
pub(super) const NOW: Millis = 1_800_000_000_000;
pub(super) const DAY: i64 = 24 * 60 * 60;

/// A CA outside of Halite.
pub(super) struct OutsideCa {
    pub(super) key: KeyPair,
    pub(super) pem: String,
}

impl OutsideCa {
    pub(super) fn root(params: &CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { key, pem }
    }

    /// A CA that this one signs.
    pub(super) fn below(&self, params: &CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let pem = params.signed_by(&key, &self.issuer()).unwrap().pem();
        Self { key, pem }
    }

    pub(super) fn issuer(&self) -> Issuer<'static, &KeyPair> {
        Issuer::from_ca_cert_pem(&self.pem, &self.key).unwrap()
    }
}

/// A CA with this name, valid for ten years.
pub(super) fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, NOW / 1000 - DAY, NOW / 1000 + 3650 * DAY);
    params
}

/// The problems of a CA with these certificates above it.
fn problems(certificate: &str, chain: &str, key: &str) -> Vec<String> {
    let parts = ImportedParts {
        certificate,
        chain,
        key,
        is_requested: false,
        others: &[],
    };
    check(&parts, NOW).err().unwrap_or_default()
}

#[test]
fn a_root_and_an_intermediate_with_its_chain_have_no_problems() {
    let root = OutsideCa::root(&params("root"));
    let policy = root.below(&params("policy"));
    let ca = policy.below(&params("kubernetes"));
    let key = ca.key.serialize_pem();
    let none: [String; 0] = [];
    assert_eq!(
        problems(&root.pem, "", &root.key.serialize_pem()),
        none,
        "a root"
    );
    for chain in [
        [policy.pem.as_str(), root.pem.as_str()].concat(),
        [root.pem.as_str(), policy.pem.as_str()].concat(),
    ] {
        assert_eq!(problems(&ca.pem, &chain, &key), none);
        let one_file = [ca.pem.as_str(), chain.as_str()].concat();
        assert_eq!(problems(&one_file, "", &key), none);
    }
}

#[test]
fn all_problems_are_in_one_report() {
    let root = OutsideCa::root(&params("root"));
    let mut bad = params("bad");
    bad.is_ca = IsCa::ExplicitNoCa;
    bad.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    bad.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    set_validity(&mut bad, NOW / 1000 - 20 * DAY, NOW / 1000 - DAY);
    let bad = root.below(&bad);
    let other = KeyPair::generate().unwrap().serialize_pem();
    let found = problems(&bad.pem, "", &other);
    let wanted = [
        "the basic constraint CA:TRUE",
        "the key usages keyCertSign",
        "exclude servers or clients",
        "it expired on 2027-01-14T08:00:00.000Z",
        "the key in --key is not its key",
        "the certificate of CN=root, which has signed CN=bad, is missing",
    ];
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    for (problem, part) in found.iter().zip(wanted) {
        assert!(problem.contains(part), "{part:?} is not in {problem:?}");
    }
}

#[test]
fn each_property_that_clients_would_refuse_is_a_problem() {
    type Change = fn(&mut CertificateParams);
    let cases: [(Change, &str); 7] = [
        (
            |params| set_validity(params, NOW / 1000 + DAY, NOW / 1000 + 3650 * DAY),
            "it is not valid before 2027-01-16T08:00:00.000Z",
        ),
        (
            |params| set_validity(params, NOW / 1000 - DAY, NOW / 1000 + 89 * DAY),
            "in less than 90 days",
        ),
        (
            |params| params.is_ca = IsCa::ExplicitNoCa,
            "it is not the certificate of a CA",
        ),
        (
            |params| params.key_usages.clear(),
            "it may not sign certificates",
        ),
        (
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            "its extended key usages",
        ),
        (
            |params| {
                params.name_constraints = Some(NameConstraints {
                    permitted_subtrees: vec![GeneralSubtree::DnsName("example".to_owned())],
                    excluded_subtrees: Vec::new(),
                });
            },
            "name constraints",
        ),
        // Certificates that the master signs would name another issuer.
        (
            |params| {
                let name = DnValue::BmpString("x".try_into().unwrap());
                params
                    .distinguished_name
                    .push(DnType::OrganizationName, name);
            },
            "would change in the certificates that Halite makes",
        ),
    ];
    for (change, wanted) in cases {
        let mut params = params("kubernetes");
        change(&mut params);
        let ca = OutsideCa::root(&params);
        let found = problems(&ca.pem, "", &ca.key.serialize_pem());
        assert_eq!(found.len(), 1, "{wanted}: {found:#?}");
        assert!(found[0].contains(wanted), "{found:#?}");
    }
}

#[test]
fn a_chain_leads_to_a_root_by_signatures() {
    let [root, same_name] = [(); 2].map(|()| OutsideCa::root(&params("root")));
    let mut short = params("short");
    short.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let mut expired = params("old");
    set_validity(&mut expired, NOW / 1000 - 9 * DAY, NOW / 1000 - DAY);
    let mut leaf = params("leaf");
    leaf.is_ca = IsCa::ExplicitNoCa;
    for (policy, chain, wanted) in [
        (
            params("policy"),
            &root.pem,
            "the certificate of CN=policy, which has signed CN=kubernetes, is missing",
        ),
        (
            params("policy"),
            &same_name.pem,
            "the certificate of CN=root in --chain has not signed CN=policy",
        ),
        (
            params("policy"),
            &String::new(),
            "the certificate of CN=root, which has signed CN=policy, is missing",
        ),
        (
            short,
            &root.pem,
            "CN=short in --chain: its path length allows fewer than 1 CAs",
        ),
        (expired, &root.pem, "CN=old in --chain: it expired on"),
        (
            leaf,
            &root.pem,
            "CN=leaf in --chain: it may not sign certificates",
        ),
    ] {
        let policy = root.below(&policy);
        let ca = policy.below(&params("kubernetes"));
        let own = match wanted.contains("signed CN=kubernetes") {
            true => ca.pem.clone(),
            false => [ca.pem.as_str(), policy.pem.as_str()].concat(),
        };
        let found = problems(&own, chain, &ca.key.serialize_pem());
        assert_eq!(found.len(), 1, "{wanted}: {found:#?}");
        assert!(found[0].contains(wanted), "{wanted}: {found:#?}");
    }
}

#[test]
fn the_key_of_another_ca_and_texts_that_are_not_pem_are_problems_without_a_key() {
    let ca = OutsideCa::root(&params("kubernetes"));
    let key = ca.key.serialize_pem();
    let fingerprint = halite_proto::pki::Inspected::from_pem(&ca.pem)
        .unwrap()
        .fingerprint;
    let parts = ImportedParts {
        certificate: &ca.pem,
        chain: "",
        key: &key,
        is_requested: true,
        others: &[(fingerprint, "the CA etcd".to_owned())],
    };
    let found = check(&parts, NOW).err().unwrap();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].contains("it has the key of the CA etcd"),
        "{found:#?}"
    );
    let found = problems("canary", "canary", "-----BEGIN PRIVATE KEY-----\ncanary").join("\n");
    for option in ["--cert: ", "--chain: ", "--key: "] {
        assert!(found.contains(option), "{found}");
    }
    assert!(!found.contains("canary"), "{found}");
}

#[test]
fn a_ca_is_checked_again_when_it_begins_to_sign() {
    let ca = OutsideCa::root(&params("kubernetes"));
    assert!(ready(&ca.pem, NOW).is_ok());
    let late = NOW + 3600 * DAY * 1000;
    let found = ready(&ca.pem, late).err().unwrap();
    assert!(found[0].contains("in less than 90 days"), "{found:#?}");
}
