//! `repomd.xml`: the list of a repository's indexes.

use halite_durable::Digest;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::error::InvalidIndex;

/// The indexes of a repository.
#[derive(Debug, Clone, Default)]
pub struct Repomd {
    indexes: Vec<Raw>,
}

#[derive(Debug, Clone, Default)]
struct Raw {
    kind: String,
    href: String,
    checksum: (String, String),
    size: Option<u64>,
    unpacked: Option<u64>,
}

/// An index.
#[derive(Debug)]
pub struct Index {
    /// Its path below the repository.
    pub href: String,
    pub digest: Digest,
    pub size: Option<u64>,
    /// Its size in bytes when unpacked.
    pub unpacked: Option<u64>,
}

impl Repomd {
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidIndex> {
        let mut reader = Reader::from_reader(bytes);
        let mut found = Self::default();
        let (mut buffer, mut text) = (Vec::new(), String::new());
        loop {
            match reader.read_event_into(&mut buffer)? {
                Event::Start(start) | Event::Empty(start) => {
                    text.clear();
                    match (start.local_name().as_ref(), found.indexes.last_mut()) {
                        ("data", _) => {
                            let kind = attribute(&start, "type")?.unwrap_or_default();
                            found.indexes.push(Raw {
                                kind,
                                ..Raw::default()
                            });
                        }
                        ("location", Some(index)) => {
                            index.href = attribute(&start, "href")?.unwrap_or_default();
                        }
                        ("checksum", Some(index)) => {
                            index.checksum.0 = attribute(&start, "type")?.unwrap_or_default();
                        }
                        _ => {}
                    }
                }
                Event::Text(part) => text.push_str(&part),
                Event::End(end) => {
                    let text = text.trim();
                    if let Some(index) = found.indexes.last_mut() {
                        match end.local_name().as_ref() {
                            "checksum" => text.clone_into(&mut index.checksum.1),
                            "size" => index.size = text.parse().ok(),
                            "open-size" => index.unpacked = text.parse().ok(),
                            _ => {}
                        }
                    }
                }
                Event::Eof => return Ok(found),
                _ => {}
            }
            buffer.clear();
        }
    }

    /// The index of packages.
    pub fn primary(&self) -> Result<Index, InvalidIndex> {
        self.index("primary")
    }

    /// The index of all files.
    pub fn filelists(&self) -> Result<Index, InvalidIndex> {
        self.index("filelists")
    }

    /// The paths of all indexes.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        self.indexes.iter().map(|index| index.href.as_str())
    }

    fn index(&self, kind: &'static str) -> Result<Index, InvalidIndex> {
        let index = self.indexes.iter().find(|index| index.kind == kind);
        let index = index.ok_or(InvalidIndex::NoIndex(kind))?;
        Ok(Index {
            href: inside(&index.href)?,
            digest: checksum(&index.checksum.0, &index.checksum.1)?,
            size: index.size,
            unpacked: index.unpacked,
        })
    }
}

/// An attribute, unescaped.
pub fn attribute(start: &BytesStart, name: &str) -> Result<Option<String>, InvalidIndex> {
    let attribute = start.try_get_attribute(name)?;
    attribute
        .map(|attribute| unescape(&attribute.value))
        .transpose()
}

pub fn unescape(text: &str) -> Result<String, InvalidIndex> {
    Ok(quick_xml::escape::unescape(text)?.into_owned())
}

/// Parses a checksum. Only SHA-256 is accepted; older kinds can be forged.
pub fn checksum(kind: &str, value: &str) -> Result<Digest, InvalidIndex> {
    match kind {
        "sha256" => Ok(value.parse()?),
        kind => Err(InvalidIndex::Checksum(kind.to_owned())),
    }
}

/// Checks that a path is within the repository.
pub fn inside(href: &str) -> Result<String, InvalidIndex> {
    if href.is_empty()
        || href.starts_with('/')
        || href.contains("://")
        || href.split('/').any(|part| part == "..")
    {
        return Err(InvalidIndex::Outside(href.to_owned()));
    }
    Ok(href.to_owned())
}
