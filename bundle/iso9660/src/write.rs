//! Writing an image: all positions are computed first, then everything is written once, front to
//! back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::{fs, io};

use halite_durable::{ByteProgress, Error, files};

pub use super::input::{Content, InputFile, Volume};

use super::hierarchy::Hierarchy;
use super::layout::Layout;
use super::sink::Sink;
use super::tree::Tree;
use super::volume::VOLUME_ID_LENGTH;
use super::{SECTOR, directory, records, sectors, volume};

/// Size of one read in bytes.
const CHUNK: usize = 1 << 20;

/// The years that directory records (ECMA-119 9.1.5) and descriptors can represent.
const YEARS: std::ops::RangeInclusive<i16> = 1900..=2155;

/// Position of a file in an image: contiguous, however large the file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Its path in the image.
    pub path: String,
    /// Offset of its first byte; 0 for an empty file, which has no position.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// Writes a new image with files, by path, and returns the position of each, ordered by path. The
/// same input gives the same bytes. `progress` is called at each 10 %. The image is synced when
/// this returns; the caller syncs the directory that contains it.
///
/// # Errors
/// `out` exists, a file cannot be read or has changed its size, `out` cannot be written, or a
/// name, mode, date or size is not possible in an image: all such problems at once. An incomplete
/// `out` is removed.
pub fn write(
    out: &Path,
    volume: &Volume,
    files: &BTreeMap<String, InputFile>,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Placed>, Error> {
    check(out, volume)?;
    let tree = Tree::new(out, volume.date, files)?;
    let layout = Layout::new(out, &tree)?;
    let sink = Sink::new(files::create(out, 0o644)?);
    let progress = ByteProgress::new("written", u64::from(layout.sectors) * SECTOR, progress);
    let mut pass = Pass {
        out,
        sink,
        tree: &tree,
        layout: &layout,
        progress,
    };
    let written = pass
        .run(volume, files)
        .and_then(|()| pass.sink.finish().map_err(Error::file("write", out)));
    if let Err(error) = written {
        // This call created the file, and it is incomplete.
        let _ = fs::remove_file(out);
        return Err(error);
    }
    Ok(tree
        .files
        .iter()
        .zip(&layout.contents)
        .map(|(file, sector)| Placed {
            path: file.path.clone(),
            offset: u64::from(*sector) * SECTOR,
            size: file.size,
        })
        .collect())
}

fn check(out: &Path, volume: &Volume) -> Result<(), Error> {
    let Volume { id, date } = volume;
    let allowed = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let mut problems = Vec::new();
    if id.is_empty() || id.len() > VOLUME_ID_LENGTH || !id.chars().all(allowed) {
        problems.push(format!(
            "the volume id {id:?} is not 1 to {VOLUME_ID_LENGTH} characters of A-Z, 0-9 and _"
        ));
    }
    if !YEARS.contains(&records::utc(*date).year()) {
        problems.push(format!(
            "{date} cannot be a date in an image: its years are 1900 to 2155"
        ));
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Error::content(out, problems.join("\n")))
    }
}

/// The pass that writes the image.
struct Pass<'a> {
    out: &'a Path,
    sink: Sink,
    tree: &'a Tree,
    layout: &'a Layout,
    progress: ByteProgress<'a>,
}

impl Pass<'_> {
    fn run(&mut self, volume: &Volume, files: &BTreeMap<String, InputFile>) -> Result<(), Error> {
        let layout = self.layout;
        self.metadata(volume)
            .map_err(Error::file("write", self.out))?;
        for ((file, sector), source) in self
            .tree
            .files
            .iter()
            .zip(&layout.contents)
            .zip(files.values())
        {
            if file.size > 0 {
                debug_assert_eq!(
                    self.sink.position(),
                    u64::from(*sector) * SECTOR,
                    "{}",
                    file.path
                );
            }
            match &source.from {
                Content::Bytes(bytes) => self.put(bytes).map_err(Error::file("write", self.out))?,
                Content::File(from) => self.copy(from, file.size)?,
            }
            let end = sectors(self.sink.position()) * SECTOR;
            self.sink
                .fill_to(end)
                .map_err(Error::file("write", self.out))?;
            self.report();
        }
        debug_assert_eq!(self.sink.position(), u64::from(layout.sectors) * SECTOR);
        Ok(())
    }

    /// Writes everything except the content of the files.
    fn metadata(&mut self, volume: &Volume) -> io::Result<()> {
        let layout = self.layout;
        self.at(
            super::FIRST_DESCRIPTOR,
            &volume::descriptors(volume, layout),
        )?;
        for hierarchy in [&layout.primary, &layout.joliet] {
            let [little, big] =
                volume::path_tables(hierarchy, |index| self.tree.directories[index].parent);
            self.at(hierarchy.little.sector.into(), &little)?;
            self.at(hierarchy.big.sector.into(), &big)?;
        }
        for hierarchy in [&layout.primary, &layout.joliet] {
            self.directories(hierarchy)?;
        }
        let end = sectors(self.sink.position()) * SECTOR;
        self.sink.fill_to(end)
    }

    fn directories(&mut self, hierarchy: &Hierarchy) -> io::Result<()> {
        for index in &hierarchy.order {
            let listing = directory::listing(self.tree, hierarchy, *index, &self.layout.contents);
            self.at(hierarchy.places[*index].sector.into(), &listing.records)?;
            self.sink.write_all(&listing.beside)?;
        }
        Ok(())
    }

    /// Writes at a sector, which must not be before the current position.
    fn at(&mut self, sector: u64, bytes: &[u8]) -> io::Result<()> {
        self.sink.fill_to(sector * SECTOR)?;
        debug_assert_eq!(self.sink.position(), sector * SECTOR);
        self.sink.write_all(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        for chunk in bytes.chunks(CHUNK) {
            self.sink.write_all(chunk)?;
            self.report();
        }
        Ok(())
    }

    fn copy(&mut self, from: &Path, size: u64) -> Result<(), Error> {
        let file = File::open(from).map_err(Error::file("read", from))?;
        let start = self.sink.position();
        let mut buffer = vec![0; CHUNK.min(usize::try_from(size).unwrap_or(CHUNK))];
        let mut at = 0;
        while at < size {
            let data = data(&file, at)
                .map_err(Error::file("read", from))?
                .unwrap_or(size)
                .min(size);
            self.sink
                .fill_to(start + data)
                .map_err(Error::file("write", self.out))?;
            let wanted = usize::try_from(size - data).unwrap_or(CHUNK).min(CHUNK);
            let count = file
                .read_at(&mut buffer[..wanted], data)
                .map_err(Error::file("read", from))?;
            if count == 0 {
                break;
            }
            self.sink
                .write_all(&buffer[..count])
                .map_err(Error::file("write", self.out))?;
            self.report();
            at = data + count as u64;
        }
        // The end of a file that became shorter looks like a hole.
        let now = file.metadata().map_err(Error::file("read", from))?.len();
        if now != size {
            let message = "its size changed while it was put into the image; retry once nothing is writing to it";
            return Err(Error::content(from, message));
        }
        self.sink
            .fill_to(start + size)
            .map_err(Error::file("write", self.out))
    }

    fn report(&mut self) {
        self.progress.at(self.sink.position());
    }
}

/// The position of the next bytes outside of holes; `None` if there are none. Reading a hole takes
/// as long as reading data.
fn data(file: &File, from: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(from)) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        // The file system does not support holes.
        Err(rustix::io::Errno::INVAL) => Ok(Some(from)),
        Err(error) => Err(error.into()),
    }
}
