//! The map: the SHA-256 of every byte range of an image, with the file in that range.

use halite_durable::digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::damage::SealDamage;

/// The largest segment. Small enough to locate damage within a file, large enough for the map of 20
/// GB to stay small.
pub(super) const LARGEST: u64 = 16 << 20;

/// The only format of the map so far.
const FORMAT: u32 = 1;

/// A range of an image with its own digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// The offset of its first byte from the beginning of the image.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256.
    #[serde(serialize_with = "to_hex", deserialize_with = "from_hex")]
    pub sha256: [u8; 32],
    /// The file that it is part of; `None` between files: descriptors, directories, padding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Map {
    format: u32,
    segments: Vec<Segment>,
}

fn to_hex<S: Serializer>(sha256: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&digest::hex(sha256))
}

fn from_hex<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
    let text = String::deserialize(from)?;
    parse_hex(&text)
        .ok_or_else(|| serde::de::Error::custom("sha256 is not 64 lower-case hexadecimal digits"))
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let digits = text.as_bytes();
    if digits.len() != 64
        || !digits
            .iter()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// Cuts an image into segments without digests. The files are ranges in ascending order.
pub(super) fn cut(size: u64, files: &[(u64, u64, &str)]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut push = |from: u64, to: u64, path: Option<&str>| {
        let mut offset = from;
        while offset < to {
            let size = LARGEST.min(to - offset);
            segments.push(Segment {
                offset,
                size,
                sha256: [0; 32],
                path: path.map(str::to_owned),
            });
            offset += size;
        }
    };
    let mut at = 0;
    for &(offset, length, path) in files {
        push(at, offset, None);
        at = offset + length;
        push(offset, at, Some(path));
    }
    push(at, size, None);
    segments
}

/// Writes a map as it is stored in the trailer, one segment per line.
pub(super) fn render(segments: &[Segment]) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = format!("{{\"format\":{FORMAT},\"segments\":[\n").into_bytes();
    for (index, segment) in segments.iter().enumerate() {
        serde_json::to_writer(&mut bytes, segment)?;
        bytes.extend_from_slice(if index + 1 < segments.len() {
            b",\n"
        } else {
            b"\n"
        });
    }
    bytes.extend_from_slice(b"]}\n");
    Ok(bytes)
}

/// Parses a map, which must cover an image of this size exactly once, in order.
pub(super) fn parse(bytes: &[u8], size: u64) -> Result<Vec<Segment>, SealDamage> {
    let map: Map = serde_json::from_slice(bytes).map_err(SealDamage::Map)?;
    if map.format != FORMAT {
        return Err(SealDamage::Format {
            what: "map",
            found: map.format,
            known: FORMAT,
        });
    }
    let mut at = 0;
    for segment in &map.segments {
        let Segment {
            offset,
            size: length,
            path,
            ..
        } = segment;
        if *offset != at {
            return Err(SealDamage::MapGap {
                found: *offset,
                expected: at,
            });
        }
        if *length == 0 || *length > LARGEST {
            return Err(SealDamage::SegmentSize {
                size: *length,
                offset: *offset,
            });
        }
        if path
            .as_ref()
            .is_some_and(|path| path.is_empty() || path.chars().any(char::is_control))
        {
            return Err(SealDamage::SegmentName(*offset));
        }
        at = at
            .checked_add(*length)
            .filter(|end| *end <= size)
            .ok_or(SealDamage::SegmentEnd {
                offset: *offset,
                size,
            })?;
    }
    if at == size {
        Ok(map.segments)
    } else {
        Err(SealDamage::MapEnd { end: at, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 GB in six thousand files, the largest of which have 2 GB.
    #[test]
    fn the_map_of_a_large_image_is_small_and_covers_it() {
        const SIZE: u64 = 20_000_000_000 / 2048 * 2048;
        let names: Vec<_> = (0..6000)
            .map(|at| format!("images/blobs/sha256/{at:064}"))
            .collect();
        let sizes: [u64; 5] = [2_000_000_001, 1_000_000, 16 << 20, (16 << 20) + 1, 5];
        let (mut files, mut at) = (Vec::new(), 2048);
        for (number, name) in names.iter().enumerate() {
            let size = if number < 5 {
                sizes[0]
            } else {
                sizes[number % 4 + 1].min(1_500_000)
            };
            files.push((at, size, name.as_str()));
            at = (at + size).next_multiple_of(2048);
        }
        assert!(at < SIZE, "{at}");
        let segments = cut(SIZE, &files);
        let bytes = render(&segments).unwrap();
        assert!(bytes.len() < 4_000_000, "{} bytes", bytes.len());
        assert_eq!(parse(&bytes, SIZE).unwrap(), segments);
        assert!(parse(&bytes, SIZE - 2048).is_err());
    }
}
