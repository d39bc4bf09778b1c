//! Verification and restore of backups, even while the registry serves.

use std::fs;
use std::path::Path;

use halite_durable::{ByteProgress, Digest, Error, FileLock, files};

use crate::backups::Backup;
use crate::blobs;
use crate::owner::Owner;
use crate::tree::{NewTree, ROOT, TOP, TreeContent};

/// Compares a backup's links with its metadata, and every blob with its digest.
///
/// # Errors
/// The backup is damaged or cannot be read.
pub fn verify(backup: &Backup, progress: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let (v2, links, mut damaged) = (backup.path.join(ROOT), backup.links()?, Vec::new());
    let mut byte_progress = ByteProgress::new("read", backup.metadata.bytes, progress);
    for (digest, repositories) in links.blobs() {
        match blobs::check(&v2, digest) {
            Ok(size) => byte_progress.add(size),
            Err(damage) => damaged.push(blobs::describe(digest, repositories, &damage)),
        }
    }
    if damaged.is_empty() {
        return Ok(());
    }
    let backups = backup.path.parent().unwrap_or(&backup.path);
    let remedy = format!(
        "remove the file of each damaged blob from every backup (`find {} -path '*/HEX/data' -delete`), and the next backup \
         copies it from the registry again",
        backups.display()
    );
    Err(blobs::damaged(&backup.path, damaged, &remedy))
}

/// Restores a backup into the data directory of a registry.
///
/// The registry's tree is replaced in one step when the new one is complete. Blobs that the
/// registry has intact are hard-linked; the others are copied from the backup. All files get the
/// owner of the data directory. A restore may be interrupted at any moment and repeated.
///
/// # Errors
/// The directory does not exist, the backup is damaged, another process is working with the
/// registry, there is too little space, or a system call fails. Nothing was changed then.
pub fn restore(
    backup: &Backup,
    data: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<TreeContent, Error> {
    let data = &data.canonicalize().map_err(Error::file("open", data))?;
    let _registry = FileLock::new(&data.join(TOP))?;
    let (v2, links) = (data.join(ROOT), backup.links()?);
    progress("comparing the registry with the backup");
    let tree = NewTree::new(files::sibling(&v2, "new"), "", Owner::from_dir(data)?)?;
    let link = |digest: &Digest, place: &Path| {
        blobs::check(&v2, digest).is_ok() && fs::hard_link(blobs::path(&v2, digest), place).is_ok()
    };
    let remedy = "nothing was changed; restore an older backup";
    let content = tree.fill((&backup.path, &links), link, remedy, progress)?;
    files::put_in_place(&tree.dir, &v2)?;
    Ok(content)
}
