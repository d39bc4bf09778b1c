//! Signing of certificate requests.

use std::time::Duration;

use halite_proto::pki;
use halite_store::Millis;
use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType, SerialNumber,
};

use super::{BACKDATE_SECONDS, Ca, CaError, ExpiredCa, HALITE, Profile};

/// Size limit of a request; legitimate ones have about 1 KiB.
const REQUEST_MAX: usize = 16 * 1024;
const DAY: i64 = 24 * 60 * 60;

/// A signed certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate, PEM. A server's may be followed by its CA: signed by the previous CA, or an
    /// intermediate.
    pub certificate_pem: String,
    /// The CA's certificate, PEM. While it is rotated, all trusted ones, the signer first.
    pub ca_pem: String,
    /// Serial number, lower-case hex.
    pub serial: String,
    /// SHA-256 of the public key that was signed, see [`pki::fingerprint`].
    pub fingerprint: String,
    /// Subject, for people.
    pub subject: String,
    /// End of validity, seconds since the epoch.
    pub not_after: i64,
}

/// Sets the validity, in seconds since the epoch.
pub(super) fn set_validity(params: &mut CertificateParams, from: i64, to: i64) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let after = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    params.not_before = epoch + after(from);
    params.not_after = epoch + after(to);
}

/// A random serial number: 127 bits, positive, never zero (RFC 5280, 4.1.2.2).
pub(super) fn new_serial() -> Result<[u8; 16], CaError> {
    let mut serial: [u8; 16] = pki::random()?;
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}

/// The fingerprint of the key of which a request (PEM) proves possession.
///
/// # Errors
/// The request is malformed or too large, or its proof is wrong.
pub fn request_fingerprint(csr_pem: &str) -> Result<String, CaError> {
    use rcgen::PublicKeyData as _;
    Ok(pki::fingerprint(
        &request(csr_pem)?.public_key.subject_public_key_info(),
    ))
}

fn request(csr_pem: &str) -> Result<CertificateSigningRequestParams, CaError> {
    if csr_pem.len() > REQUEST_MAX {
        return Err(CaError::LargeRequest { limit: REQUEST_MAX });
    }
    // Parsing verifies the signature, which proves possession; ring rejects RSA keys below 2048
    // bits.
    CertificateSigningRequestParams::from_pem(csr_pem).map_err(CaError::Request)
}

pub(super) fn sign(
    ca: &Ca,
    csr_pem: &str,
    profile: &Profile,
    now: Millis,
) -> Result<Issued, CaError> {
    let is_expired = ca.is_expired(now);
    if is_expired && ca.name != HALITE {
        return Err(CaError::Expired(ExpiredCa {
            name: ca.name.clone(),
            not_after: ca.not_after,
        }));
    }
    let mut request = request(csr_pem)?;
    let serial = new_serial()?;
    let now = now / 1000;
    let ends = (profile.ends).unwrap_or(now + i64::from(profile.days) * DAY);
    // An identity that ended with the expired CA would be refused at once, and no command could
    // reach the master any more. The end of the trusted CA itself is not checked by any of our
    // programs.
    let not_after = if is_expired {
        ends
    } else {
        ends.min(ca.not_after)
    };
    request.params = params(profile)?;
    request.params.serial_number = Some(SerialNumber::from_slice(&serial));
    set_validity(&mut request.params, now - BACKDATE_SECONDS, not_after);
    let certificate = request
        .signed_by(&ca.issuer)
        .map_err(CaError::Certificate)?;
    let mut certificate_pem = certificate.pem();
    if profile.server_auth {
        let rotation = ca.rotation.as_ref();
        if let Some(cross) = rotation.and_then(|rotation| rotation.cross.as_deref()) {
            certificate_pem.push_str(cross);
        }
        // Clients that trust only the root of an intermediate verify the server, too.
        if !ca.is_root {
            certificate_pem.push_str(&pki::certificate_pem(&ca.certificate_der));
        }
    }
    let written = pki::Inspected::from_der(certificate.der())?;
    Ok(Issued {
        certificate_pem,
        ca_pem: ca.trusted_pem().to_owned(),
        serial: written.serial,
        fingerprint: written.fingerprint,
        subject: written.subject,
        not_after: written.not_after,
    })
}

/// Converts the profile to rcgen's parameters, without anything from the request.
fn params(profile: &Profile) -> Result<CertificateParams, CaError> {
    let text = |what: &'static str, value: &str| {
        // The library's error only repeats the name.
        rcgen::string::Ia5String::try_from(value).map_err(|_| CaError::Name {
            what,
            value: value.to_owned(),
        })
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for organization in &profile.organization {
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization.as_str());
    }
    params
        .distinguished_name
        .push(DnType::CommonName, profile.common_name.as_str());
    for name in &profile.dns_names {
        params
            .subject_alt_names
            .push(SanType::DnsName(text("DNS name", name)?));
    }
    for address in &profile.addresses {
        params.subject_alt_names.push(SanType::IpAddress(*address));
    }
    if let Some(identity) = &profile.identity {
        params
            .subject_alt_names
            .push(SanType::URI(text("identity", &identity.to_string())?));
    }
    params.is_ca = IsCa::ExplicitNoCa;
    // kubeadm's NewSignedCert sets these two on every leaf, whatever the key.
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    if profile.server_auth {
        params
            .extended_key_usages
            .push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    if profile.client_auth {
        params
            .extended_key_usages
            .push(ExtendedKeyUsagePurpose::ClientAuth);
    }
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}
