//! Keys from keys: HKDF with SHA-256, and random bytes.

use ring::hkdf;
use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::Zeroizing;

use super::error::AgeError;

struct Length;

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        32
    }
}

/// HKDF-SHA-256 with an output of 32 bytes.
pub(super) fn derive(secret: &[u8], salt: &[u8], info: &str) -> Zeroizing<[u8; 32]> {
    let mut key = Zeroizing::new([0; 32]);
    let info = [info.as_bytes()];
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    let filled = prk
        .expand(&info, Length)
        .and_then(|okm| okm.fill(&mut *key));
    debug_assert!(filled.is_ok(), "32 bytes are within HKDF's limit");
    key
}

/// Random bytes from the system.
pub(super) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, AgeError> {
    let mut bytes = Zeroizing::new([0; N]);
    let filled = SystemRandom::new().fill(&mut *bytes);
    filled.map_err(|_| AgeError::Random)?;
    Ok(bytes)
}
