//! Writing an image: everything is given its place, then all of it is written once, front to back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::{fs, io};

use halite_durable::{ByteProgress, Error, files};

pub use super::input::{Content, Source, Volume};

use super::hierarchy::Hierarchy;
use super::layout::Layout;
use super::sink::Sink;
use super::tree::Tree;
use super::volume::VOLUME_ID_LENGTH;
use super::{SECTOR, directory, records, sectors, volume};

/// How much of a file is read at a time.
const CHUNK: usize = 1 << 20;

/// Years that directory records can name (ECMA-119 9.1.5) and descriptors too.
const YEARS: std::ops::RangeInclusive<i16> = 1900..=2155;

/// Where a file lies in an image: in one piece, however large it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Its path in the image.
    pub path: String,
    /// Its first byte; 0 for an empty file, which lies nowhere.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// Writes a new image with files, by path, and says where each lies, in the order of their paths.
/// The same input makes the same bytes. `progress` hears ten times how far it is. When this
/// returns, the image is on the disk; that it is there under its name is for the caller to make
/// durable.
///
/// # Errors
/// When something is at `out`, a file cannot be read or changed its size meanwhile, `out` cannot be
/// written, or a name, mode, date or size cannot be in an image: all such problems at once. What
/// was written of `out` is removed again.
pub fn write(
    out: &Path,
    volume: &Volume,
    files: &BTreeMap<String, Source>,
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
        // It was made here, and is worth nothing.
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

/// The second pass.
struct Pass<'a> {
    out: &'a Path,
    sink: Sink,
    tree: &'a Tree,
    layout: &'a Layout,
    progress: ByteProgress<'a>,
}

impl Pass<'_> {
    fn run(&mut self, volume: &Volume, files: &BTreeMap<String, Source>) -> Result<(), Error> {
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

    /// Everything but the content of the files.
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

    /// Writes at a sector, which is the next one or lies behind it.
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
        // A file that became shorter ends in what looks like a hole.
        let now = file.metadata().map_err(Error::file("read", from))?.len();
        if now != size {
            let message = "its size changed while it was put into the image; do it again when it stays as it is";
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

/// Where the next bytes from there on are that are in no hole, if there are any. Reading a hole
/// takes as long as reading anything else.
fn data(file: &File, from: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(from)) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        // The file system knows no holes.
        Err(rustix::io::Errno::INVAL) => Ok(Some(from)),
        Err(error) => Err(error.into()),
    }
}
