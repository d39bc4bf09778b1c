//! Secret keys.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use blake2::digest::consts::U32;
use blake2::{Blake2b, Digest as _};
use halite_durable::files;
use jiff::Timestamp;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use zeroize::Zeroizing;

use super::kdf::KdfLimits;
use super::password::private;
use super::{InvalidKey, KeyId, Password, PublicKey, kdf, kind};
use crate::error::Error;

/// Size of the part before the encrypted bytes: algorithm, key derivation and checksum algorithm,
/// salt and limits.
const HEAD: usize = 54;

/// A secret key. It is read from a `minisign` file and never displayed.
pub struct SecretKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.public.id())
    }
}

impl SecretKey {
    /// Reads a secret key file. `password` is called if the key is encrypted.
    ///
    /// # Errors
    /// The file cannot be read, is not a secret key, is unencrypted and readable by others, or
    /// the password is wrong.
    pub fn load(
        path: &Path,
        password: &mut dyn FnMut(&Path) -> Result<Password, Error>,
    ) -> Result<Self, Error> {
        const LARGEST: u64 = 64 << 10;
        let refused = |invalid: InvalidKey| Error::invalid(path, invalid);
        let file = File::open(path).map_err(Error::file("read", path))?;
        let mut text = Zeroizing::new(String::with_capacity(LARGEST as usize + 1));
        (&file)
            .take(LARGEST)
            .read_to_string(&mut text)
            .map_err(|error| refused(InvalidKey::SecretText(error)))?;
        let content = decode(&text).map_err(refused)?;
        match &content[2..4] {
            b"Sc" => Self::decrypt(&content, &password(path)?).map_err(refused),
            [0, 0] => {
                private(&file, path)?;
                Self::from_bytes(&content[HEAD..], true).map_err(refused)
            }
            _ => Err(refused(InvalidKey::Derivation)),
        }
    }

    /// The public key that belongs to it.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(in super::super) fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.pair.sign(message).as_ref());
        signature
    }

    fn decrypt(content: &[u8], password: &Password) -> Result<Self, InvalidKey> {
        let (salt, rest) = content[6..].split_first_chunk().ok_or(InvalidKey::CutOff)?;
        let number = |at: usize| {
            rest[at..]
                .first_chunk()
                .map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let limits = KdfLimits {
            operations: number(0),
            memory: number(8),
        };
        let stream = kdf::stream(password, salt, limits)?;
        let mut plain = Zeroizing::new([0; kdf::SIZE]);
        for (plain, (byte, mask)) in plain
            .iter_mut()
            .zip(content[HEAD..].iter().zip(stream.iter()))
        {
            *plain = byte ^ mask;
        }
        Self::from_bytes(&*plain, false)
    }

    /// Key id, seed, public key and checksum.
    fn from_bytes(plain: &[u8], open: bool) -> Result<Self, InvalidKey> {
        let (secret, checksum) = plain.split_at(72);
        // `minisign -W` writes no checksum; the two halves of the key are compared below.
        let unchecked = open && checksum.iter().all(|byte| *byte == 0);
        if !unchecked && checksum != sum(secret).as_slice() {
            return Err(match open {
                true => InvalidKey::Checksum,
                false => InvalidKey::Password,
            });
        }
        let (id, key) = secret.split_first_chunk().ok_or(InvalidKey::CutOff)?;
        let (seed, public) = key.split_at(32);
        let pair = Ed25519KeyPair::from_seed_and_public_key(seed, public)
            .map_err(|_| InvalidKey::Halves)?;
        let public = public.try_into().map_err(|_| InvalidKey::CutOff)?;
        Ok(Self {
            pair,
            public: PublicKey::new(KeyId(*id), public, None),
        })
    }
}

/// Makes a key pair. The secret key is in a new file that only its owner may read, encrypted if
/// there is a password; the public key is beside it with the suffix `.pub`. Existing files are
/// never replaced.
///
/// # Errors
/// One of the files already exists or cannot be written.
pub fn generate(
    path: &Path,
    password: Option<&Password>,
    not_after: Option<Timestamp>,
) -> Result<PublicKey, Error> {
    let beside = path.with_extension("pub");
    for path in [path, &beside] {
        if path.symlink_metadata().is_ok() {
            return Err(Error::content(
                path,
                "it already exists: choose another name; a key is never replaced",
            ));
        }
    }
    if beside == path {
        return Err(Error::content(
            path,
            "a secret key cannot be named .pub: choose another name",
        ));
    }
    let refused = |invalid: InvalidKey| Error::invalid(path, invalid);
    let random = |bytes: &mut [u8]| {
        SystemRandom::new()
            .fill(bytes)
            .map_err(|_| refused(InvalidKey::Random))
    };
    // Key id, seed, public key, checksum.
    let mut plain = Zeroizing::new([0; kdf::SIZE]);
    random(&mut plain[..40])?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&plain[8..40])
        .map_err(|error| refused(InvalidKey::New(error)))?;
    plain[40..72].copy_from_slice(pair.public_key().as_ref());
    let checksum = sum(&plain[..72]);
    plain[72..].copy_from_slice(&checksum);
    let mut key = SecretKey::from_bytes(&*plain, true)
        .map_err(refused)?
        .public;
    key = PublicKey::new(
        key.id(),
        key.bytes().try_into().unwrap_or_default(),
        not_after,
    );

    let mut head = [0; HEAD];
    head[..6].copy_from_slice(b"Ed\0\0B2");
    if let Some(password) = password {
        head[2..4].copy_from_slice(b"Sc");
        random(&mut head[6..38])?;
        head[38..46].copy_from_slice(&kdf::LIMITS.operations.to_le_bytes());
        head[46..].copy_from_slice(&kdf::LIMITS.memory.to_le_bytes());
        let salt = head[6..].first_chunk().copied().unwrap_or_default();
        let stream = kdf::stream(password, &salt, kdf::LIMITS).map_err(refused)?;
        plain
            .iter_mut()
            .zip(stream.iter())
            .for_each(|(byte, mask)| *byte ^= mask);
    }
    let whole = Zeroizing::new([head.as_slice(), plain.as_slice()].concat());
    let line = Zeroizing::new(BASE64.encode(&*whole));
    let protected = if password.is_some() {
        "encrypted"
    } else {
        "unencrypted"
    };
    let text = Zeroizing::new(format!(
        "{} minisign {protected} secret key\n{}\n",
        kind::COMMENT,
        *line
    ));
    // Save the secret key first: the public one can be derived from it (`minisign -R`).
    files::write_new(path, 0o600, text.as_bytes())?;
    files::write_new(&beside, 0o644, key.to_text().as_bytes())?;
    Ok(key)
}

fn sum(secret: &[u8]) -> [u8; 32] {
    Blake2b::<U32>::new()
        .chain_update(b"Ed")
        .chain_update(secret)
        .finalize()
        .into()
}

/// Decodes the bytes of a secret key file.
fn decode(text: &str) -> Result<Zeroizing<Vec<u8>>, InvalidKey> {
    let wrong = || InvalidKey::NotSecret {
        kind: kind::name(text),
    };
    let mut lines = text.lines();
    let line = match (lines.next(), lines.next(), lines.next()) {
        (Some(comment), Some(line), None) if comment.starts_with(kind::COMMENT) => line,
        _ => return Err(wrong()),
    };
    let bytes = Zeroizing::new(BASE64.decode(line.trim()).map_err(|_| wrong())?);
    if bytes.len() == HEAD + kdf::SIZE && bytes.starts_with(b"Ed") && bytes[4..6] == *b"B2" {
        Ok(bytes)
    } else {
        Err(wrong())
    }
}

/// Reads secret keys from files. The password comes from a file, or from a prompt for each
/// encrypted key.
///
/// # Errors
/// A file cannot be read or is not a key, or the password is wrong.
pub fn load_all(files: &[PathBuf], password_file: Option<&Path>) -> Result<Vec<SecretKey>, Error> {
    let mut password = |path: &Path| match password_file {
        Some(file) => Password::from_file(file),
        None => Password::ask(&format!("Password of {}: ", path.display())),
    };
    files
        .iter()
        .map(|path| SecretKey::load(path, &mut password))
        .collect()
}
