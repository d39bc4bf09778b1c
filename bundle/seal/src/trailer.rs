//! The trailer: the positions of map, statement and signatures.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use halite_durable::digest;

use super::damage::{FooterDamage, NoFooter, SealDamage};
use super::{SECTOR, SIGNATURES};

/// The first line of the footer, which is the last sector of a sealed file.
pub const MAGIC: &str = "HALITE-SEAL-1";

/// The largest size of each part. The map of 20 GB takes about a megabyte; a larger one is an
/// attempt to exhaust the memory.
const LARGEST: [(&str, u64); 3] = [
    ("map", 64 << 20),
    ("statement", 64 << 10),
    ("signature", SECTOR),
];

/// The byte that pads a part to whole sectors.
const FILL: u8 = b'\n';

/// The position of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrailerPart {
    offset: u64,
    size: u64,
    sha256: String,
}

/// The last sector of a sealed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footer {
    /// The image's size.
    pub image: u64,
    /// The map.
    pub map: TrailerPart,
    /// The statement.
    pub statement: TrailerPart,
    /// Each signature.
    pub signatures: Vec<TrailerPart>,
}

impl TrailerPart {
    /// A part that begins at an offset.
    pub fn new(offset: u64, content: &[u8]) -> Self {
        Self {
            offset,
            size: content.len() as u64,
            sha256: digest::sha256(content),
        }
    }

    /// Offset of the next part.
    pub fn end(&self) -> u64 {
        self.offset + self.size.next_multiple_of(SECTOR)
    }

    /// Reads the part and checks its digest and its padding.
    pub fn read(&self, file: &File, what: &'static str) -> Result<Vec<u8>, SealDamage> {
        let length =
            |size: u64| usize::try_from(size).map_err(|source| SealDamage::Memory { what, source });
        let mut bytes = vec![0; length(self.end() - self.offset)?];
        file.read_exact_at(&mut bytes, self.offset)
            .map_err(|source| SealDamage::Unreadable {
                what,
                offset: self.offset,
                source,
            })?;
        let fill = bytes.split_off(length(self.size)?);
        let sha256 = digest::sha256(&bytes);
        if sha256 != self.sha256 {
            return Err(SealDamage::Digest {
                what,
                first: self.offset,
                last: self.offset + self.size - 1,
                found: sha256,
                expected: self.sha256.clone(),
            });
        }
        match fill.iter().position(|byte| *byte != FILL) {
            None => Ok(bytes),
            Some(at) => Err(SealDamage::Padding {
                what,
                at: self.offset + self.size + at as u64,
            }),
        }
    }
}

/// Pads bytes to whole sectors.
pub fn filled(mut bytes: Vec<u8>) -> Vec<u8> {
    let size = (bytes.len() as u64).next_multiple_of(SECTOR);
    bytes.resize(usize::try_from(size).unwrap_or(bytes.len()), FILL);
    bytes
}

impl Footer {
    /// The footer's bytes in the file. Its last line is the digest of the preceding lines.
    pub fn render(&self) -> Vec<u8> {
        use std::fmt::Write as _;
        let mut text = format!("{MAGIC}\nimage 0 {}\n", self.image);
        let mut end = self.image;
        for (what, part) in self.parts() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{what} {} {} {}", part.offset, part.size, part.sha256);
            end = part.end();
        }
        let TrailerPart {
            offset,
            size,
            sha256,
        } = TrailerPart::new(end, text.as_bytes());
        let _ = writeln!(text, "footer {offset} {size} {sha256}");
        filled(text.into_bytes())
    }

    fn parts(&self) -> impl Iterator<Item = (&'static str, &TrailerPart)> {
        let signatures = self.signatures.iter().map(|part| ("signature", part));
        [("map", &self.map), ("statement", &self.statement)]
            .into_iter()
            .chain(signatures)
    }

    /// Reads the footer of a file of this size.
    pub fn read(file: &File, size: u64) -> Result<Self, SealDamage> {
        let mut sector = [0; SECTOR as usize];
        let at = size
            .checked_sub(SECTOR)
            .ok_or_else(|| missing(file, size))?;
        file.read_exact_at(&mut sector, at)
            .map_err(SealDamage::End)?;
        if !sector.starts_with(MAGIC.as_bytes()) {
            return Err(missing(file, size).into());
        }
        Self::parse(&sector)
            .and_then(|footer| footer.place(at).map(|()| footer))
            .and_then(|footer| {
                // This leaves no byte of the sector unchecked.
                match footer.render() == sector {
                    true => Ok(footer),
                    false => Err(FooterDamage::LastLine),
                }
            })
            .map_err(SealDamage::Footer)
    }

    fn parse(sector: &[u8]) -> Result<Self, FooterDamage> {
        let text = std::str::from_utf8(sector).map_err(FooterDamage::Text)?;
        let mut lines = text.lines().skip(1);
        let mut line = |what: &'static str| {
            let line = lines
                .next()
                .filter(|line| !line.is_empty())
                .ok_or(FooterDamage::NoLine(what))?;
            let words: Vec<_> = line.split(' ').collect();
            let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
            match (words.first(), number(1), number(2)) {
                (Some(first), Some(offset), Some(size)) if *first == what => Ok(TrailerPart {
                    offset,
                    size,
                    sha256: words.get(3).copied().unwrap_or_default().to_owned(),
                }),
                _ => Err(FooterDamage::Line {
                    what,
                    line: line.to_owned(),
                }),
            }
        };
        let image = line("image")?.size;
        let (map, statement) = (line("map")?, line("statement")?);
        let count = text
            .lines()
            .filter(|line| line.starts_with("signature "))
            .count();
        if count > SIGNATURES {
            return Err(FooterDamage::Signatures(count));
        }
        let signatures = (0..count)
            .map(|_| line("signature"))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            image,
            map,
            statement,
            signatures,
        })
    }

    /// Checks that the parts follow one another without a gap, up to the footer.
    fn place(&self, footer: u64) -> Result<(), FooterDamage> {
        if self.image == 0 || !self.image.is_multiple_of(SECTOR) {
            return Err(FooterDamage::Sectors(self.image));
        }
        let mut at = self.image;
        for (what, part) in self.parts() {
            let largest = LARGEST
                .iter()
                .find(|(name, _)| *name == what)
                .map_or(0, |(_, size)| *size);
            if part.size == 0 || part.size > largest {
                return Err(FooterDamage::Size {
                    what,
                    size: part.size,
                    largest,
                });
            }
            if part.offset != at || at > footer {
                return Err(FooterDamage::Gap {
                    what,
                    offset: part.offset,
                });
            }
            at = part.end();
        }
        if at == footer {
            Ok(())
        } else {
            Err(FooterDamage::End { end: at, footer })
        }
    }
}

/// The probable reason why a file has no footer.
fn missing(file: &File, size: u64) -> NoFooter {
    if let Some(end) = find(file, size) {
        return match size.checked_sub(end) {
            Some(more) if more > 0 => NoFooter::Appended { more, end },
            _ => NoFooter::CutInSeal {
                missing: end - size,
            },
        };
    }
    match volume(file) {
        Some(volume) if size < volume => NoFooter::CutInImage { size, volume },
        Some(volume) if size == volume => NoFooter::Unsealed,
        Some(_) => NoFooter::Damaged,
        None => NoFooter::NoImage,
    }
}

/// The offset at which a footer near the end of a file should end.
fn find(file: &File, size: u64) -> Option<u64> {
    const WINDOW: u64 = 1 << 20;
    let from = size.saturating_sub(WINDOW);
    let mut bytes = vec![0; usize::try_from(size - from).ok()?];
    file.read_exact_at(&mut bytes, from).ok()?;
    let magic = format!("{MAGIC}\nimage 0 ");
    let at = bytes
        .windows(magic.len())
        .rposition(|window| window == magic.as_bytes())?;
    Some(from + at as u64 + SECTOR)
}

/// The size of an image by its primary volume descriptor (ECMA-119, 8.4).
fn volume(file: &File) -> Option<u64> {
    let mut sector = [0; SECTOR as usize];
    file.read_exact_at(&mut sector, 16 * SECTOR).ok()?;
    let sectors = u32::from_le_bytes(sector.get(80..84)?.try_into().ok()?);
    sector
        .starts_with(b"\x01CD001")
        .then(|| u64::from(sectors) * SECTOR)
}
