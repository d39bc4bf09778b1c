//! Compares a certificate with its specification, for `x509.certificate` and `kubeconfig.managed`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use halite_states::args::Args;
use halite_states::certificates;
use rcgen::{KeyPair, PublicKeyData};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::X509Certificate;
use x509_parser::x509::X509Name;

use super::{Failure, fail};

const DAY: i64 = 86_400;

/// The certificate that a state requires.
pub(super) struct CertificateSpec {
    common_name: String,
    organizations: BTreeSet<String>,
    dns: BTreeSet<String>,
    ips: BTreeSet<IpAddr>,
    uris: BTreeSet<String>,
    server: bool,
    client: bool,
    /// PEM of the CA that must have signed it.
    ca: Option<String>,
    /// Renew if fewer than this many seconds are left.
    renew: i64,
}

impl CertificateSpec {
    /// Reads the arguments that both states share.
    pub fn read(args: &Args<'_>, server: bool, client: bool) -> Result<Self, Failure> {
        let days = args.integer("days")?.unwrap_or(certificates::DAYS);
        let renew = args.integer("renew_days")?;
        let renew = renew.unwrap_or(certificates::renewed_from(days));
        if days < 1 || renew >= days || renew < 0 {
            return fail(format!(
                "`renew_days` ({renew}) must be less than `days` ({days}), and neither negative"
            ));
        }
        let mut ips = BTreeSet::new();
        for text in args.list("sans_ip")? {
            match text.parse() {
                Ok(ip) => ips.insert(ip),
                Err(_) => return fail(format!("`sans_ip`: `{text}` is not an IP address")),
            };
        }
        Ok(Self {
            common_name: args.required("common_name")?,
            organizations: args.list("organization")?.into_iter().collect(),
            dns: args
                .list("sans_dns")?
                .into_iter()
                .map(|name| name.to_ascii_lowercase())
                .collect(),
            ips,
            uris: args.list("sans_uri")?.into_iter().collect(),
            server,
            client,
            ca: args.text("ca_certificate")?,
            renew: renew * DAY,
        })
    }

    /// The faults of the certificate in `pem`, whose private key should be `key`; empty without
    /// any.
    pub fn faults(
        &self,
        pem: &[u8],
        key: Option<&KeyPair>,
        append_ca: bool,
        now: i64,
    ) -> Vec<String> {
        let mut blocks = Pem::iter_from_buffer(pem)
            .flatten()
            .filter(|block| block.label == "CERTIFICATE");
        let Some(first) = blocks.next() else {
            return vec!["it contains no certificate".to_owned()];
        };
        let Ok(certificate) = first.parse_x509() else {
            return vec!["it is not readable".to_owned()];
        };
        let mut faults = Vec::new();
        match key {
            None => {
                faults.push("its key is missing, unreadable or of another algorithm".to_owned())
            }
            Some(key)
                if key.der_bytes() != certificate.public_key().subject_public_key.data.as_ref() =>
            {
                faults.push("it does not belong to its key".to_owned());
            }
            Some(_) => {}
        }
        self.subject(&certificate, &mut faults);
        self.names(&certificate, &mut faults);
        self.usages(&certificate, &mut faults);
        let left = certificate.validity().not_after.timestamp() - now;
        if left <= 0 {
            faults.push("it has expired".to_owned());
        } else if left < self.renew {
            faults.push(format!("it expires in {} days", left / DAY));
        }
        self.issuer(&certificate, append_ca.then(|| blocks.next()), &mut faults);
        faults
    }

    fn subject(&self, certificate: &X509Certificate<'_>, faults: &mut Vec<String>) {
        let subject = certificate.subject();
        let names: Vec<&str> = subject
            .iter_common_name()
            .filter_map(|name| name.as_str().ok())
            .collect();
        if names != [self.common_name.as_str()] {
            faults.push(format!(
                "its common name is {}, not {}",
                names.join(", "),
                self.common_name
            ));
        }
        let found: BTreeSet<String> = subject
            .iter_organization()
            .filter_map(|name| name.as_str().ok())
            .map(str::to_owned)
            .collect();
        if found != self.organizations {
            faults.push(format!(
                "its organizations are [{}], not [{}]",
                list(&found),
                list(&self.organizations)
            ));
        }
    }

    fn names(&self, certificate: &X509Certificate<'_>, faults: &mut Vec<String>) {
        let (mut dns, mut ips, mut other) = (BTreeSet::new(), BTreeSet::new(), false);
        let mut uris = BTreeSet::new();
        if let Ok(Some(names)) = certificate.subject_alternative_name() {
            for name in &names.value.general_names {
                match name {
                    GeneralName::DNSName(name) => {
                        dns.insert(name.to_ascii_lowercase());
                    }
                    GeneralName::URI(uri) => {
                        uris.insert((*uri).to_owned());
                    }
                    GeneralName::IPAddress(bytes) => match address(bytes) {
                        Some(ip) => {
                            ips.insert(ip);
                        }
                        None => other = true,
                    },
                    _ => other = true,
                }
            }
        }
        if dns != self.dns {
            faults.push(format!(
                "its DNS names are [{}], not [{}]",
                list(&dns),
                list(&self.dns)
            ));
        }
        if ips != self.ips {
            faults.push(format!(
                "its addresses are [{}], not [{}]",
                list(&ips),
                list(&self.ips)
            ));
        }
        if uris != self.uris {
            faults.push(format!(
                "its URIs are [{}], not [{}]",
                list(&uris),
                list(&self.uris)
            ));
        }
        if other {
            faults.push("it has alternative names that were not requested".to_owned());
        }
    }

    fn usages(&self, certificate: &X509Certificate<'_>, faults: &mut Vec<String>) {
        let (server, client, other) = match certificate.extended_key_usage() {
            Ok(Some(usage)) => {
                let usage = usage.value;
                let other = usage.any
                    || usage.code_signing
                    || usage.email_protection
                    || usage.time_stamping;
                (
                    usage.server_auth,
                    usage.client_auth,
                    other || usage.ocsp_signing || !usage.other.is_empty(),
                )
            }
            _ => (false, false, false),
        };
        if (server, client, other) != (self.server, self.client, false) {
            faults.push("its usages differ".to_owned());
        }
        if certificate.is_ca() {
            faults.push("it is a CA certificate".to_owned());
        }
    }

    /// Checks by name and key identifier (RFC 5280, 4.2.1.1) that the required CA signed it, and
    /// that the CA's own certificate follows if it should (`appended`).
    fn issuer(
        &self,
        certificate: &X509Certificate<'_>,
        appended: Option<Option<Pem>>,
        faults: &mut Vec<String>,
    ) {
        let wanted = self
            .ca
            .as_ref()
            .and_then(|pem| Pem::iter_from_buffer(pem.as_bytes()).flatten().next());
        if let Some(block) = &wanted
            && let Ok(ca) = block.parse_x509()
            && !issued_by(certificate, &ca)
        {
            faults.push(format!(
                "its issuer is {}, not the present CA",
                words(certificate.issuer())
            ));
        }
        let Some(appended) = appended else { return };
        let good = match (&appended, &wanted) {
            (None, _) => false,
            (Some(found), Some(wanted)) => found.contents == wanted.contents,
            (Some(found), None) => found
                .parse_x509()
                .is_ok_and(|ca| issued_by(certificate, &ca)),
        };
        if !good {
            faults.push("its CA does not follow it".to_owned());
        }
    }
}

/// Returns whether an identity may stay: the certificate in `pem` is of this CA and this key, and
/// more than a third of its lifetime is left (`halite-master init` and the minion have the same
/// rule for their own).
pub(super) fn is_current(pem: &[u8], key: &KeyPair, ca: &[u8], now: i64) -> bool {
    let first = |bytes: &[u8]| {
        Pem::iter_from_buffer(bytes)
            .flatten()
            .find(|b| b.label == "CERTIFICATE")
    };
    let (Some(own), Some(ca)) = (first(pem), first(ca)) else {
        return false;
    };
    let (Ok(own), Ok(ca)) = (own.parse_x509(), ca.parse_x509()) else {
        return false;
    };
    let (begin, end) = (
        own.validity().not_before.timestamp(),
        own.validity().not_after.timestamp(),
    );
    key.der_bytes() == own.public_key().subject_public_key.data.as_ref()
        && issued_by(&own, &ca)
        && begin >= ca.validity().not_before.timestamp()
        && end - now > (end - begin) / 3
}

fn issued_by(certificate: &X509Certificate<'_>, ca: &X509Certificate<'_>) -> bool {
    let authority =
        certificate
            .iter_extensions()
            .find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    id.key_identifier.as_ref().map(|id| id.0.to_vec())
                }
                _ => None,
            });
    let subject = ca
        .iter_extensions()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
    let keys_match = match (authority, subject) {
        (Some(authority), Some(subject)) => authority == subject,
        _ => true,
    };
    keys_match && certificate.issuer().as_raw() == ca.subject().as_raw()
}

fn words(name: &X509Name<'_>) -> String {
    name.to_string()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(four));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

fn list<T: ToString>(items: &BTreeSet<T>) -> String {
    items
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
