//! Keys, signing requests and the resulting files of a signed certificate: the pure part of
//! [`super::effect::Effect::Certificate`].
//!
//! The leaf's key is made here and stays here; only a PKCS#10 request (RFC 2986) leaves the host.

use base64::Engine as _;
use rcgen::{CertificateParams, DnType, DnValue, KeyPair, SanType};
use serde_json::{Map, Value};

use super::effect::{CertificateRequest, Meta};
use super::{HostError, HostFuture, HostResult};

/// A signed certificate and the CA that signed it, both PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signed {
    /// The leaf.
    pub certificate_pem: String,
    /// Its CA.
    pub ca_pem: String,
}

/// The signer of certificates: the master during a job, [`NoSigner`] in local mode, a test CA in
/// tests.
pub trait Signer: Send + Sync {
    /// Has the request's CA sign `csr_pem`.
    fn sign<'a>(
        &'a self,
        request: &'a CertificateRequest,
        csr_pem: &'a str,
    ) -> HostFuture<'a, HostResult<Signed>>;
}

/// The signer of local mode, which refuses because there is no master.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSigner;

impl Signer for NoSigner {
    fn sign<'a>(
        &'a self,
        request: &'a CertificateRequest,
        _: &'a str,
    ) -> HostFuture<'a, HostResult<Signed>> {
        let reason = format!(
            "{}: a certificate of the CA `{}` can only be made with a master; apply this state through it",
            request.cert_path, request.ca
        );
        Box::pin(async move { Err(HostError::refused(reason)) })
    }
}

/// Makes a private key, PKCS#8 PEM. RSA keys are not made here: see [`is_rsa`].
///
/// # Errors
/// An unknown algorithm.
pub fn new_key(algorithm: &str) -> HostResult<KeyPair> {
    let made = match algorithm {
        "ecdsa-p256" | "" => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        "ed25519" => KeyPair::generate_for(&rcgen::PKCS_ED25519),
        other => {
            return Err(HostError::refused(format!(
                "unknown key algorithm `{other}`: use rsa-2048, rsa-4096, ecdsa-p256 or ed25519"
            )));
        }
    };
    made.map_err(|e| HostError::failed(format!("cannot make a key of algorithm {algorithm}"), e))
}

/// The bits of an RSA algorithm's name; RSA keys come from the host's openssl, since our
/// cryptography library makes none.
#[must_use]
pub fn is_rsa(algorithm: &str) -> Option<u32> {
    match algorithm {
        "rsa-2048" => Some(2048),
        "rsa-4096" => Some(4096),
        _ => None,
    }
}

/// Reads an existing key on the host; `None` if it is unreadable or of another algorithm than
/// required, so that a new one is made. OpenSSL's SEC1 and PKCS#1 forms count as unreadable.
#[must_use]
pub fn usable_key(pem: &str, algorithm: &str) -> Option<KeyPair> {
    let key = KeyPair::from_pem(pem).ok()?;
    let wanted = match (algorithm, is_rsa(algorithm)) {
        (_, Some(bits)) => {
            // The public key's DER is a little longer than its modulus; only whole size classes are
            // distinguished.
            let bytes = key.public_key_raw().len() as u32;
            key.is_compatible(&rcgen::PKCS_RSA_SHA256) && (bits / 8..bits / 8 + 64).contains(&bytes)
        }
        ("ed25519", _) => key.is_compatible(&rcgen::PKCS_ED25519),
        _ => key.is_compatible(&rcgen::PKCS_ECDSA_P256_SHA256),
    };
    wanted.then_some(key)
}

/// The key in the file that the request would write: a PEM key, the key part of a combined file, or
/// the client key of a kubeconfig.
#[must_use]
pub fn key_in_file(request: &CertificateRequest, content: &[u8]) -> Option<KeyPair> {
    let text = std::str::from_utf8(content).ok()?;
    let pem = if request.kubeconfig.is_some() {
        let data = text
            .lines()
            .find_map(|l| l.trim().strip_prefix("client-key-data:"))?;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(data.trim())
            .ok()?;
        String::from_utf8(bytes).ok()?
    } else {
        private_key_block(text)?.to_owned()
    };
    usable_key(&pem, &request.algorithm)
}

/// The private key block of a PEM text.
fn private_key_block(text: &str) -> Option<&str> {
    let end_of_header = text.find("PRIVATE KEY-----")?;
    let start = text.get(..end_of_header)?.rfind("-----BEGIN ")?;
    let tail = text.get(start..)?;
    let end = tail.find("-----END ")?;
    let last = tail
        .get(end..)?
        .find('\n')
        .map_or(tail.len(), |n| end + n + 1);
    tail.get(..last)
}

fn texts(spec: &Value, key: &str) -> Vec<String> {
    match spec.get(key) {
        Some(Value::Array(items)) => items
            .iter()
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect(),
        Some(Value::String(one)) => vec![one.clone()],
        _ => Vec::new(),
    }
}

/// The signing request for `key`: subject and SANs from the chunk's arguments (`common_name`,
/// `organization`, `sans_dns`, `sans_ip`, `sans_uri`). The master sets usages and lifetime, from
/// the same chunk.
///
/// # Errors
/// A SAN that is neither name nor address.
pub fn signing_request(request: &CertificateRequest, key: &KeyPair) -> HostResult<String> {
    let path = &request.cert_path;
    let failed = |what: &str, e: rcgen::Error| HostError::failed(format!("{path}: {what}"), e);
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let organizations = texts(&request.spec, "organization");
    if organizations.len() > 1 {
        return Err(HostError::refused(format!(
            "{path}: bad subject: more than one `organization` is not supported"
        )));
    }
    for organization in organizations {
        params
            .distinguished_name
            .push(DnType::OrganizationName, DnValue::Utf8String(organization));
    }
    if let Some(name) = request.spec.get("common_name").and_then(Value::as_str) {
        params
            .distinguished_name
            .push(DnType::CommonName, DnValue::Utf8String(name.to_owned()));
    }
    for name in texts(&request.spec, "sans_dns") {
        let name = name
            .clone()
            .try_into()
            .map_err(|e| failed("bad DNS name", e))?;
        params.subject_alt_names.push(SanType::DnsName(name));
    }
    for address in texts(&request.spec, "sans_ip") {
        let parsed = address.parse().map_err(|e: std::net::AddrParseError| {
            HostError::failed(format!("{path}: bad address"), e)
        })?;
        params.subject_alt_names.push(SanType::IpAddress(parsed));
    }
    for uri in texts(&request.spec, "sans_uri") {
        let uri = uri.clone().try_into().map_err(|e| failed("bad URI", e))?;
        params.subject_alt_names.push(SanType::URI(uri));
    }
    let csr = params
        .serialize_request(key)
        .map_err(|e| failed("cannot make the signing request", e))?;
    csr.pem()
        .map_err(|e| failed("cannot encode the signing request", e))
}

/// One file to write: path, content, and owner, group and mode.
pub type FileToWrite = (String, Vec<u8>, Meta);

/// The resulting files of a signed request, in the order in which they must be written: the key
/// first, so that a crash in between leaves a key without certificate (which the next run uses) and
/// never a certificate without key.
///
/// # Errors
/// Missing kubeconfig fields.
pub fn files(
    request: &CertificateRequest,
    key: &KeyPair,
    signed: &Signed,
) -> HostResult<Vec<FileToWrite>> {
    let key_pem = key.serialize_pem();
    let secret = Meta {
        mode: Some(request.meta.mode.unwrap_or(0o600)),
        ..request.meta.clone()
    };
    let mut certificate = with_newline(&signed.certificate_pem);
    if request.append_ca {
        certificate.push_str(&with_newline(&signed.ca_pem));
    }
    if let Some(fields) = &request.kubeconfig {
        let fields = fields.as_object().cloned().unwrap_or_default();
        let client = Client::Embedded {
            certificate_pem: &certificate,
            key_pem: &key_pem,
        };
        let text = kubeconfig(&fields, &signed.ca_pem, &client)
            .map_err(|e| HostError::failed(&request.cert_path, e))?;
        return Ok(vec![(request.cert_path.clone(), text.into_bytes(), secret)]);
    }
    if request.key_path == request.cert_path {
        certificate.push_str(&with_newline(&key_pem));
        return Ok(vec![(
            request.cert_path.clone(),
            certificate.into_bytes(),
            secret,
        )]);
    }
    Ok(vec![
        (
            request.key_path.clone(),
            with_newline(&key_pem).into_bytes(),
            Meta {
                mode: Some(0o600),
                ..request.meta.clone()
            },
        ),
        (
            request.cert_path.clone(),
            certificate.into_bytes(),
            request.meta.clone(),
        ),
    ])
}

fn with_newline(pem: &str) -> String {
    let mut text = pem.replace("\r\n", "\n");
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The credentials of a kubeconfig's user.
#[derive(Debug, Clone, Copy)]
pub enum Client<'a> {
    /// Certificate and key inside the file.
    Embedded {
        /// PEM.
        certificate_pem: &'a str,
        /// PEM.
        key_pem: &'a str,
    },
    /// Certificate and key in files of their own (kubelet's rotated pair).
    Files {
        /// Path.
        certificate: &'a str,
        /// Path.
        key: &'a str,
    },
}

/// A missing field that a kubeconfig requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is missing")]
pub struct MissingField(pub &'static str);

/// A kubeconfig in kubeadm's form (`cmd/kubeadm/app/util/kubeconfig`), keys in client-go's order.
/// `fields` are the arguments of `kubeconfig.managed`: `server`, `user`, `cluster` (default
/// `kubernetes`), `context` (default `user@cluster`), `namespace`, `ca_certificate` (PEM; default:
/// the signing CA).
///
/// # Errors
/// A required field is missing.
pub fn kubeconfig(
    fields: &Map<String, Value>,
    ca_pem: &str,
    client: &Client<'_>,
) -> Result<String, MissingField> {
    let text = |key: &str| {
        fields
            .get(key)
            .and_then(Value::as_str)
            .filter(|v| !v.is_empty())
    };
    let server = text("server").ok_or(MissingField("server"))?;
    let user = text("user").ok_or(MissingField("user"))?;
    let cluster = text("cluster").unwrap_or("kubernetes");
    let context = text("context").map_or_else(|| format!("{user}@{cluster}"), str::to_owned);
    let encode = |pem: &str| base64::engine::general_purpose::STANDARD.encode(with_newline(pem));
    let ca = encode(text("ca_certificate").unwrap_or(ca_pem));
    let (server, user, cluster, context) = (
        scalar(server),
        scalar(user),
        scalar(cluster),
        scalar(&context),
    );
    let namespace = text("namespace")
        .map(|n| format!("    namespace: {}\n", scalar(n)))
        .unwrap_or_default();
    let identity = match client {
        Client::Embedded {
            certificate_pem,
            key_pem,
        } => format!(
            "    client-certificate-data: {}\n    client-key-data: {}\n",
            encode(certificate_pem),
            encode(key_pem)
        ),
        Client::Files { certificate, key } => {
            format!(
                "    client-certificate: {}\n    client-key: {}\n",
                scalar(certificate),
                scalar(key)
            )
        }
    };
    Ok(format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {ca}\n    server: {server}\n  \
         name: {cluster}\ncontexts:\n- context:\n    cluster: {cluster}\n{namespace}    user: {user}\n  name: {context}\n\
         current-context: {context}\nkind: Config\nusers:\n- name: {user}\n  user:\n{identity}"
    ))
}

/// A YAML scalar: plain where that is safe, otherwise a JSON string, which is valid YAML too.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./:@".contains(c))
        && !text.ends_with(':')
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
        );
    if plain {
        text.to_owned()
    } else {
        Value::String(text.to_owned()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request() -> CertificateRequest {
        CertificateRequest {
            key_path: "/k".into(),
            cert_path: "/c".into(),
            algorithm: "ecdsa-p256".into(),
            spec: json!({"common_name": "etcd", "organization": ["x"], "sans_dns": ["localhost"], "sans_ip": ["127.0.0.1"]}),
            ..CertificateRequest::default()
        }
    }

    #[test]
    fn the_key_comes_before_the_certificate() {
        let key = new_key("ecdsa-p256").unwrap();
        let signed = Signed {
            certificate_pem: "CERT".into(),
            ca_pem: "CA".into(),
        };
        let made = files(
            &CertificateRequest {
                append_ca: true,
                ..request()
            },
            &key,
            &signed,
        )
        .unwrap();
        assert_eq!(made[0].0, "/k");
        assert_eq!(made[0].2.mode, Some(0o600));
        assert_eq!(made[1].1, b"CERT\nCA\n");
    }

    #[test]
    fn a_kept_key_is_found_again_in_each_form() {
        let key = new_key("ecdsa-p256").unwrap();
        let signed = Signed {
            certificate_pem: "CERT\n".into(),
            ca_pem: "CA\n".into(),
        };
        let plain = request();
        let combined = CertificateRequest {
            key_path: "/c".into(),
            ..request()
        };
        let config = CertificateRequest {
            kubeconfig: Some(json!({"server": "https://a:6443", "user": "admin"})),
            ..request()
        };
        for wanted in [plain, combined, config] {
            let made = files(&wanted, &key, &signed).unwrap();
            let found = key_in_file(&wanted, &made[0].1).expect("the key");
            assert_eq!(found.serialize_der(), key.serialize_der());
            let other = CertificateRequest {
                algorithm: "ed25519".into(),
                ..wanted
            };
            assert!(
                key_in_file(&other, &made[0].1).is_none(),
                "a key of another algorithm is not used"
            );
        }
    }

    #[test]
    fn the_request_carries_subject_and_names() {
        let key = new_key("ed25519").unwrap();
        let pem = signing_request(&request(), &key).unwrap();
        let parsed = rcgen::CertificateSigningRequestParams::from_pem(&pem).unwrap();
        assert_eq!(parsed.params.subject_alt_names.len(), 2);
    }

    #[test]
    fn kubeconfig_is_quoted_where_yaml_needs_it() {
        let fields =
            json!({"server": "https://[fd00::1]:6443", "user": "system:node:a", "cluster": "yes"});
        let client = Client::Files {
            certificate: "/pem",
            key: "/pem",
        };
        let text = kubeconfig(fields.as_object().unwrap(), "CA", &client).unwrap();
        assert!(
            text.contains("server: \"https://[fd00::1]:6443\"\n"),
            "{text}"
        );
        assert!(text.contains("name: system:node:a@yes\n"), "{text}");
        assert!(text.contains("cluster: \"yes\"\n"), "{text}");
    }
}
