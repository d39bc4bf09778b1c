//! The header of a file: a stanza for each recipient, and a code that reveals a change.

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use halite_names::AgeRecipient;
use ring::hmac;
use zeroize::Zeroizing;

use super::FILE_KEY;
use super::error::AgeError;
use super::kdf::derive;
use super::keys::{Identity, WRAPPED, wrap};

const VERSION: &str = "age-encryption.org/v1";
const STANZA: &str = "-> ";
const END: &str = "---";
/// The kind of a stanza for a recipient, before its share.
const KIND: &str = "X25519 ";
/// The kind of a stanza for a passphrase, which must be the only stanza.
const PASSPHRASE: &str = "scrypt ";
/// Characters in a full line of a body.
const COLUMNS: usize = 64;
/// Bytes of the code over the header.
const CODE: usize = 32;
/// The largest header that is read.
const MAX: usize = 64 * 1024;

/// The header of a file with this key for these recipients.
pub(super) fn write(
    recipients: &[AgeRecipient],
    file_key: &[u8; FILE_KEY],
) -> Result<String, AgeError> {
    let mut text = format!("{VERSION}\n");
    for recipient in recipients {
        let (share, body) = wrap(recipient, file_key)?;
        let (share, body) = (STANDARD_NO_PAD.encode(share), STANDARD_NO_PAD.encode(body));
        text.push_str(&format!("{STANZA}{KIND}{share}\n{body}\n"));
    }
    text.push_str(END);
    let code = hmac::sign(&code_key(file_key), text.as_bytes());
    text.push_str(&format!(" {}\n", STANDARD_NO_PAD.encode(code)));
    Ok(text)
}

/// Reads the header up to the content, and decrypts the file's key with one of the identities.
pub(super) fn read(
    from: &mut dyn Read,
    identities: &[Identity],
) -> Result<Zeroizing<[u8; FILE_KEY]>, AgeError> {
    let mut text = String::new();
    if line(from, &mut text)? != VERSION {
        return Err(AgeError::Format("it does not begin like an age file"));
    }
    let mut found = None;
    let mut next = line(from, &mut text)?;
    let code = loop {
        if let Some(code) = next.strip_prefix(END) {
            let code = code.strip_prefix(' ').and_then(decode);
            let code = code.filter(|code| code.len() == CODE);
            break code.ok_or(AgeError::Format("its code is malformed"))?;
        }
        let words = next
            .strip_prefix(STANZA)
            .filter(|words| are_arguments(words));
        let Some(words) = words else {
            return Err(AgeError::Format("a line of its header is malformed"));
        };
        if words.starts_with(PASSPHRASE) {
            return Err(AgeError::Format(
                "it is encrypted with a passphrase instead of to a recipient",
            ));
        }
        let share = words
            .strip_prefix(KIND)
            .map(|share| decode(share).and_then(|share| <[u8; 32]>::try_from(share).ok()));
        let body = body(from, &mut text)?;
        if let Some(share) = share {
            let share = share.filter(|_| body.len() == WRAPPED);
            let share = share.ok_or(AgeError::Format("a recipient is malformed"))?;
            for own in identities {
                let file_key = own.unwrap(share, &body)?;
                found = found.or(file_key);
            }
        }
        next = line(from, &mut text)?;
    };
    let file_key = found.ok_or(AgeError::NoMatch)?;
    // The code is over the header up to and with the three dashes.
    let signed = text.trim_end_matches('\n').rfind(END);
    let signed = signed.map_or("", |end| &text[..end + END.len()]);
    hmac::verify(&code_key(&file_key), signed.as_bytes(), &code).map_err(|_| AgeError::Header)?;
    Ok(file_key)
}

/// Returns whether a text is one or more arguments of visible characters, separated by single
/// spaces.
fn are_arguments(words: &str) -> bool {
    let is_argument = |word: &str| !word.is_empty() && word.bytes().all(|c| c.is_ascii_graphic());
    words.split(' ').all(is_argument)
}

fn code_key(file_key: &[u8; FILE_KEY]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &*derive(file_key, &[], "header"))
}

/// The body of a stanza: full lines, then one that is not full.
fn body(from: &mut dyn Read, text: &mut String) -> Result<Vec<u8>, AgeError> {
    let mut joined = String::new();
    loop {
        let next = line(from, text)?;
        joined.push_str(&next);
        if next.len() > COLUMNS {
            return Err(AgeError::Format("a line of a recipient's body is too long"));
        }
        if next.len() < COLUMNS {
            return decode(&joined).ok_or(AgeError::Format("a recipient's body is malformed"));
        }
    }
}

/// Accepts only the canonical form: otherwise another text of the same value could go unnoticed.
fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD_NO_PAD.decode(text).ok()
}

/// The next line without its line end; `text` receives it with the line end. Read byte by byte,
/// because the content follows.
fn line(from: &mut dyn Read, text: &mut String) -> Result<String, AgeError> {
    let begin = text.len();
    let mut byte = [0];
    loop {
        if text.len() >= MAX || from.read(&mut byte)? == 0 || !byte[0].is_ascii() {
            return Err(AgeError::Format("its header does not end"));
        }
        text.push(char::from(byte[0]));
        if byte == *b"\n" {
            return Ok(text[begin..text.len() - 1].to_owned());
        }
    }
}
