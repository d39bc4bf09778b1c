//! Errors of indexes.

use halite_durable::digest::InvalidDigest;
use quick_xml::escape::EscapeError;
use quick_xml::events::attributes::AttrError;

use crate::names::InvalidName;

/// The part of an index that is invalid or refused.
#[derive(Debug, thiserror::Error)]
pub enum InvalidIndex {
    #[error(transparent)]
    Xml(#[from] quick_xml::Error),
    #[error(transparent)]
    Attribute(#[from] AttrError),
    #[error(transparent)]
    Escape(#[from] EscapeError),
    #[error("it names no {0} index; is it a repository?")]
    NoIndex(&'static str),
    #[error("its checksum is of the kind {0:?}, and only sha256 is accepted")]
    Checksum(String),
    #[error(transparent)]
    Digest(#[from] InvalidDigest),
    #[error("it names {0:?}, which is outside the repository")]
    Outside(String),
    #[error("{0} is compressed in an unsupported way")]
    Compression(String),
    #[error("package {name:?}")]
    Package {
        name: String,
        source: Box<InvalidIndex>,
    },
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error("{0:?} cannot be the epoch of a package")]
    Epoch(String),
    #[error("its size is missing")]
    NoSize,
    #[error("{0:?} is not a comparison of versions")]
    Flag(String),
    #[error("it is incomplete: it has {found} packages and announces {announced}")]
    Count { found: u64, announced: u64 },
    #[error("it is incomplete")]
    CutOff,
}
