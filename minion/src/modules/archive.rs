//! `archive.extracted`

use std::collections::{BTreeMap, BTreeSet};

use halite_durable::digest::{sha256, sha256_of_reader};
use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::clean::{Keep, surplus_below};
use super::digest::has_digest;
use super::file::ContentSource;
use super::paths::{NOTES, absolute, follow, join, known_owner, meta_difference, parents, walk};
use super::{Failure, Plan, fail};
use crate::host::archive::{ArchiveEntry, unpack};
use crate::host::effect::{Effect, Meta};
use crate::host::{FileKind, Host, HostError, Stat};

/// An archive's entry at one path, without its content.
enum Member {
    Directory(u32),
    File {
        mode: u32,
        size: u64,
        sha256: String,
    },
    Symlink(String),
}

pub(super) async fn extracted(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let name = absolute(&chunk.name)?;
    let if_missing = args.text("if_missing")?;
    let note = if_missing.as_ref().map(|path| note_path(&name, path));
    let has_begun = match &note {
        Some(note) => host.stat(note).await?.is_some(),
        None => false,
    };
    if let Some(path) = if_missing
        && !has_begun
        && host.stat(&path).await?.is_some()
    {
        return Ok(Plan::nothing(format!("{path} exists")));
    }
    let strip = args.number::<u32>("strip")?.unwrap_or(0);
    let source = ContentSource::parse(&args.required("source")?)?;
    let bytes = source.read(host).await?;
    let label = name.clone();
    // Unpacking takes seconds, during which the link to the master must still answer.
    let unpacked = tokio::task::spawn_blocking(move || {
        let members = members(&label, &bytes, strip);
        (bytes, members)
    });
    let (bytes, members) = unpacked
        .await
        .map_err(|e| HostError::failed(format!("cannot unpack the archive for {name}"), e))?;
    let members = members?;
    let (root, stat) = follow(host, &name).await?;
    let owner = Meta {
        user: args.text("user")?,
        group: args.text("group")?,
        mode: None,
    };
    known_owner(host, &owner).await?;

    let mut extracted = Vec::new();
    let mut changes = Map::new();
    let mut settled = Vec::new();
    // Owners of the existing entries: unpacking gives all to root.
    let mut kept = Vec::new();
    for (relative, member) in &members {
        let path = join(&root, relative);
        let stat = host.stat(&path).await?;
        let fresh = !is_there(host, &path, stat.as_ref(), member).await?;
        if fresh {
            extracted.push(relative.clone());
        }
        let mode = match member {
            Member::Directory(mode) | Member::File { mode, .. } => *mode,
            Member::Symlink(_) => continue,
        };
        let wanted = Meta {
            mode: Some(mode),
            ..owner.clone()
        };
        if let (Some(stat), false) = (stat, fresh) {
            // A link in place of a directory has neither its mode nor its owner.
            let stat = match stat.kind {
                FileKind::Symlink => follow(host, &path).await?.1.unwrap_or(stat),
                _ => stat,
            };
            if owner != Meta::default() {
                kept.push(Effect::SetMeta {
                    path: path.clone(),
                    meta: wanted.clone(),
                });
            }
            let (differs, set) = meta_difference(host, &stat, &wanted).await?;
            if !differs.is_empty() {
                changes.insert(path.clone(), differs.into());
                settled.push(Effect::SetMeta { path, meta: set });
            }
        } else if owner != Meta::default() {
            // Together with the mode: a change of owner clears the set-id bits.
            settled.push(Effect::SetMeta { path, meta: wanted });
        }
    }
    let (gone, remark) = surplus_members(host, &args, &root, &members).await?;

    let mut effects = Vec::new();
    if !extracted.is_empty() {
        changes.insert("extracted_files".into(), json!(extracted));
        effects = parents(host, &root, true, &Meta::default()).await?;
        if stat.is_none() {
            effects.push(Effect::Mkdir {
                path: root.clone(),
                meta: owner.clone(),
            });
        }
        add_unpacking(host, &source, bytes, &root, strip, &mut effects).await?;
        effects.append(&mut kept);
    } else if let Some(left) = leftover(host, &source).await? {
        // An earlier run was interrupted between unpacking and removing the archive.
        changes.insert("removed_archive".into(), json!(left));
        effects.push(Effect::Remove { path: left });
    }
    effects.append(&mut settled);
    if !gone.is_empty() {
        changes.insert("removed".into(), json!(gone));
        effects.extend(gone.into_iter().map(|path| Effect::Remove { path }));
    }
    if let Some(note) = note.filter(|_| has_begun || !changes.is_empty()) {
        if !has_begun {
            let mut first = parents(host, &note, true, &Meta::default()).await?;
            first.push(private_file(&note, format!("{name}\n").into_bytes()));
            effects.splice(0..0, first);
        } else if changes.is_empty() {
            changes.insert("removed_note".into(), json!(note));
        }
        effects.push(Effect::Remove { path: note });
    }
    if changes.is_empty() {
        return Ok(Plan::nothing(format!(
            "All files of the archive are in {name}{remark}"
        )));
    }
    Ok(Plan::change(
        changes,
        effects,
        format!("The archive would be extracted to {name}{remark}"),
        format!("The archive was extracted to {name}{remark}"),
    ))
}

fn members(name: &str, bytes: &[u8], strip: u32) -> Result<BTreeMap<String, Member>, Failure> {
    let mut members = BTreeMap::new();
    let mut contents: BTreeMap<String, (u64, String)> = BTreeMap::new();
    unpack(
        &format!("archive for {name}"),
        bytes,
        strip,
        |path, mode, entry| {
            let member = match entry {
                ArchiveEntry::Directory => Member::Directory(mode),
                ArchiveEntry::Symlink(target) => Member::Symlink(target),
                ArchiveEntry::File(content) => {
                    let (size, sha256) = sha256_of_reader(content).map_err(|e| {
                        HostError::failed(format!("cannot read the archive for {name}"), e)
                    })?;
                    contents.insert(path.to_owned(), (size, sha256.clone()));
                    Member::File { mode, size, sha256 }
                }
                ArchiveEntry::Hardlink(to) => {
                    let (size, sha256) = contents.get(&to).cloned().ok_or_else(|| {
                        HostError::refused(format!(
                            "archive for {name}: {path} is a hard link to {to}, which is not an earlier file of the archive"
                        ))
                    })?;
                    Member::File { mode, size, sha256 }
                }
            };
            members.insert(path.trim_end_matches('/').to_owned(), member);
            Ok(())
        },
    )?;
    Ok(members)
}

/// Returns whether kind and content equal the archive's.
async fn is_there(
    host: &dyn Host,
    path: &str,
    stat: Option<&Stat>,
    member: &Member,
) -> Result<bool, Failure> {
    let Some(stat) = stat else { return Ok(false) };
    match (stat.kind, member) {
        (FileKind::Directory, Member::Directory(_)) => Ok(true),
        (FileKind::Symlink, Member::Symlink(target)) => Ok(stat.target.as_ref() == Some(target)),
        (FileKind::Symlink, Member::Directory(_)) => Ok(follow(host, path)
            .await?
            .1
            .is_some_and(|stat| stat.kind == FileKind::Directory)),
        (
            FileKind::File,
            Member::File {
                size,
                sha256: wanted,
                ..
            },
        ) => {
            let found = match stat.size == *size {
                true => host.read(path).await?,
                false => None,
            };
            match found {
                Some(found) => Ok(has_digest(found, wanted).await?.1),
                None => Ok(false),
            }
        }
        (FileKind::Directory, _) => {
            fail(format!("{path} is a directory, and not one in the archive"))
        }
        (_, _) => Ok(false),
    }
}

/// `clean`: the paths below the target that are not in the archive, and a remark about the ones
/// that stay.
async fn surplus_members(
    host: &dyn Host,
    args: &Args<'_>,
    root: &str,
    members: &BTreeMap<String, Member>,
) -> Result<(Vec<String>, String), Failure> {
    if !args.flag("clean", false)? {
        return Ok((Vec::new(), String::new()));
    }
    let mut known: BTreeSet<&str> = members.keys().map(String::as_str).collect();
    for path in members.keys() {
        let mut at = path.as_str();
        while let Some(cut) = at.rfind('/') {
            at = at.get(..cut).unwrap_or_default();
            known.insert(at);
        }
    }
    let found = walk(host, root).await?;
    Ok(surplus_below(
        &host.mounts().await?,
        root,
        &found,
        |path| known.contains(path),
        &Keep::default(),
    ))
}

/// Path of the note that an extraction to a target has begun. `if_missing` may name a file of the
/// archive, which is on the host after an interruption, while others are missing: so it does not
/// count while the note exists.
fn note_path(target: &str, if_missing: &str) -> String {
    let key = sha256(format!("{target}\n{if_missing}").as_bytes());
    format!("{NOTES}/unpack/{key}.begun")
}

fn private_file(path: &str, content: Vec<u8>) -> Effect {
    Effect::Write {
        path: path.to_owned(),
        content,
        meta: Meta {
            mode: Some(0o600),
            ..Meta::default()
        },
    }
}

/// Path of the archive on the host while it is unpacked.
fn temporary_path(sha256: &str) -> String {
    format!("{NOTES}/unpack/{sha256}.tar")
}

async fn leftover(host: &dyn Host, source: &ContentSource) -> Result<Option<String>, Failure> {
    let ContentSource::Blob(sha256) = source else {
        return Ok(None);
    };
    let path = temporary_path(sha256);
    Ok(host.stat(&path).await?.map(|_| path))
}

/// Adds the effects that unpack an archive. An archive that is not on the host is stored there
/// temporarily.
async fn add_unpacking(
    host: &dyn Host,
    source: &ContentSource,
    bytes: Vec<u8>,
    root: &str,
    strip: u32,
    effects: &mut Vec<Effect>,
) -> Result<(), Failure> {
    let extract = |archive: String| Effect::Extract {
        archive,
        target: root.to_owned(),
        strip,
    };
    let archive = match source {
        ContentSource::Path(path) => {
            effects.push(extract(path.clone()));
            return Ok(());
        }
        ContentSource::Blob(sha256) => temporary_path(sha256),
        ContentSource::Bytes(bytes) => temporary_path(&sha256(bytes)),
    };
    effects.extend(parents(host, &archive, true, &Meta::default()).await?);
    effects.push(private_file(&archive, bytes));
    effects.push(extract(archive.clone()));
    effects.push(Effect::Remove { path: archive });
    Ok(())
}
