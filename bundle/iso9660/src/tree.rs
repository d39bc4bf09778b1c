//! The tree of directories and files for an image.

use std::collections::BTreeMap;
use std::path::Path;

use halite_durable::Error;
use halite_errors::chain;
use jiff::Timestamp;

use super::error::{Unwritable, WrongName};
use super::input::{Content, InputFile};
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
        sources: &BTreeMap<String, InputFile>,
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
                problems.push(chain(&problem));
            }
        }
        if problems.is_empty() {
            Ok(tree)
        } else {
            Err(Error::content(out, problems.join("\n")))
        }
    }

    fn add(&mut self, path: &str, source: &InputFile) -> Result<(), Unwritable> {
        path.split('/')
            .try_for_each(check_name)
            .map_err(|source| Unwritable::Path {
                path: path.to_owned(),
                source,
            })?;
        if source.mode > 0o777 {
            return Err(Unwritable::Mode {
                path: path.to_owned(),
                mode: source.mode,
            });
        }
        let size = size(path, source)?;
        if size > MOST_SECTIONS * SECTION {
            return Err(Unwritable::TooLarge {
                path: path.to_owned(),
                size,
            });
        }
        let (above, name) = path
            .rsplit_once('/')
            .map_or((None, path), |(above, name)| (Some(above), name));
        let mut at = 0;
        for component in above.into_iter().flat_map(|above| above.split('/')) {
            at = self
                .enter(at, component)
                .ok_or_else(|| Unwritable::BelowFile {
                    path: path.to_owned(),
                    component: component.to_owned(),
                })?;
        }
        if self.directories[at].children.contains_key(name) {
            return Err(Unwritable::DirectoryAndFile(path.to_owned()));
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

/// Checks that a name is valid on a file system.
pub fn check_name(name: &str) -> Result<(), WrongName> {
    match name {
        "" => Err(WrongName::Empty),
        "." | ".." => Err(WrongName::Dots(name.to_owned())),
        _ if name.contains(['/', '\0']) => Err(WrongName::Character(name.to_owned())),
        _ if name.len() > LONGEST_NAME => Err(WrongName::TooLong(name.len())),
        _ => Ok(()),
    }
}

fn size(path: &str, source: &InputFile) -> Result<u64, Unwritable> {
    match &source.from {
        Content::Bytes(bytes) => Ok(bytes.len() as u64),
        Content::File(from) => match from.metadata() {
            Ok(facts) if facts.is_file() => Ok(facts.len()),
            Ok(_) => Err(Unwritable::NotPlain {
                path: path.to_owned(),
                from: from.clone(),
            }),
            Err(source) => Err(Unwritable::Read {
                path: path.to_owned(),
                from: from.clone(),
                source,
            }),
        },
    }
}
