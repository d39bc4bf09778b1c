//! Creates the CAs and the key pair of service accounts, like kubeadm.

use std::path::Path;

use halite_proto::pki::PrivateKey;
use halite_store::Millis;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyIdMethod,
    KeyUsagePurpose, SanType, SerialNumber,
};

use super::checked::CaName;
use super::sign::{new_serial, set_validity};
use super::{BACKDATE_SECONDS, Ca, CaError, HALITE, NAMES, SITE, files};

/// Ten years of 365 days: kubeadm's `CACertificateValidityPeriod`.
const CA_SECONDS: i64 = 10 * 365 * 24 * 60 * 60;

/// Creates missing files. The key is written first: a crash between key and certificate leaves a
/// key, and the next call creates the certificate for it.
pub(super) fn missing(state_dir: &Path, cluster: &str, now: Millis) -> Result<(), CaError> {
    let directory = state_dir.join("ca");
    files::directory(&directory, 0o700)?;
    for name in NAMES {
        let [certificate, key] = files::pair(&directory, name);
        if certificate.exists() {
            if !key.exists() {
                return Err(CaError::NoKey { certificate, key });
            }
            continue;
        }
        let key = kept_or_new_key(&key)?;
        files::write(&certificate, &self_signed(name, cluster, &key, now)?, 0o600)?;
    }
    let key = kept_or_new_key(&state_dir.join("sa.key"))?;
    let public = state_dir.join("sa.pub");
    if !public.exists() {
        files::write(&public, &key.public_pem(), 0o600)?;
    }
    Ok(())
}

fn kept_or_new_key(path: &Path) -> Result<PrivateKey, CaError> {
    if path.exists() {
        return PrivateKey::from_pem(&files::read(path)?).map_err(CaError::unusable(path));
    }
    let key = PrivateKey::generate()?;
    files::write(path, &key.to_pem(), 0o600)?;
    Ok(key)
}

pub(super) fn self_signed(
    name: &str,
    cluster: &str,
    key: &PrivateKey,
    now: Millis,
) -> Result<String, CaError> {
    Ok(params(name, cluster, now)?
        .self_signed(key.as_key_pair())
        .map_err(CaError::Certificate)?
        .pem())
}

/// A certificate request (PEM) for a CA of this name: with kubeadm's subject, and as a CA.
pub(super) fn request(name: &str, key: &PrivateKey) -> Result<String, CaError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name(name));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ];
    let request = params.serialize_request(key.as_key_pair());
    let pem = request.and_then(|request| request.pem());
    pem.map_err(CaError::Certificate)
}

/// The certificate of a new CA, signed by an older CA instead of its own issuer. One that was
/// imported keeps its name and key identifier, by which clients find it. Without the identifier of
/// the older one's key, OpenSSL would take it for self-signed: both may have the same name.
pub(super) fn cross_signed(
    older: &Ca,
    cluster: &str,
    key: &PrivateKey,
    imported: Option<&CaName>,
    now: Millis,
) -> Result<String, CaError> {
    let mut params = params(&older.name, cluster, now)?;
    if let Some(name) = imported {
        params.distinguished_name = name.subject.clone();
        params.subject_alt_names.clear();
        if let Some(identifier) = &name.key_identifier {
            params.key_identifier_method = KeyIdMethod::PreSpecified(identifier.clone());
        }
    }
    params.use_authority_key_identifier_extension = true;
    // Halite's programs do not check the end of a trusted CA of identities, so an expired one is
    // still of use to them.
    if older.name != HALITE || !older.is_expired(now) {
        let begin = now / 1000 - BACKDATE_SECONDS;
        set_validity(&mut params, begin, older.not_after);
    }
    let signed = params.signed_by(key.as_key_pair(), &older.issuer);
    Ok(signed.map_err(CaError::Certificate)?.pem())
}

/// kubeadm's certlist.go: "kubernetes", "etcd-ca", "front-proxy-ca".
fn common_name(name: &str) -> &str {
    match name {
        "etcd" => "etcd-ca",
        "front-proxy" => "front-proxy-ca",
        other => other,
    }
}

fn params(name: &str, cluster: &str, now: Millis) -> Result<CertificateParams, CaError> {
    let common_name = match name {
        HALITE | SITE => format!("{name}-ca {cluster}"),
        other => common_name(other).to_owned(),
    };
    let ours = matches!(name, HALITE | SITE);
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name.as_str());
    params.serial_number = Some(SerialNumber::from_slice(&new_serial()?));
    let begin = now / 1000 - BACKDATE_SECONDS;
    set_validity(&mut params, begin, begin + CA_SECONDS);
    if ours {
        // These CAs sign only leaf certificates.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
        ];
    } else {
        // Like kubeadm's NewSelfSignedCACert: no path length, these usages, its own name as DNS
        // name.
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
            KeyUsagePurpose::KeyCertSign,
        ];
        let dns = common_name.try_into().map_err(CaError::Certificate)?;
        params.subject_alt_names.push(SanType::DnsName(dns));
    }
    Ok(params)
}
