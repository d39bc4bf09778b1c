//! Checks of a CA that an operator imports (docs/decisions/0103). All problems are in one report.

use halite_errors::chain;
use halite_proto::pki;
use halite_proto::pki::PrivateKey;
use halite_store::Millis;
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue};
use rustls_pki_types::CertificateDer;
use x509_parser::asn1_rs::Tag;
use x509_parser::extensions::ParsedExtension;
use x509_parser::oid_registry::{
    OID_PKCS1_RSASSAPSS, OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA,
    OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ECDSA_WITH_SHA512,
    OID_SIG_ED25519,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::x509::X509Name;

use crate::clock::rfc3339;

/// The least remaining time of a CA when a rotation begins. Its certificates end with it, and each
/// rotation restarts the control plane three times.
const LEAST_DAYS: i64 = 90;
const DAY: i64 = 24 * 60 * 60;
/// The most characters of a name in a message.
const NAME_MAX: usize = 100;

/// The parts of a CA that an operator imports.
pub(super) struct ImportedParts<'a> {
    /// The certificate (PEM), which others of its chain may follow.
    pub(super) certificate: &'a str,
    /// The certificates up to its root (PEM); may be empty.
    pub(super) chain: &'a str,
    /// The private key (PEM).
    pub(super) key: &'a str,
    /// `true` if the key is that of the request.
    pub(super) is_requested: bool,
    /// The keys of other CAs: the fingerprint, and the CA in words.
    pub(super) others: &'a [(String, String)],
}

/// A CA without problems.
pub(super) struct CheckedCa {
    /// Its certificate alone (PEM).
    pub(super) certificate: String,
    pub(super) key: PrivateKey,
    /// The number of CAs that may follow it in a chain.
    pub(super) path_length: Option<u32>,
}

/// The name of a CA in its certificate, and the identifier of its key there.
pub(super) struct CaName {
    pub(super) subject: DistinguishedName,
    pub(super) key_identifier: Option<Vec<u8>>,
}

/// Checks a CA.
///
/// # Errors
/// All problems, each with its remedy.
pub(super) fn check(parts: &ImportedParts<'_>, now: Millis) -> Result<CheckedCa, Vec<String>> {
    let mut problems = Vec::new();
    let key = PrivateKey::from_pem(parts.key);
    let key = key.map_err(|error| problems.push(format!("--key: {}", chain(&error))));
    let key = key.ok();
    let own = certificates(parts.certificate, "--cert", &mut problems);
    let above = match parts.chain {
        "" => Vec::new(),
        text => certificates(text, "--chain", &mut problems),
    };
    let Some((der, rest)) = own.split_first() else {
        return Err(problems);
    };
    let Ok((_, certificate)) = X509Certificate::from_der(der) else {
        problems.push("--cert: it is not an X.509 certificate".to_owned());
        return Err(problems);
    };
    usages(&certificate, &mut problems);
    problems.extend(times(&certificate, LEAST_DAYS, now));
    if !is_strong(&certificate) {
        problems.push(
            "it is signed with a weak or unknown algorithm: use SHA-256 or a longer hash, with RSA, ECDSA or Ed25519".to_owned(),
        );
    }
    let fingerprint = pki::fingerprint(certificate.public_key().raw);
    if let Some(key) = &key
        && key.fingerprint() != fingerprint
    {
        problems.push(match parts.is_requested {
            true => "it does not have the key of the request that waits: have the output of `ctl certs csr` signed".to_owned(),
            false => "the key in --key is not its key".to_owned(),
        });
    }
    let other = parts.others.iter().find(|(key, _)| *key == fingerprint);
    if let Some((_, owner)) = other {
        problems.push(format!(
            "it has the key of {owner}: make another key, each CA needs its own"
        ));
    }
    if CaName::of(&certificate).is_none() {
        problems.push(format!(
            "its name ({}) would change in the certificates that Halite makes: use a subject that has one value of each kind (one OU, \
             one DC) in UTF-8 or printable characters",
            words(certificate.subject())
        ));
    }
    let mut issuers = Vec::new();
    for der in rest.iter().chain(&above) {
        match X509Certificate::from_der(der) {
            Ok((_, issuer)) => issuers.push(issuer),
            Err(_) => problems
                .push("--chain: one of the certificates is not an X.509 certificate".to_owned()),
        }
    }
    up_to_the_root(&certificate, &issuers, now, &mut problems);
    match key {
        Some(key) if problems.is_empty() => Ok(CheckedCa {
            certificate: pki::certificate_pem(der),
            key,
            path_length: path_length(&certificate),
        }),
        _ => Err(problems),
    }
}

/// Checks again that a CA (PEM) that was imported before can begin to sign, and returns its name.
///
/// # Errors
/// All problems.
pub(super) fn ready(certificate_pem: &str, now: Millis) -> Result<CaName, Vec<String>> {
    let all = pki::certificates(certificate_pem).map_err(|error| vec![chain(&error)])?;
    let first = all.first().map(|der| X509Certificate::from_der(der));
    let Some(Ok((_, certificate))) = first else {
        return Err(vec!["it is not an X.509 certificate".to_owned()]);
    };
    let problems = times(&certificate, LEAST_DAYS, now);
    match CaName::of(&certificate) {
        Some(name) if problems.is_empty() => Ok(name),
        _ => Err(problems),
    }
}

fn certificates(
    pem: &str,
    option: &str,
    problems: &mut Vec<String>,
) -> Vec<CertificateDer<'static>> {
    pki::certificates(pem).unwrap_or_else(|error| {
        problems.push(format!("{option}: {}", chain(&error)));
        Vec::new()
    })
}

/// Checks what the certificate allows. Go and OpenSSL refuse the certificates of a CA that may not
/// sign them, or that limits their usages or names.
fn usages(certificate: &X509Certificate<'_>, problems: &mut Vec<String>) {
    if !certificate.is_ca() {
        problems.push(
            "it is not the certificate of a CA: have it signed with the basic constraint CA:TRUE"
                .to_owned(),
        );
    }
    let usage = certificate.key_usage().ok().flatten();
    if !usage.is_some_and(|usage| usage.value.key_cert_sign()) {
        problems.push(
            "it may not sign certificates: have it signed with the key usages keyCertSign and cRLSign"
                .to_owned(),
        );
    }
    let limits = match certificate.extended_key_usage() {
        Ok(None) => false,
        Ok(Some(usage)) => {
            let usage = usage.value;
            !(usage.any || (usage.server_auth && usage.client_auth))
        }
        Err(_) => true,
    };
    if limits {
        problems.push(
            "its extended key usages exclude servers or clients: have it signed without extended key usages".to_owned(),
        );
    }
    if !matches!(certificate.name_constraints(), Ok(None)) {
        problems.push(
            "it has name constraints, which may exclude names and addresses of the cluster: have it signed without them".to_owned(),
        );
    }
}

/// The problems of a certificate's validity, which must last for `least` more days.
fn times(certificate: &X509Certificate<'_>, least: i64, now: Millis) -> Vec<String> {
    let validity = certificate.validity();
    let (begins, ends) = (
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    );
    let (now, time) = (now / 1000, |at: i64| rfc3339(at.saturating_mul(1000)));
    let mut problems = Vec::new();
    if begins > now {
        problems.push(format!(
            "it is not valid before {}: wait, or check the clock of the master's host",
            time(begins)
        ));
    }
    if ends <= now {
        problems.push(format!(
            "it expired on {}: have another one signed",
            time(ends)
        ));
    } else if ends - now < least * DAY {
        problems.push(format!(
            "it expires on {}, in less than {least} days, and all its certificates with it: have one signed for a longer time",
            time(ends)
        ));
    }
    problems
}

fn is_strong(certificate: &X509Certificate<'_>) -> bool {
    let strong = [
        OID_PKCS1_SHA256WITHRSA,
        OID_PKCS1_SHA384WITHRSA,
        OID_PKCS1_SHA512WITHRSA,
        OID_PKCS1_RSASSAPSS,
        OID_SIG_ECDSA_WITH_SHA256,
        OID_SIG_ECDSA_WITH_SHA384,
        OID_SIG_ECDSA_WITH_SHA512,
        OID_SIG_ED25519,
    ];
    let algorithm = &certificate.signature_algorithm.algorithm;
    strong.iter().any(|oid| oid == algorithm)
}

fn path_length(certificate: &X509Certificate<'_>) -> Option<u32> {
    let constraints = certificate.basic_constraints().ok().flatten()?;
    constraints.value.path_len_constraint
}

/// Checks the certificates above a CA, up to one that has signed itself.
fn up_to_the_root<'a>(
    ca: &'a X509Certificate<'a>,
    issuers: &'a [X509Certificate<'a>],
    now: Millis,
    problems: &mut Vec<String>,
) {
    let mut lowest = ca;
    // The number of CAs below the next one.
    for below in 1..=issuers.len() + 1 {
        let (name, above) = (lowest.subject(), lowest.issuer());
        if name.as_raw() == above.as_raw() {
            if lowest.verify_signature(None).is_err() {
                problems.push(format!(
                    "{} has the name of its issuer, and another key: use two names",
                    words(name)
                ));
            }
            return;
        }
        let is_above = |other: &&X509Certificate<'_>| other.subject().as_raw() == above.as_raw();
        let named: Vec<&X509Certificate<'_>> = issuers.iter().filter(is_above).collect();
        let signer = named.iter().copied().find(|other| {
            let key = other.public_key();
            lowest.verify_signature(Some(key)).is_ok()
        });
        let Some(signer) = signer else {
            let (name, above) = (words(name), words(above));
            problems.push(match named.is_empty() {
                true => format!(
                    "the certificate of {above}, which has signed {name}, is missing: give all certificates up to the root with \
                     --chain"
                ),
                false => format!(
                    "the certificate of {above} in --chain has not signed {name}: give the one that has"
                ),
            });
            return;
        };
        above_it(signer, below, now, problems);
        lowest = signer;
    }
    problems.push(
        "--chain does not end at a root, a certificate that has signed itself: add it".to_owned(),
    );
}

/// Checks a certificate above so many CAs.
fn above_it(
    certificate: &X509Certificate<'_>,
    below: usize,
    now: Millis,
    problems: &mut Vec<String>,
) {
    let mut found = times(certificate, 0, now);
    // A root often has no usages.
    let usage = certificate.key_usage().ok().flatten();
    let may_sign = usage.is_none_or(|usage| usage.value.key_cert_sign());
    if !certificate.is_ca() || !may_sign {
        found.push("it may not sign certificates: use another CA".to_owned());
    }
    let length = path_length(certificate);
    if length.is_some_and(|length| (length as usize) < below) {
        found.push(format!(
            "its path length allows fewer than {below} CAs below it: have it signed by another CA"
        ));
    }
    let name = words(certificate.subject());
    problems.extend(
        found
            .into_iter()
            .map(|problem| format!("{name} in --chain: {problem}")),
    );
}

/// A name for a message.
fn words(name: &X509Name<'_>) -> String {
    let text = name.to_string();
    let safe = text
        .chars()
        .map(|character| match character.is_control() {
            true => '?',
            false => character,
        })
        .take(NAME_MAX);
    safe.collect()
}

impl CaName {
    /// The name in a certificate; `None` if certificates that are made with it would have another
    /// one: the library that makes them keeps one value of each kind.
    fn of(certificate: &X509Certificate<'_>) -> Option<Self> {
        let wanted = certificate.subject();
        let subject = written(wanted)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = subject.clone();
        let key = PrivateKey::generate().ok()?;
        let probe = params.self_signed(key.as_key_pair()).ok()?;
        let (_, probe) = X509Certificate::from_der(probe.der()).ok()?;
        let is_same = probe.subject().as_raw() == wanted.as_raw();
        let mut extensions = certificate.iter_extensions();
        let key_identifier = extensions.find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_vec()),
            _ => None,
        });
        is_same.then_some(Self {
            subject,
            key_identifier,
        })
    }
}

/// A name in the form of the library that makes certificates; `None` if it has no such form.
fn written(name: &X509Name<'_>) -> Option<DistinguishedName> {
    let mut written = DistinguishedName::new();
    for part in name.iter_rdn() {
        let mut values = part.iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        let kind: Vec<u64> = value.attr_type().iter()?.collect();
        let text = value.as_str().ok()?;
        let text = match value.attr_value().header.tag() {
            Tag::Utf8String => DnValue::Utf8String(text.to_owned()),
            Tag::PrintableString => DnValue::PrintableString(text.try_into().ok()?),
            Tag::Ia5String => DnValue::Ia5String(text.try_into().ok()?),
            _ => return None,
        };
        written.push(DnType::from_oid(&kind), text);
    }
    let is_empty = written.iter().next().is_none();
    (!is_empty).then_some(written)
}
