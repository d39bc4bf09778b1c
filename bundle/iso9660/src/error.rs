//! Errors of images that are read, and of files that are written into one.

use std::io;
use std::path::PathBuf;

use super::{BLOCK, LONGEST_NAME, LONGEST_PATH};

/// The file is not a readable image.
#[derive(Debug, thiserror::Error)]
#[error("it is not a readable image (copy it again from its source)")]
pub struct Unreadable {
    /// The first damage found.
    #[from]
    source: ImageDamage,
}

/// The part of an image that is unreadable or invalid.
#[derive(Debug, thiserror::Error)]
pub enum ImageDamage {
    #[error("it ends before its first directory")]
    TooShort(#[source] io::Error),
    #[error("it is not ISO 9660")]
    OtherFormat,
    #[error("it has no primary volume descriptor")]
    NoDescriptor,
    #[error("its blocks do not have {BLOCK} bytes")]
    BlockSize,
    #[error("it should have {size} bytes and has {length}: it is cut off")]
    CutOff { size: u64, length: u64 },
    #[error("its root is not a directory")]
    RootIsFile,
    #[error("in the directory /{path}")]
    Directory {
        path: String,
        source: Box<ImageDamage>,
    },
    #[error("/{path} has {size} bytes of records, which no directory has")]
    DirectorySize { path: String, size: u32 },
    #[error("the directory /{0} also exists elsewhere")]
    DirectoryTwice(String),
    #[error("the records of . and .. are not in their places")]
    Dots,
    #[error("it has no records")]
    Empty,
    #[error("its record of itself points elsewhere")]
    OtherPlace,
    #[error("the image has no Rock Ridge: it is not one that Halite made")]
    NoRockRidge,
    #[error(transparent)]
    Record(#[from] RecordDamage),
    #[error("the path of {name} is longer than {LONGEST_PATH} bytes")]
    LongPath { name: String },
    #[error("{0} is neither a plain file nor a directory")]
    OtherType(String),
    #[error("{0} has a section that cannot be followed by another")]
    Section(String),
    #[error("the last section of {0} is missing")]
    LastSection(String),
    #[error("{0} is not in one piece")]
    Pieces(String),
    #[error("{0} exists twice")]
    FileTwice(String),
    #[error("/{first} and /{second} overlap")]
    SamePlace { first: String, second: String },
    #[error("the continuation of a directory record is not in one sector")]
    Continuation,
    #[error("{size} bytes at sector {sector} reach beyond the end of the image")]
    Outside { sector: u32, size: u32 },
    #[error("byte {offset} cannot be read")]
    Read { offset: u64, source: io::Error },
    #[error("there are more directories than any bundle has")]
    TooMany,
}

/// The part of a directory record that is invalid.
#[derive(Debug, thiserror::Error)]
pub enum RecordDamage {
    #[error("a directory record has an impossible length")]
    Length,
    #[error("a directory record is shorter than its name")]
    NameLength,
    #[error("a directory record has extended attributes or is interleaved")]
    Attributes,
    #[error("a directory record is continued without end")]
    Endless,
    #[error("a directory record is continued in two places")]
    TwoContinuations,
    #[error("a directory record has two modes")]
    TwoModes,
    #[error("a directory record has two names in Rock Ridge")]
    TwoNames,
    #[error("an entry of Rock Ridge has an impossible length")]
    EntryLength,
    #[error("an entry is neither a plain file nor a directory")]
    OtherType,
    #[error("a name in Rock Ridge has no end")]
    UnfinishedName,
    #[error("a name in Rock Ridge is cut off")]
    CutName,
    #[error("a name in Rock Ridge refers to another")]
    NameElsewhere,
    #[error("a name in Rock Ridge is longer than {LONGEST_NAME} bytes")]
    LongName,
    #[error("a name in Rock Ridge is not UTF-8")]
    NotUtf8,
    #[error(transparent)]
    Name(#[from] WrongName),
    #[error("{0:?} has no mode in Rock Ridge")]
    NoMode(String),
    #[error("a number is cut off")]
    CutNumber,
    #[error("a number differs between its two byte orders")]
    ByteOrders,
}

/// The reason why a name is not valid on any file system.
#[derive(Debug, thiserror::Error)]
pub enum WrongName {
    #[error("a name is empty")]
    Empty,
    #[error("{0} is not a name")]
    Dots(String),
    #[error("the name {0:?} has a / or a zero byte")]
    Character(String),
    #[error("a name of {0} bytes is longer than {LONGEST_NAME}")]
    TooLong(usize),
}

/// The reason why a file cannot be in an image.
#[derive(Debug, thiserror::Error)]
pub enum Unwritable {
    #[error("{path:?} cannot be the path of a file in an image")]
    Path { path: String, source: WrongName },
    #[error("{path}: only permission bits can be kept, not the mode {mode:o}")]
    Mode { path: String, mode: u32 },
    #[error("{path}: {size} bytes are more than Linux reads of one file in an image")]
    TooLarge { path: String, size: u64 },
    #[error("{path}: {component} is a file")]
    BelowFile { path: String, component: String },
    #[error("{0} is a directory and a file")]
    DirectoryAndFile(String),
    #[error("{path}: {} is not a plain file", from.display())]
    NotPlain { path: String, from: PathBuf },
    #[error("{path}: cannot read {}", from.display())]
    Read {
        path: String,
        from: PathBuf,
        source: io::Error,
    },
}
