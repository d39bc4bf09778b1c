use super::*;

#[test]
fn debug_output_of_a_key_holds_no_key() {
    let key = PrivateKey::generate().unwrap();
    let shown = format!("{key:?}");
    assert_eq!(shown, format!("PrivateKey({})", key.fingerprint()));
}

#[test]
fn a_key_survives_pem_and_keeps_its_fingerprint() {
    let key = PrivateKey::generate().unwrap();
    let again = PrivateKey::from_pem(&key.to_pem()).unwrap();
    assert_eq!(key.fingerprint(), again.fingerprint());
    assert_eq!(key.fingerprint().len(), 95);
    assert!(key.public_pem().starts_with("-----BEGIN PUBLIC KEY-----"));
}

#[test]
fn pem_is_what_others_write() {
    let key = PrivateKey::generate().unwrap();
    let params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let certificate = params.self_signed(key.as_key_pair()).unwrap();
    let ours = certificate_pem(certificate.der());
    assert_eq!(ours, certificate.pem().replace("\r\n", "\n"));
    assert_eq!(certificates(&ours).unwrap(), [certificate.der().clone()]);
    for (bytes, wanted) in [
        (&b"a"[..], "YQ=="),
        (b"ab", "YWI="),
        (b"abc", "YWJj"),
        (b"", ""),
    ] {
        assert!(
            pem("X", bytes)
                .replace("-----BEGIN X-----\n", "")
                .starts_with(wanted)
        );
    }
}

#[test]
fn a_certificate_with_two_identities_has_none() {
    let key = PrivateKey::generate().unwrap();
    let mut params = CertificateParams::default();
    for id in ["a", "b"] {
        let uri = Identity::new("prod", crate::identity::IdentityKind::Minion, id)
            .unwrap()
            .to_string();
        params
            .subject_alt_names
            .push(rcgen::SanType::URI(uri.try_into().unwrap()));
    }
    let certificate = params.self_signed(key.as_key_pair()).unwrap();
    let inspected = Inspected::from_der(certificate.der()).unwrap();
    assert!(matches!(
        inspected.identity(),
        Err(PkiError::NotOneIdentity(2))
    ));
}

#[test]
fn garbage_is_refused_without_a_panic() {
    assert!(Inspected::from_der(b"\x30\x82\xff\xff").is_err());
    assert!(Inspected::from_pem("").is_err());
    assert!(certificates("-----BEGIN CERTIFICATE-----\nAAAA\n").is_err());
    assert!(
        PrivateKey::from_pem("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
            .is_err()
    );
}

#[test]
fn keys_as_kubeadm_and_openssl_write_them_are_read() {
    let key = PrivateKey::generate().unwrap();
    let der = private_key(&key.to_pem()).unwrap();
    // PKCS#8 of P-256 as ring writes it: the SEC1 key is the last octet string, behind 29 bytes of
    // header.
    let inner = &der.secret_der()[29..];
    assert_eq!(inner[0], 0x30);
    // With the curve's name, as Go and OpenSSL write it.
    let curve = [
        0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
    ];
    // After the sequence's header (2 bytes), the version (3) and the key (2 + 32), any of which may
    // contain such a byte too.
    let public = 39;
    assert_eq!(inner[public], 0xa1);
    let mut named = inner[..public].to_vec();
    named.extend(curve);
    named.extend(&inner[public..]);
    named[1] += u8::try_from(curve.len()).unwrap();
    let again = PrivateKey::from_pem(&pem("EC PRIVATE KEY", &named)).unwrap();
    assert_eq!(again.fingerprint(), key.fingerprint());
    assert!(
        PrivateKey::from_pem(&pem("EC PRIVATE KEY", inner)).is_err(),
        "without a curve it cannot be told which"
    );
    assert!(PrivateKey::from_pem(&pem("RSA PRIVATE KEY", b"no key")).is_err());
}

#[test]
fn random_bytes_differ() {
    assert_ne!(random::<16>().unwrap(), random::<16>().unwrap());
}

#[test]
fn an_error_of_a_private_key_does_not_quote_it() {
    let key = PrivateKey::generate().unwrap().to_pem();
    let body = key.lines().nth(1).unwrap();
    for text in [
        key.replacen("-----\n", "-----", 1),
        key.replacen('\n', "", 1),
        format!("-----BEGIN {body}"),
        key.replacen("\n", "\n!", 1),
        body.to_owned(),
    ] {
        let error = PrivateKey::from_pem(&text).unwrap_err();
        // As in a log, with its causes.
        let texts = format!("{} {error:?}", halite_errors::chain(&error));
        assert!(!texts.contains(&body[..16]), "{texts}");
        let bytes = format!("{:?}", &body.as_bytes()[..16]);
        assert!(!texts.contains(bytes.trim_matches(['[', ']'])), "{texts}");
    }
}

#[test]
fn the_issuer_of_a_certificate_is_found_by_its_signature() {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "the same name");
    let made = || {
        let key = PrivateKey::generate().unwrap();
        let certificate = params.self_signed(key.as_key_pair()).unwrap();
        (
            certificate,
            rcgen::Issuer::new(params.clone(), key.into_key_pair()),
        )
    };
    let (first, second) = (made(), made());
    let key = PrivateKey::generate().unwrap();
    let leaf = CertificateParams::default().signed_by(key.as_key_pair(), &second.1);
    let leaf = leaf.unwrap();
    let cas = [first.0.der().clone(), second.0.der().clone()];
    assert_eq!(issuer_among(leaf.der(), &cas), Some(&cas[1]));
    assert_eq!(issuer_among(leaf.der(), &cas[..1]), None);
    assert_eq!(issuer_among(b"no certificate", &cas), None);
    let [ours, other] = [&second.0, &first.0].map(|ca| ca.pem());
    assert!(is_of_signer(&leaf.pem(), &format!("{ours}{other}")));
    assert!(!is_of_signer(&leaf.pem(), &format!("{other}{ours}")));
    assert!(!is_of_signer(&leaf.pem(), ""));
}
