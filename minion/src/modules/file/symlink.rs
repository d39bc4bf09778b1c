//! `file.symlink` and `file.absent`

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use crate::host::effect::{Effect, Meta};
use crate::host::{FileKind, Host, Stat};
use crate::modules::paths::{absolute, parents, removable};
use crate::modules::{Failure, Plan, fail};

pub(in crate::modules) async fn symlink(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let path = absolute(&chunk.name)?;
    let target = args.required("target")?;
    let force = args.flag("force", false)?;
    let stat = host.stat(&path).await?;
    let link = Effect::Symlink {
        path: path.clone(),
        target: target.clone(),
    };
    let mut changes = Map::from_iter([("new".to_owned(), json!(path))]);
    let mut effects = Vec::new();
    match stat {
        Some(Stat {
            kind: FileKind::Symlink,
            target: Some(found),
            ..
        }) if found == target => {
            return Ok(Plan::nothing(format!(
                "Symlink {path} is present and points to {target}"
            )));
        }
        None => {
            effects = parents(host, &path, args.flag("makedirs", false)?, &Meta::default()).await?
        }
        Some(Stat {
            kind: FileKind::Symlink,
            target: found,
            ..
        }) => {
            changes.insert("old".into(), json!(found));
        }
        Some(Stat {
            kind: FileKind::Directory,
            ..
        }) if !force => {
            return fail(format!(
                "Directory exists where the symlink {path} should be"
            ));
        }
        Some(_) if !force => {
            return fail(format!("File exists where the symlink {path} should be"));
        }
        Some(stat) => {
            changes.insert("forced".into(), json!("Symlink was forcibly replaced"));
            // A file is replaced in one step; a directory cannot be.
            if stat.kind == FileKind::Directory {
                removable(host, &path).await?;
                effects.push(Effect::Remove { path: path.clone() });
            }
        }
    }
    effects.push(link);
    Ok(Plan::change(
        changes,
        effects,
        format!("Symlink {path} to {target} is set for creation"),
        format!("Created new symlink {path} -> {target}"),
    ))
}

pub(in crate::modules) async fn absent(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let path = absolute(&chunk.name)?;
    if path == "/" {
        return fail("Refusing to make \"/\" absent");
    }
    let Some(stat) = host.stat(&path).await? else {
        return Ok(Plan::nothing(format!("File {path} is not present")));
    };
    // Only the link itself is removed.
    if stat.kind != FileKind::Symlink {
        removable(host, &path).await?;
    }
    let what = if stat.kind == FileKind::Directory {
        "Directory"
    } else {
        "File"
    };
    let word = if stat.kind == FileKind::Directory {
        "directory"
    } else {
        "file"
    };
    Ok(Plan::change(
        Map::from_iter([("removed".to_owned(), json!(path))]),
        vec![Effect::Remove { path: path.clone() }],
        format!("{what} {path} is set for removal"),
        format!("Removed {word} {path}"),
    ))
}
