//! The meaning of a certificate, without the parts that are new in each: serial number, key, dates.

use std::net::IpAddr;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::parse_x509_pem;
use x509_parser::public_key::PublicKey;

/// Seconds of a day.
const DAY: i64 = 86_400;

/// The authorities of one cluster, by the path of their certificates.
#[derive(Debug, Default)]
pub(super) struct Authorities(Vec<Authority>);

#[derive(Debug)]
struct Authority {
    path: String,
    pem: String,
    key_id: Vec<u8>,
}

impl Authorities {
    /// Adds a certificate if it belongs to an authority.
    pub(super) fn add(&mut self, path: &str, pem: &str) -> Result<()> {
        let key_id = with(pem, |certificate| {
            let is_ca = certificate.is_ca();
            Ok(subject_key(certificate).filter(|_| is_ca))
        })?;
        if let Some(key_id) = key_id {
            self.0.push(Authority {
                path: path.to_owned(),
                pem: pem.trim().to_owned(),
                key_id,
            });
        }
        Ok(())
    }

    /// The path of the authority that has this certificate.
    pub(super) fn name(&self, pem: &str) -> String {
        let known = self.0.iter().find(|authority| authority.pem == pem.trim());
        known.map_or_else(
            || "not one of this cluster".to_owned(),
            |authority| authority.path.clone(),
        )
    }

    fn by_key(&self, key_id: Option<Vec<u8>>) -> Value {
        let known = self
            .0
            .iter()
            .find(|authority| Some(&authority.key_id) == key_id.as_ref());
        known.map_or(Value::Null, |authority| json!(authority.path))
    }
}

/// Subject, issuer, names, usages, lifetime and algorithms of the first certificate in a PEM text.
pub(super) fn describe(pem: &str, authorities: &Authorities) -> Result<Value> {
    with(pem, |certificate| {
        let text =
            |name: &x509_parser::x509::AttributeTypeAndValue<'_>| name.as_str().map(str::to_owned);
        let common_name = certificate
            .subject()
            .iter_common_name()
            .map(text)
            .collect::<Result<Vec<_>, _>>()?;
        let organization = certificate
            .subject()
            .iter_organization()
            .map(text)
            .collect::<Result<Vec<_>, _>>()?;
        let (dns, ip) = names(certificate)?;
        let lifetime = certificate.validity();
        let seconds = lifetime.not_after.timestamp() - lifetime.not_before.timestamp();
        Ok(json!({
            "subject": {"commonName": common_name.join(","), "organization": organization},
            "issuer": certificate.issuer().to_string(),
            "authority": authorities.by_key(authority_key(certificate)),
            "ca": certificate.is_ca(),
            "dns": dns,
            "ip": ip,
            "keyUsage": key_usage(certificate)?,
            "extKeyUsage": ext_key_usage(certificate)?,
            // kubeadm dates a certificate from the start of its authority, five minutes in the
            // past: round to days.
            "days": (seconds + DAY / 2) / DAY,
            "key": key(certificate)?,
            "signature": certificate.signature_algorithm.algorithm.to_id_string(),
        }))
    })
}

fn with<T>(pem: &str, read: impl FnOnce(&X509Certificate<'_>) -> Result<T>) -> Result<T> {
    let (_, pem) = parse_x509_pem(pem.as_bytes()).context("not PEM")?;
    let certificate = pem.parse_x509().context("not a certificate")?;
    read(&certificate)
}

fn subject_key(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate
        .extensions()
        .iter()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        })
}

/// Identifier of the key that signed the certificate; a self-signed one may leave it out.
fn authority_key(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    let named =
        certificate
            .extensions()
            .iter()
            .find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    id.key_identifier.as_ref().map(|id| id.0.to_vec())
                }
                _ => None,
            });
    named.or_else(|| subject_key(certificate).filter(|_| certificate.is_ca()))
}

fn names(certificate: &X509Certificate<'_>) -> Result<(Vec<String>, Vec<String>)> {
    let (mut dns, mut ip) = (Vec::new(), Vec::new());
    let names = certificate.subject_alternative_name()?;
    for name in names
        .iter()
        .flat_map(|extension| &extension.value.general_names)
    {
        match name {
            GeneralName::DNSName(name) => dns.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => ip.push(address(bytes)?.to_string()),
            other => bail!("unexpected name {other}"),
        }
    }
    dns.sort();
    ip.sort();
    Ok((dns, ip))
}

fn address(bytes: &[u8]) -> Result<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Ok(four.into());
    }
    let sixteen =
        <[u8; 16]>::try_from(bytes).context("an address is neither 4 nor 16 bytes long")?;
    Ok(sixteen.into())
}

fn key_usage(certificate: &X509Certificate<'_>) -> Result<Value> {
    Ok(certificate
        .key_usage()?
        .map_or(Value::Null, |usage| json!(usage.value.to_string())))
}

fn ext_key_usage(certificate: &X509Certificate<'_>) -> Result<Vec<String>> {
    let Some(usage) = certificate.extended_key_usage()? else {
        return Ok(Vec::new());
    };
    let usage = usage.value;
    let known = [
        (usage.server_auth, "server"),
        (usage.client_auth, "client"),
        (usage.any, "any"),
        (usage.code_signing, "code"),
        (usage.email_protection, "email"),
        (usage.time_stamping, "time"),
        (usage.ocsp_signing, "ocsp"),
    ];
    let named = known
        .into_iter()
        .filter(|(set, _)| *set)
        .map(|(_, name)| name.to_owned());
    Ok(named
        .chain(usage.other.iter().map(|oid| oid.to_id_string()))
        .collect())
}

fn key(certificate: &X509Certificate<'_>) -> Result<String> {
    Ok(match certificate.public_key().parsed()? {
        PublicKey::RSA(key) => format!("RSA-{}", key.key_size()),
        PublicKey::EC(point) => format!("ECDSA-{}", point.key_size()),
        _ => certificate.public_key().algorithm.algorithm.to_id_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Certificates made by kubeadm; their private keys do not exist any more.
    const CA: &str = "-----BEGIN CERTIFICATE-----
MIIC/DCCAeSgAwIBAgIICz21oeBgAS8wDQYJKoZIhvcNAQELBQAwEjEQMA4GA1UE
AxMHZXRjZC1jYTAeFw0yNjExMjEwMDE1MzhaFw0zNjExMTgwMDIwMzhaMBIxEDAO
BgNVBAMTB2V0Y2QtY2EwggEiMA0GCSqGSIb3DQEBAQUAA4IBDwAwggEKAoIBAQDS
ngG8HBcPcKVxSkRFHfQmUteZii9o25Ze3tLNrIWxnY9fflDUuXdJDpQfuFdFpABV
3zfB0HhOriZtZZjkhRE4s57j7GG83Jfffr9C6hyGp/uNbbBLDOc7qKbe0WT6c47E
pkg6/0doh46+yBjATVTiFpKRcn61JynF+vcbCo4wbnyZ3n7wTp8LBcYT+DdZV347
MqdB2hK/kxiyE3oXGESBIUa6Xz8MV3Kzn1RtRhrSOtmuG66xmBMSRP1o8GYyrCR6
/de0MSCDqXS0AOHV9kMnWYU6uvsUWiPwW4rvgKhhtPRzhrNa9asHb69+Tj71jCPJ
vDnYmJlquEm7E/9LbFeVAgMBAAGjVjBUMA4GA1UdDwEB/wQEAwICpDAPBgNVHRMB
Af8EBTADAQH/MB0GA1UdDgQWBBTFiUhlFd02b5J1H399J4YKHg7fRTASBgNVHREE
CzAJggdldGNkLWNhMA0GCSqGSIb3DQEBCwUAA4IBAQCFSACl5JRDYIr0d5LKLlHg
/nsHmltQ7XrlWP1DZXGUpBaHAm7sWZ0HJIKsYI87LTlZAIE5cgiXa5b4Ad06d96b
lCZlk4TXoJ03L5P+4C5lDtFOZRwxJ8Lm4NCXswbD7zp4zq8BQDu3Nvfb0mo8B3KB
4vgcaViqSWWk9k/8asNNVwOGJjU9jWO+xn4oADN1TepiKMjQSyne5wVQsVdmj0tm
NIlZr/VOezwKa2H4jekanHPzUQppbEqZluS9WAS3e/5UGZSb5/5ZxakQf7PQJLGF
MMf6L8n9fP8y9+pkodi2MzcavW0SdJAZHygPnnU66Wxjc10SkYNU9hN72a0Nk+oj
-----END CERTIFICATE-----";

    const SERVER: &str = "-----BEGIN CERTIFICATE-----
MIIDTTCCAjWgAwIBAgIIGbwHbb3h5YswDQYJKoZIhvcNAQELBQAwEjEQMA4GA1UE
AxMHZXRjZC1jYTAeFw0yNjExMjEwMDE1MzhaFw0yNzExMjEwMDIwMzhaMBYxFDAS
BgNVBAMTC2Jvb3RzdHJhcC0xMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKC
AQEAlnn42stdamQM5UvjFEejrHncuxbFa2tKRSxXlVyjrfCWiiviyxr+VnQcX/W6
MPwwBxOnOPRNUTqHY7fIm2VxIoF4CL7ypR9leLCXbyBKctZXnnpKOwt/8hZsmiX9
cXozzgG/U/wtYsX2NgN8AoR4EEyOIQCtW/tsvcc1yrpTGs8knS8uGSxqFDz0Dcuc
WdlCnN3HumFVMTj6ZimGiaMW5ca64vqi1cm1kDySeLThWx1n4c43j/e3K27ZPRsN
dT0EwCWghfskxERzHOMrDZSsHPSSMKHeVoUvJ6yA/zzsw2UkluKcozEl51upeWFQ
SZSq/dPnGkf8Kpyd2DMagO8JhQIDAQABo4GiMIGfMA4GA1UdDwEB/wQEAwIFoDAd
BgNVHSUEFjAUBggrBgEFBQcDAQYIKwYBBQUHAwIwDAYDVR0TAQH/BAIwADAfBgNV
HSMEGDAWgBTFiUhlFd02b5J1H399J4YKHg7fRTA/BgNVHREEODA2ggtib290c3Ry
YXAtMYIJbG9jYWxob3N0hwQKCgALhwR/AAABhxAAAAAAAAAAAAAAAAAAAAABMA0G
CSqGSIb3DQEBCwUAA4IBAQA0zu4DS/jAuGSR8tA5kfBNWvp94PAm0bqpbexE9Eit
p7Ph1pDM1gz6Mp2f4LEaQWzceKltYGkKVOeSY10LV8IEsoP2zF3oxsMAvRG8QXlG
7GVPxF56hDBx67A2PO0VbdyHfjawIs2K2xg+p/pFnlFLUh6wN3Xbk46+JTcIVLj9
CJ0SloDtk2343Mzl79Keav7/zDrQJfwh9Kd+/uEpYNEQGlhBABNYwZjzZXCd/iv5
nUYK+cllEG6GRENLuOGIzNw1cRgZtTgTvE417IsxPujeYXZ/akN6Zr9rp/HS+QJt
Iq9D+2ErNteNFK24LWwiyqrM53ZtDxASMagMx1pAAaIL
-----END CERTIFICATE-----";

    #[test]
    fn a_certificate_of_kubeadm_is_described() {
        let mut authorities = Authorities::default();
        authorities.add("pki/etcd/ca.crt", CA).unwrap();
        authorities.add("pki/etcd/server.crt", SERVER).unwrap();
        assert_eq!(
            describe(SERVER, &authorities).unwrap(),
            json!({
                "subject": {"commonName": "bootstrap-1", "organization": []},
                "issuer": "CN=etcd-ca",
                "authority": "pki/etcd/ca.crt",
                "ca": false,
                "dns": ["bootstrap-1", "localhost"],
                "ip": ["10.10.0.11", "127.0.0.1", "::1"],
                "keyUsage": "Digital Signature, Key Encipherment",
                "extKeyUsage": ["server", "client"],
                "days": 365,
                "key": "RSA-2048",
                "signature": "1.2.840.113549.1.1.11",
            })
        );
        let ca = describe(CA, &authorities).unwrap();
        assert_eq!(
            (&ca["ca"], &ca["authority"], &ca["days"]),
            (&json!(true), &json!("pki/etcd/ca.crt"), &json!(3650))
        );
        assert_eq!(authorities.name(CA), "pki/etcd/ca.crt");
        assert_eq!(authorities.name(SERVER), "not one of this cluster");
        assert!(describe("nothing", &authorities).is_err());
    }
}
