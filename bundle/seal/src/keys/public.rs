//! Public keys.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::{InvalidKey, KeyId, NOT_AFTER, kind};
use crate::error::Error;

/// A public key, with which signatures are checked. Its file is that of `minisign`, whose comment
/// may contain `not-after=2027-12-31` (to the end of that day in UTC) or
/// `not-after=2027-12-31T12:00:00Z`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    id: KeyId,
    key: [u8; 32],
    name: Option<String>,
    not_after: Option<Timestamp>,
}

impl PublicKey {
    pub(super) fn new(id: KeyId, key: [u8; 32], not_after: Option<Timestamp>) -> Self {
        Self {
            id,
            key,
            name: None,
            not_after,
        }
    }

    /// Reads the text of a public key file, or the single line that `minisign -P` takes.
    ///
    /// # Errors
    /// The text is another kind of file, which the error names, or is invalid.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        let (comment, key) = match lines[..] {
            [comment, key] if comment.starts_with(kind::COMMENT) => (comment, key),
            [key] => ("", key),
            _ => return Err(wrong(text)),
        };
        let bytes = BASE64.decode(key).map_err(|_| wrong(text))?;
        let [b'E', b'd', rest @ ..] = &bytes[..] else {
            return Err(wrong(text));
        };
        let (id, key) = rest.split_first_chunk().ok_or_else(|| wrong(text))?;
        let key = key.try_into().map_err(|_| wrong(text))?;
        Ok(Self::new(KeyId(*id), key, not_after(comment)?))
    }

    /// Reads a public key file; the key's name is the file's without `.pub`.
    ///
    /// # Errors
    /// The file cannot be read or is not a public key.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let bytes = fs::read(path).map_err(Error::file("read", path))?;
        let key = std::str::from_utf8(&bytes)
            .map_err(InvalidKey::PublicText)
            .and_then(Self::parse)
            .map_err(|invalid| Error::invalid(path, invalid))?;
        Ok(Self {
            name: path
                .file_stem()
                .map(|stem| stem.to_string_lossy().into_owned()),
            ..key
        })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Its name, if it came from a file.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The time until which it is trusted; `None` for no limit.
    #[must_use]
    pub fn not_after(&self) -> Option<Timestamp> {
        self.not_after
    }

    /// Limits this key to the expiry of the other key, if that is earlier.
    pub(super) fn until(&mut self, other: &Self) {
        self.not_after = [self.not_after, other.not_after]
            .into_iter()
            .flatten()
            .min();
    }

    /// The whole key in one short line, for `minisign -P` and for comparing it with a copy that
    /// arrived by a different channel.
    #[must_use]
    pub fn line(&self) -> String {
        BASE64.encode([b"Ed".as_slice(), &self.id.0, &self.key].concat())
    }

    /// The text of its file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let until = self
            .not_after
            .map(|end| format!(" {NOT_AFTER}={end}"))
            .unwrap_or_default();
        format!(
            "{} minisign public key {}{until}\n{}\n",
            kind::COMMENT,
            self.id,
            self.line()
        )
    }

    pub(in super::super) fn bytes(&self) -> &[u8] {
        &self.key
    }
}

fn wrong(text: &str) -> InvalidKey {
    InvalidKey::NotPublic {
        kind: kind::name(text),
    }
}

/// The expiry that a comment sets. A malformed one is an error; otherwise such a key would be
/// trusted forever.
fn not_after(comment: &str) -> Result<Option<Timestamp>, InvalidKey> {
    let looks = |word: &&str| {
        let word: String = word
            .to_lowercase()
            .chars()
            .filter(|letter| letter.is_alphanumeric())
            .collect();
        word.starts_with("notafter") || word.starts_with("expire")
    };
    let mut words = comment.split_whitespace().filter(looks);
    let Some(word) = words.next() else {
        return Ok(None);
    };
    let unreadable = || InvalidKey::NotAfter {
        word: word.to_owned(),
    };
    let end = word
        .strip_prefix(NOT_AFTER)
        .and_then(|rest| rest.strip_prefix('='))
        .ok_or_else(unreadable)?;
    if words.next().is_some() {
        return Err(unreadable());
    }
    let day = |date: Date| {
        date.tomorrow()
            .ok()?
            .to_zoned(TimeZone::UTC)
            .ok()
            .map(|next| next.timestamp())
    };
    let end = end
        .parse::<Timestamp>()
        .ok()
        .or_else(|| end.parse::<Date>().ok().and_then(day));
    end.map(Some).ok_or_else(unreadable)
}
