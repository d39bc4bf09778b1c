//! Private keys in older forms, wrapped into PKCS#8 (RFC 5208), the only form that our cryptography
//! library reads.

use rustls_pki_types::PrivateKeyDer;

const SEQUENCE: u8 = 0x30;
const OCTET_STRING: u8 = 0x04;
/// `INTEGER 0`: PKCS#8's version.
const VERSION: [u8; 3] = [0x02, 0x01, 0x00];
/// `rsaEncryption` with `NULL` parameters (RFC 8017, appendix C).
const RSA: [u8; 13] = [
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];
/// `id-ecPublicKey` (RFC 5480).
const EC: [u8; 9] = [0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// `prime256v1` and `secp384r1`.
const CURVES: [&[u8]; 2] = [
    &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
    &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22],
];

/// The reason why a key cannot be written as PKCS#8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyFormError {
    /// The curve is missing or unsupported.
    #[error("an EC key must name the curve P-256 or P-384")]
    Curve,
    /// The form is unknown.
    #[error("it is neither PKCS#8, PKCS#1 nor SEC1")]
    Unknown,
}

/// The key as PKCS#8 DER.
pub(crate) fn wrapped(key: &PrivateKeyDer<'_>) -> Result<Vec<u8>, KeyFormError> {
    match key {
        PrivateKeyDer::Pkcs8(key) => Ok(key.secret_pkcs8_der().to_vec()),
        PrivateKeyDer::Pkcs1(key) => Ok(wrap(&RSA, key.secret_pkcs1_der())),
        PrivateKeyDer::Sec1(key) => {
            let der = key.secret_sec1_der();
            let named = |curve: &&&[u8]| der.windows(curve.len()).any(|part| part == **curve);
            let curve = CURVES.iter().find(named);
            let curve = curve.ok_or(KeyFormError::Curve)?;
            Ok(wrap(&[&EC, *curve].concat(), der))
        }
        _ => Err(KeyFormError::Unknown),
    }
}

fn wrap(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    let body = [
        &VERSION[..],
        &element(SEQUENCE, algorithm),
        &element(OCTET_STRING, key),
    ]
    .concat();
    element(SEQUENCE, &body)
}

/// One DER element: tag, definite length, content.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut der = vec![tag];
    let length = content.len().to_be_bytes();
    let significant = &length[length
        .iter()
        .position(|b| *b != 0)
        .unwrap_or(length.len() - 1)..];
    match significant {
        [short] if *short < 0x80 => der.push(*short),
        // A usize has at most eight bytes.
        long => {
            der.push(0x80 | long.len() as u8);
            der.extend(long);
        }
    }
    der.extend(content);
    der
}
