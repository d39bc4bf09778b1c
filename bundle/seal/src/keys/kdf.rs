//! The key derivation of `minisign`'s encrypted keys: libsodium's
//! `crypto_pwhash_scryptsalsa208sha256`.

use zeroize::Zeroizing;

use super::{InvalidKey, Password};

/// Number of encrypted bytes: key id, secret key and checksum.
pub const SIZE: usize = 104;

/// Work and memory in libsodium's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KdfLimits {
    pub operations: u64,
    pub memory: u64,
}

/// The limits for keys that Halite makes: N = 2^17, r = 8, p = 1, as OWASP's Password Storage
/// Cheat Sheet recommends. They take 128 MiB.
pub const LIMITS: KdfLimits = KdfLimits {
    operations: 1 << 22,
    memory: 1 << 28,
};

/// The largest N, 2^20, which takes 1 GiB. `minisign` uses it for its own keys.
const LARGEST: u8 = 20;

/// The key stream that is xored with the encrypted bytes.
pub fn stream(
    password: &Password,
    salt: &[u8; 32],
    limits: KdfLimits,
) -> Result<Zeroizing<[u8; SIZE]>, InvalidKey> {
    let (log_n, r, p) = parameters(limits).ok_or(InvalidKey::Memory)?;
    // This length is for password hashes in text form and has no effect here; 32 is simply within
    // its bounds.
    let parameters = scrypt::Params::new(log_n, r, p, 32).map_err(InvalidKey::Parameters)?;
    let mut stream = Zeroizing::new([0; SIZE]);
    scrypt::scrypt(password.bytes(), salt, &parameters, stream.as_mut())
        .map_err(InvalidKey::Length)?;
    Ok(stream)
}

/// scrypt's parameters for libsodium's limits (`pickparams` of its
/// `crypto_pwhash_scryptsalsa208sha256`).
fn parameters(KdfLimits { operations, memory }: KdfLimits) -> Option<(u8, u32, u32)> {
    const R: u64 = 8;
    let operations = operations.max(32_768);
    let log_n = |most: u64| (1..63).find(|bits| 1 << bits > most / 2).unwrap_or(63);
    let (log_n, p) = if operations < memory / 32 {
        (log_n(operations / (R * 4)), 1)
    } else {
        let log_n: u8 = log_n(memory / (R * 128));
        (log_n, ((operations / 4) >> log_n).min(0x3fff_ffff) / R)
    };
    // This bounds the work as well as the memory; `minisign`'s own keys have p = 1.
    let p = u32::try_from(p).ok().filter(|p| *p <= 64)?;
    (log_n <= LARGEST).then_some((log_n, 8, p))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// libsodium's constants with the resulting parameters, and the parameters of the keys that
    /// Halite makes.
    #[test]
    fn parameters_are_those_of_libsodium() {
        let of = |operations, memory| parameters(KdfLimits { operations, memory });
        assert_eq!(of(524_288, 16_777_216), Some((14, 8, 1)), "interactive");
        assert_eq!(
            of(33_554_432, 1_073_741_824),
            Some((20, 8, 1)),
            "sensitive, minisign's own"
        );
        assert_eq!(of(LIMITS.operations, LIMITS.memory), Some((17, 8, 1)));
        assert_eq!(of(u64::MAX, u64::MAX), None);
        assert_eq!(of(u64::MAX, 1 << 20), None);
    }
}
