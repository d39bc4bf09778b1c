//! ISO 9660: the file system in which a bundle travels.
//!
//! [`write`] makes an image with three views of the same files. The primary one has names of
//! ECMA-119 (upper case, 31 characters) and carries Rock Ridge (SUSP and RRIP 1.12), which is what
//! Linux, `xorriso` and our reader show: exact names and modes. The Joliet one (level 3) is what
//! Windows and `7z` show: names in UCS-2 of up to 64 characters. In each view every file is there
//! under a name of its own, and every file's content is one piece.
//!
//! [`read`] reads images without mounting them and without being root. It believes nothing that it
//! reads.
//!
//! Where the standards are left, on purpose and as `xorriso` does too: directories may be deeper
//! than eight levels (ECMA-119 6.8.2.1), and paths longer than 255 (6.8.2.1) or, in Joliet, 240
//! bytes. Linux, BSD, Windows and every program that the tests use read such images; moving
//! directories away would show them where they do not belong.

mod directory;
mod extract;
mod hierarchy;
mod input;
mod layout;
mod names;
mod parse;
pub mod portable;
pub mod read;
mod records;
mod sink;
mod tree;
mod volume;
mod walk;
pub mod write;

pub use halite_durable::Error;

/// Size of a logical sector and of a logical block, in bytes.
pub const SECTOR: u64 = BLOCK as u64;

/// The same as a length in memory.
const BLOCK: usize = 2048;

/// The most that one directory record can say of a file: the last whole sector below 4 GiB.
const SECTION: u64 = 0xFFFF_F800;

/// Sector of the first volume descriptor (ECMA-119 6.2.1); those before it are not the file
/// system's.
const FIRST_DESCRIPTOR: u64 = 16;

/// The longest name of a file or directory that is written, in bytes. Rock Ridge can hold longer
/// ones, but Linux shows only the beginning of a name that has more (fs/isofs/rock.c,
/// `get_rock_ridge_filename`).
const LONGEST_NAME: usize = 253;

/// File type bits of `st_mode` for a directory and for a regular file, as RRIP 4.1.1 has them.
const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_FILE: u32 = 0o100_000;
const TYPE_MASK: u32 = 0o170_000;

/// Bits of the flags of a directory record (ECMA-119 9.1.6).
const FLAG_DIRECTORY: u8 = 0x02;
const FLAG_ASSOCIATED: u8 = 0x04;
const FLAG_CONTINUES: u8 = 0x80;

/// How many sectors hold so many bytes.
const fn sectors(bytes: u64) -> u64 {
    bytes.div_ceil(SECTOR)
}
