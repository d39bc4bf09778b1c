//! Errors of a sealed file's content.

use std::io;
use std::num::TryFromIntError;

use super::keys::signature::InvalidSignature;
use super::{SECTOR, SIGNATURES};

/// The part of a sealed file that is damaged, missing or invalid.
#[derive(Debug, thiserror::Error)]
pub enum SealDamage {
    #[error("its end cannot be read")]
    End(#[source] io::Error),
    #[error(transparent)]
    NoFooter(#[from] NoFooter),
    #[error("its footer, the last {SECTOR} bytes, is damaged (copy the image again)")]
    Footer(#[source] FooterDamage),
    #[error("its {what} does not fit into memory")]
    Memory {
        what: &'static str,
        source: TryFromIntError,
    },
    #[error("its {what} at byte {offset} cannot be read")]
    Unreadable {
        what: &'static str,
        offset: u64,
        source: io::Error,
    },
    #[error(
        "its {what} (bytes {first} to {last}) is damaged: sha256 {found} instead of {expected}; copy the image again"
    )]
    Digest {
        what: &'static str,
        first: u64,
        last: u64,
        found: String,
        expected: String,
    },
    #[error("the padding after its {what} is damaged at byte {at}; copy the image again")]
    Padding { what: &'static str, at: u64 },
    #[error("its signature is not text")]
    SignatureText(#[source] std::str::Utf8Error),
    #[error("this version cannot read its signature")]
    Signature(#[source] InvalidSignature),
    #[error("this version cannot read its statement")]
    Statement(#[source] serde_json::Error),
    #[error(
        "its statement is for an image of {stated} bytes and this one has {found}: the seal belongs to another image"
    )]
    OtherSize { stated: u64, found: u64 },
    #[error(
        "its map has the sha256 {found}, and its statement has {stated}: one of the two belongs to another image"
    )]
    OtherMap { stated: String, found: String },
    #[error("this version cannot read its map")]
    Map(#[source] serde_json::Error),
    #[error(
        "its {what} has format {found}, and only {known} is supported: use the ctl of that bundle"
    )]
    Format {
        what: &'static str,
        found: u32,
        known: u32,
    },
    #[error("its map continues at byte {found} instead of {expected}")]
    MapGap { found: u64, expected: u64 },
    #[error("its map has a segment of {size} bytes at {offset}")]
    SegmentSize { size: u64, offset: u64 },
    #[error("its map has no valid name for the file at byte {0}")]
    SegmentName(u64),
    #[error("its map has a segment at {offset} that ends after the image of {size} bytes")]
    SegmentEnd { offset: u64, size: u64 },
    #[error("its map ends at byte {end} of an image of {size}")]
    MapEnd { end: u64, size: u64 },
}

/// The invalid line or number of the footer.
#[derive(Debug, thiserror::Error)]
pub enum FooterDamage {
    #[error("it is not text")]
    Text(#[source] std::str::Utf8Error),
    #[error("its lines do not match the digest in its last line")]
    LastLine,
    #[error("it has no {0}")]
    NoLine(&'static str),
    #[error("`{}` is not a line for the {what}", line.escape_debug())]
    Line { what: &'static str, line: String },
    #[error("it has {0} signatures, more than {SIGNATURES}")]
    Signatures(usize),
    #[error("an image of {0} bytes does not consist of whole sectors")]
    Sectors(u64),
    #[error("its {what} has {size} bytes, not 1 to {largest}")]
    Size {
        what: &'static str,
        size: u64,
        largest: u64,
    },
    #[error("its {what} is at byte {offset}, not at the end of the previous part")]
    Gap { what: &'static str, offset: u64 },
    #[error("its parts end at byte {end}, but it is at {footer}")]
    End { end: u64, footer: u64 },
}

/// The probable reason why a file has no footer: a hint for the operator; nothing is verified.
#[derive(Debug, thiserror::Error)]
pub enum NoFooter {
    #[error(
        "{more} bytes follow its seal: something was appended; copy it again, or cut it with `truncate -s {end}` and \
         check it"
    )]
    Appended { more: u64, end: u64 },
    #[error("it is cut off in its seal, {missing} bytes are missing: copy it again")]
    CutInSeal { missing: u64 },
    #[error("it is cut off: {size} bytes of an image of {volume}; copy it again")]
    CutInImage { size: u64, volume: u64 },
    #[error(
        "it has no seal: it was never sealed, or it is cut off exactly at the end of the image"
    )]
    Unsealed,
    #[error("its seal is damaged or cut off: copy it again")]
    Damaged,
    #[error(
        "it has no seal at its end: it is cut off, damaged, or not a Halite image; copy it again"
    )]
    NoImage,
}
