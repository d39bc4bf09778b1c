//! `file.recurse`

use std::collections::{BTreeMap, BTreeSet};

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::content::{ContentSource, Difference, FileSpec, difference};
use crate::host::effect::{Effect, Meta};
use crate::host::{FileKind, Host};
use crate::modules::clean::{Keep, surplus_below};
use crate::modules::paths::{absolute, follow, join, known_owner, meta_difference, parents, walk};
use crate::modules::replace::kind_name;
use crate::modules::{Failure, Plan, fail};

pub(in crate::modules) async fn recurse(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let name = absolute(&chunk.name)?;
    let files = files(&args)?;
    let (root, _) = follow(host, &name).await?;
    let owner = Meta {
        user: args.text("user")?,
        group: args.text("group")?,
        mode: None,
    };
    let dir_meta = Meta {
        mode: args.mode("dir_mode")?,
        ..owner.clone()
    };
    let file_mode = args.mode("file_mode")?;
    let show = args.show()?;

    let mut directories = BTreeSet::from([String::new()]);
    for relative in files.keys() {
        let mut at = relative.as_str();
        while let Some(cut) = at.rfind('/') {
            at = at.get(..cut).unwrap_or_default();
            directories.insert(at.to_owned());
        }
    }
    let mut changes = Map::new();
    let mut effects = parents(host, &root, true, &dir_meta).await?;
    // Sorted: parents come before children.
    for relative in &directories {
        let path = join(&root, relative);
        match follow(host, &path).await?.1 {
            None => {
                known_owner(host, &dir_meta).await?;
                changes.insert(path.clone(), json!({"directory": "new"}));
                effects.push(Effect::Mkdir {
                    path,
                    meta: dir_meta.clone(),
                });
            }
            Some(stat) if stat.kind == FileKind::Directory => {
                let (differs, set) = meta_difference(host, &stat, &dir_meta).await?;
                if !differs.is_empty() {
                    changes.insert(path.clone(), Value::Object(differs));
                    effects.push(Effect::SetMeta { path, meta: set });
                }
            }
            Some(stat) => {
                return fail(format!(
                    "The path {path} exists and is {}, not a directory",
                    kind_name(&stat)
                ));
            }
        }
    }
    for (relative, (source, mode)) in &files {
        let path = join(&root, relative);
        let stat = host.stat(&path).await?;
        let meta = Meta {
            mode: mode.or(file_mode),
            ..owner.clone()
        };
        let spec = FileSpec {
            source: Some(source.clone()),
            meta,
            show,
        };
        let Difference {
            changes: differs,
            effects: mut more,
        } = difference(host, &path, stat.as_ref(), &spec).await?;
        if !differs.is_empty() {
            changes.insert(path, Value::Object(differs));
            effects.append(&mut more);
        }
    }
    let mut remark = String::new();
    if args.flag("clean", false)? {
        let found = walk(host, &root).await?;
        let mounts = host.mounts().await?;
        let own = |path: &str| files.contains_key(path) || directories.contains(path);
        let gone;
        (gone, remark) = surplus_below(&mounts, &root, &found, own, &Keep::read(&args, &name)?);
        if !gone.is_empty() {
            changes.insert("removed".into(), json!(gone));
            effects.extend(gone.into_iter().map(|path| Effect::Remove { path }));
        }
    }
    if changes.is_empty() {
        return Ok(Plan::nothing(format!(
            "The directory {name} is in the correct state{remark}"
        )));
    }
    Ok(Plan::change(
        changes,
        effects,
        format!("The directory {name} is set to be changed{remark}"),
        format!("Recursively updated {name}{remark}"),
    ))
}

/// The compiler's `files`: relative path to content and mode.
fn files(args: &Args<'_>) -> Result<BTreeMap<String, (ContentSource, Option<u32>)>, Failure> {
    let Some(given) = args.mapping("files")? else {
        return fail(
            "file.recurse: the source was not resolved; this low state was not made by the compiler",
        );
    };
    let mut files = BTreeMap::new();
    for (relative, file) in given {
        if relative
            .split('/')
            .any(|part| matches!(part, "" | "." | ".."))
        {
            return fail(format!("file.recurse: {relative} is not a relative path"));
        }
        let text = |key: &str| file.get(key).and_then(Value::as_str);
        let source = match (text("contents"), text("blob"), text("source")) {
            (Some(contents), None, None) => ContentSource::Bytes(contents.as_bytes().to_vec()),
            (None, Some(blob), None) => {
                ContentSource::Blob(blob.trim_start_matches("blob:").to_owned())
            }
            (None, None, Some(source)) => ContentSource::parse(source)?,
            _ => {
                return fail(format!(
                    "file.recurse: {relative} needs one of contents and blob"
                ));
            }
        };
        let mode = file
            .get("mode")
            .and_then(Value::as_u64)
            .and_then(|mode| u32::try_from(mode).ok());
        files.insert(relative.clone(), (source, mode));
    }
    Ok(files)
}
