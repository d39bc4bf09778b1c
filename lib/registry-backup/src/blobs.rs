//! The blobs of a registry, each compared with its digest.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use halite_durable::files::{self, RecordingReader};
use halite_durable::{Digest, Error};
use rustix::fs::OFlags;

/// The mode of new files. Images may contain secrets.
pub const MODE: u32 = 0o600;
/// The number of damaged blobs that a message lists.
const LISTED: usize = 20;

/// A difference between a blob and its digest.
#[derive(Debug, thiserror::Error)]
pub enum BlobDamage {
    /// The content has another digest.
    #[error("its content has another digest")]
    Content,
    /// The file is missing, or reading it failed.
    #[error("it cannot be read: {0}")]
    Unreadable(io::Error),
}

/// The file of a blob in the tree `v2`.
pub fn path(v2: &Path, digest: &Digest) -> PathBuf {
    let hex = digest.hex();
    v2.join(format!("blobs/sha256/{}/{hex}/data", &hex[..2]))
}

/// The size of a blob in bytes; 0 if it is missing.
pub fn size(v2: &Path, digest: &Digest) -> u64 {
    let status = path(v2, digest).symlink_metadata();
    status.map_or(0, |status| status.len())
}

/// Opens a regular file. The registry's user may have replaced it with a symbolic link or a pipe:
/// the link is not followed, and opening the pipe does not wait for a writer.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = File::options();
    let options = options.read(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Copies an opened blob and compares it with its digest. Returns its size in bytes, or the damage.
///
/// # Errors
/// The copy cannot be written.
pub fn copy(
    from: io::Result<File>,
    digest: &Digest,
    to: &mut impl Write,
) -> io::Result<Result<u64, BlobDamage>> {
    let mut source = match from {
        Ok(file) => RecordingReader::new(file),
        Err(error) => return Ok(Err(BlobDamage::Unreadable(error))),
    };
    match files::stream(&mut source, to) {
        Ok((hex, size)) if hex == digest.hex() => Ok(Ok(size)),
        Ok(_) => Ok(Err(BlobDamage::Content)),
        Err(error) if source.failed => Ok(Err(BlobDamage::Unreadable(error))),
        Err(error) => Err(error),
    }
}

/// Compares a blob of the tree `v2` with its digest. Returns its size in bytes.
///
/// # Errors
/// The blob is damaged or missing.
pub fn check(v2: &Path, digest: &Digest) -> Result<u64, BlobDamage> {
    // Writing to a sink does not fail, so an error can only come from reading.
    copy(open(&path(v2, digest)), digest, &mut io::sink())
        .unwrap_or_else(|error| Err(BlobDamage::Unreadable(error)))
}

/// Describes a damaged blob.
pub fn describe<'a>(
    digest: &Digest,
    repositories: impl IntoIterator<Item = &'a str>,
    damage: &BlobDamage,
) -> String {
    let repositories: Vec<&str> = repositories.into_iter().collect();
    let repositories = repositories.join(", ");
    format!("{} (in {repositories}): {damage}", digest.oci())
}

/// Makes the error of a registry or backup with damaged blobs.
pub fn damaged(path: &Path, mut blobs: Vec<String>, remedy: &str) -> Error {
    let more = blobs.len().saturating_sub(LISTED);
    blobs.truncate(LISTED);
    if more > 0 {
        blobs.push(format!("and {more} more"));
    }
    Error::content(
        path,
        format!("it is damaged: {}; {remedy}", blobs.join("; ")),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_unreadable_blob_is_damage_and_a_full_disk_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("blob");
        std::fs::write(&file, "content").unwrap();
        let digest = Digest::of(b"content");
        let copied = |from: &Path, digest| copy(open(from), digest, &mut Vec::new()).unwrap();
        assert_eq!(copied(&file, &digest).unwrap(), 7);
        let empty = Digest::of(b"");
        let other = copied(&file, &empty);
        assert!(matches!(other, Err(BlobDamage::Content)));
        // A missing file, a directory, and a link to the right content.
        let link = dir.path().join("link");
        symlink(&file, &link).unwrap();
        for from in [&dir.path().join("missing"), dir.path(), &link] {
            let damage = copied(from, &digest);
            assert!(matches!(damage, Err(BlobDamage::Unreadable(_))));
        }
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        let error = copy(open(&file), &digest, &mut full).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_message_lists_only_some_of_many_blobs() {
        let blobs = (0..LISTED + 2).map(|blob| format!("<{blob}>")).collect();
        let text = damaged(Path::new("/data"), blobs, "push them again").to_string();
        let end = "; <19>; and 2 more; push them again";
        assert!(
            text.starts_with("/data: it is damaged: <0>; <1>; "),
            "{text}"
        );
        assert!(text.ends_with(end), "{text}");
    }
}
