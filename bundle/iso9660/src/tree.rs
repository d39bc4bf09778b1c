//! The tree of directories and files for an image.

use std::collections::BTreeMap;
use std::path::Path;

use halite_durable::Error;
use jiff::Timestamp;

use super::input::{Content, Source};
use super::{LONGEST_NAME, SECTION};

/// The largest number of sections of a file that Linux reads (fs/isofs/inode.c,
/// `isofs_read_level3_size`).
const MOST_SECTIONS: u64 = 100;

/// The content of an image.
pub struct Tree {
    /// The directories; the first is the root, and each comes after its parent.
    pub directories: Vec<Directory>,
    /// The files, by path.
    pub files: Vec<File>,
    /// The date of everything in the image.
    pub date: Timestamp,
}

/// A directory.
#[derive(Default)]
pub struct Directory {
    /// Index of the parent directory; the root is its own parent.
    pub parent: usize,
    /// Its entries by name.
    pub children: BTreeMap<String, Child>,
}

/// An entry of a directory: an index into the directories or the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Child {
    /// A directory.
    Directory(usize),
    /// A file.
    File(usize),
}

/// A file.
pub struct File {
    /// Its path.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Its size in bytes when the tree was made.
    pub size: u64,
}

impl Directory {
    /// Its link count: its name in the parent, its own `.`, and `..` of each subdirectory.
    pub fn links(&self) -> usize {
        2 + self
            .children
            .values()
            .filter(|child| matches!(child, Child::Directory(_)))
            .count()
    }
}

impl Tree {
    /// Inspects every file and builds the tree. All problems are reported at once.
    pub fn new(
        out: &Path,
        date: Timestamp,
        sources: &BTreeMap<String, Source>,
    ) -> Result<Self, Error> {
        let files = Vec::with_capacity(sources.len());
        let mut tree = Self {
            directories: vec![Directory::default()],
            files,
            date,
        };
        let mut problems = Vec::new();
        for (path, source) in sources {
            if let Err(problem) = tree.add(path, source) {
                problems.push(problem);
            }
        }
        if problems.is_empty() {
            Ok(tree)
        } else {
            Err(Error::content(out, problems.join("\n")))
        }
    }

    fn add(&mut self, path: &str, source: &Source) -> Result<(), String> {
        if let Some(wrong) = path.split('/').find_map(wrong_name) {
            return Err(format!(
                "{path:?} cannot be the path of a file in an image: {wrong}"
            ));
        }
        if source.mode > 0o777 {
            return Err(format!(
                "{path}: only permission bits can be kept, not the mode {:o}",
                source.mode
            ));
        }
        let size = size(path, source)?;
        if size > MOST_SECTIONS * SECTION {
            return Err(format!(
                "{path}: {size} bytes are more than Linux reads of one file in an image"
            ));
        }
        let (above, name) = path
            .rsplit_once('/')
            .map_or((None, path), |(above, name)| (Some(above), name));
        let mut at = 0;
        for component in above.into_iter().flat_map(|above| above.split('/')) {
            at = self
                .enter(at, component)
                .ok_or_else(|| format!("{path}: {component} is a file"))?;
        }
        if self.directories[at].children.contains_key(name) {
            return Err(format!("{path} is a directory and a file"));
        }
        self.directories[at]
            .children
            .insert(name.to_owned(), Child::File(self.files.len()));
        self.files.push(File {
            path: path.to_owned(),
            mode: source.mode,
            size,
        });
        Ok(())
    }

    /// The subdirectory with this name, which is made if it is missing; `None` if the name is a
    /// file's.
    fn enter(&mut self, at: usize, name: &str) -> Option<usize> {
        match self.directories[at].children.get(name) {
            Some(Child::Directory(there)) => Some(*there),
            Some(Child::File(_)) => None,
            None => {
                let new = self.directories.len();
                self.directories.push(Directory {
                    parent: at,
                    children: BTreeMap::new(),
                });
                self.directories[at]
                    .children
                    .insert(name.to_owned(), Child::Directory(new));
                Some(new)
            }
        }
    }
}

/// The reason why a name is not valid on any file system; `None` if it is valid.
pub fn wrong_name(name: &str) -> Option<String> {
    match name {
        "" => Some("a name is empty".to_owned()),
        "." | ".." => Some(format!("{name} is not a name")),
        _ if name.contains(['/', '\0']) => {
            Some(format!("the name {name:?} has a / or a zero byte"))
        }
        _ if name.len() > LONGEST_NAME => Some(format!(
            "a name of {} bytes is longer than {LONGEST_NAME}",
            name.len()
        )),
        _ => None,
    }
}

fn size(path: &str, source: &Source) -> Result<u64, String> {
    match &source.from {
        Content::Bytes(bytes) => Ok(bytes.len() as u64),
        Content::File(from) => match from.metadata() {
            Ok(facts) if facts.is_file() => Ok(facts.len()),
            Ok(_) => Err(format!("{path}: {} is no plain file", from.display())),
            Err(error) => Err(format!("{path}: cannot read {}: {error}", from.display())),
        },
    }
}
