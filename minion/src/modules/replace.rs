//! Entries other than files at the path of a file: a directory, pipe, socket, device, or a link.

use super::Failure;
use super::paths::{follow, removable};
use crate::host::effect::{Effect, Meta};
use crate::host::{FileKind, Host, HostError, HostResult, Stat};

/// The content of a file that a state manages alone, and the effects that make room for it; see
/// [`not_a_file`].
///
/// # Errors
/// Like [`not_a_file`].
pub(super) async fn read(
    host: &dyn Host,
    path: &str,
) -> Result<(Option<Vec<u8>>, Vec<Effect>), Failure> {
    match not_a_file(host, path).await? {
        Some(removal) => Ok((None, vec![removal.effect])),
        None => Ok((host.read(path).await?, Vec::new())),
    }
}

/// The effect that writes the edited text of a file.
///
/// # Errors
/// The file is not UTF-8: the text has other characters in place of some of its bytes.
pub(super) fn rewritten(path: &str, old: &[u8], text: String) -> HostResult<Effect> {
    if let Err(error) = std::str::from_utf8(old) {
        return Err(HostError::failed(
            format!("cannot edit {path}: it is not UTF-8 text"),
            error,
        ));
    }
    Ok(Effect::Write {
        path: path.to_owned(),
        content: text.into_bytes(),
        meta: Meta::default(),
    })
}

/// The removal of the entry at `path`, if it is not a file and does not lead to one. A link is
/// removed, never its target. For states that manage a file alone, such as a certificate.
///
/// # Errors
/// The host cannot be read, or a file system is mounted at or below the path.
pub(super) async fn not_a_file(host: &dyn Host, path: &str) -> Result<Option<Removal>, Failure> {
    match follow(host, path).await?.1 {
        None => Ok(None),
        Some(stat) if stat.kind == FileKind::File => Ok(None),
        Some(_) => removal(host, path).await,
    }
}

/// Like [`not_a_file`], for a path where even a link to a file must go.
///
/// # Errors
/// Like [`not_a_file`].
pub(super) async fn not_a_file_itself(
    host: &dyn Host,
    path: &str,
) -> Result<Option<Removal>, Failure> {
    match host.stat(path).await? {
        None => Ok(None),
        Some(stat) if stat.kind == FileKind::File => Ok(None),
        Some(_) => removal(host, path).await,
    }
}

/// The removal of the entry at `path`, if it is not a directory and does not lead to one.
///
/// # Errors
/// Like [`not_a_file`].
pub(super) async fn not_a_directory(
    host: &dyn Host,
    path: &str,
) -> Result<Option<Removal>, Failure> {
    match follow(host, path).await?.1 {
        Some(stat) if stat.kind == FileKind::Directory => Ok(None),
        // A link that leads nowhere also blocks a directory.
        _ => removal(host, path).await,
    }
}

/// An entry that makes room.
pub(super) struct Removal {
    /// Its kind in words.
    pub what: &'static str,
    /// Removes it.
    pub effect: Effect,
}

impl Removal {
    /// The difference, for a state that lists faults.
    pub fn fault(&self) -> String {
        format!("{} is in its place", self.what)
    }
}

async fn removal(host: &dyn Host, path: &str) -> Result<Option<Removal>, Failure> {
    let Some(stat) = host.stat(path).await? else {
        return Ok(None);
    };
    if stat.kind != FileKind::Symlink {
        removable(host, path).await?;
    }
    Ok(Some(Removal {
        what: kind_name(&stat),
        effect: Effect::Remove {
            path: path.to_owned(),
        },
    }))
}

/// The kind of an entry in words.
pub(super) fn kind_name(stat: &Stat) -> &'static str {
    match stat.kind {
        FileKind::File => "a file",
        FileKind::Directory => "a directory",
        FileKind::Symlink => "a symbolic link",
        FileKind::Other => "a device, socket or pipe",
    }
}
