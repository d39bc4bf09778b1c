//! ISO 9660: the file system of a bundle's ISO.
//!
//! [`write`] makes an image with three views of the same files. The primary view has names of
//! ECMA-119 (upper case, 31 characters). Its records also carry Rock Ridge (SUSP and RRIP 1.12):
//! exact names and modes, which Linux, `xorriso` and this crate's reader display. The Joliet view
//! (level 3), which Windows and `7z` display, has names in UCS-2 of up to 64 characters. In each
//! view every file has its own name, and every file's content is contiguous.
//!
//! [`read`] reads images without mounting them and without root privileges. It trusts nothing that
//! it reads.
//!
//! Images deviate from the standards in two ways, on purpose and like those of `xorriso`:
//! directories may be deeper than eight levels (ECMA-119 6.8.2.1), and paths longer than 255
//! (6.8.2.1) or, in Joliet, 240 bytes. Linux, BSD, Windows and every program in the tests read such
//! images; relocated directories would be displayed in the wrong place.

mod directory;
mod error;
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

/// [`SECTOR`] as a length in memory.
const BLOCK: usize = 2048;

/// The largest part of a file that one directory record can describe: the last whole sector below 4
/// GiB.
const SECTION: u64 = 0xFFFF_F800;

/// Sector of the first volume descriptor (ECMA-119 6.2.1); the sectors before it are not part of
/// the file system.
const FIRST_DESCRIPTOR: u64 = 16;

/// The longest name that is written, in bytes. Rock Ridge allows longer ones, but Linux displays
/// only their beginning (fs/isofs/rock.c, `get_rock_ridge_filename`).
const LONGEST_NAME: usize = 253;

/// The longest path, in bytes (Linux' `PATH_MAX`).
const LONGEST_PATH: usize = 4096;

/// File type bits of `st_mode` for a directory and for a regular file (RRIP 4.1.1).
const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_FILE: u32 = 0o100_000;
const TYPE_MASK: u32 = 0o170_000;

/// Bits of the flags of a directory record (ECMA-119 9.1.6).
const FLAG_DIRECTORY: u8 = 0x02;
const FLAG_ASSOCIATED: u8 = 0x04;
const FLAG_CONTINUES: u8 = 0x80;

/// The number of sectors for this many bytes.
const fn sectors(bytes: u64) -> u64 {
    bytes.div_ceil(SECTOR)
}
