//! Certificates that hosts trust in addition to those of their distribution.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::field_schemas;

/// Characters in a line of PEM (RFC 7468, section 2).
const LINE: usize = 64;

/// Certificates that every host trusts, in addition to those of its distribution.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Trust {
    /// Certificates of authorities (PEM, one or several together), each under a name of your
    /// choice. All programs that use the host's trust store accept them, including containerd.
    #[schemars(schema_with = "field_schemas::certificates")]
    pub certificates: BTreeMap<String, String>,
}

/// The reason why a text is not a list of certificates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The text contains no PEM block.
    #[error("there is no certificate in it")]
    Nothing,
    /// A block is not a certificate.
    #[error("it contains a {0}, not only certificates")]
    Other(String),
    /// A block starts as PEM, but is incomplete or not base64.
    #[error("it is cut off, or not base64 between its lines")]
    Damaged,
    /// The certificate with this number, from 1, cannot be read.
    #[error("its certificate {0} cannot be read")]
    Certificate(usize),
}

/// The certificates in a text, each as PEM with lines of 64 characters.
///
/// # Errors
/// A block is not a certificate, or the text contains none.
pub fn certificates(text: &str) -> Result<Vec<String>, Unfit> {
    let mut found = Vec::new();
    for block in Pem::iter_from_buffer(text.as_bytes()) {
        let block = block.map_err(|_| Unfit::Damaged)?;
        if block.label != "CERTIFICATE" {
            return Err(Unfit::Other(block.label));
        }
        match X509Certificate::from_der(&block.contents) {
            Ok(([], _)) => found.push(encode("CERTIFICATE", &block.contents)),
            _ => return Err(Unfit::Certificate(found.len() + 1)),
        }
    }
    if found.is_empty() {
        Err(Unfit::Nothing)
    } else {
        Ok(found)
    }
}

/// A block of PEM with lines of 64 characters.
pub(crate) fn encode(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(LINE.min(rest.len()));
        out.push_str(line);
        out.push('\n');
        rest = after;
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

/// The part of the view about trust.
#[derive(Debug, Serialize)]
pub(crate) struct Trusted {
    certificates: Map<String, Value>,
}

/// Makes the part of the view about trust: one certificate for each name, because OpenSSL's trust
/// store reads only the first one of a file.
pub(crate) fn view(trust: &Trust) -> Trusted {
    let mut out = Map::new();
    for (name, text) in &trust.certificates {
        let found = certificates(text).unwrap_or_default();
        let several = found.len() > 1;
        for (at, certificate) in found.into_iter().enumerate() {
            let name = if several {
                format!("{name}.{}", at + 1)
            } else {
                name.clone()
            };
            out.insert(name, Value::String(certificate));
        }
    }
    Trusted { certificates: out }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test's panic is its report")]
mod tests {
    use serde_json::json;

    use super::*;

    fn authority(name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        (
            params
                .self_signed(&key)
                .unwrap()
                .pem()
                .replace("\r\n", "\n"),
            key.serialize_pem(),
        )
    }

    #[test]
    fn certificates_are_told_from_all_else() {
        let ((one, key), (other, _)) = (authority("one"), authority("other"));
        assert_eq!(certificates(&one), Ok(vec![one.clone()]));
        let both = format!(
            "# the site's\n{one}\nand another:\r\n{}",
            other.replace('\n', "\r\n")
        );
        assert_eq!(certificates(&both), Ok(vec![one.clone(), other.clone()]));
        assert_eq!(certificates(""), Err(Unfit::Nothing));
        assert_eq!(certificates("hello"), Err(Unfit::Nothing));
        assert_eq!(
            certificates(&format!("{one}{key}")),
            Err(Unfit::Other("PRIVATE KEY".to_owned()))
        );
        let end = one.find("-----END").unwrap();
        assert_eq!(certificates(&one[..end]), Err(Unfit::Damaged));
        assert_eq!(
            certificates(&one.replacen("MII", "M*I", 1)),
            Err(Unfit::Damaged)
        );
        let cut = encode(
            "CERTIFICATE",
            &STANDARD
                .decode(
                    one.lines()
                        .filter(|l| !l.starts_with('-'))
                        .collect::<String>(),
                )
                .unwrap()[..99],
        );
        assert_eq!(
            certificates(&format!("{one}{cut}")),
            Err(Unfit::Certificate(2))
        );
        assert_eq!(
            certificates(&encode("CERTIFICATE", b"no DER at all")),
            Err(Unfit::Certificate(1))
        );
    }

    #[test]
    fn each_certificate_has_a_name_of_its_own() {
        let (one, other) = (authority("one").0, authority("other").0);
        let certificates = [("corp", one.clone()), ("lab", format!("{one}{other}"))];
        let trust = Trust {
            certificates: certificates
                .map(|(name, text)| (name.to_owned(), text))
                .into(),
        };
        let wanted = json!({"certificates": {"corp": &one, "lab.1": &one, "lab.2": &other}});
        assert_eq!(json!(view(&trust)), wanted);
    }
}
