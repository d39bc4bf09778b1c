//! `file.directory`

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use crate::host::effect::{Effect, Meta};
use crate::host::{FileKind, Host};
use crate::modules::clean::{Keep, surplus_below};
use crate::modules::paths::{absolute, follow, join, known_owner, meta_difference, parents, walk};
use crate::modules::replace::{kind_name, not_a_directory};
use crate::modules::{Failure, Plan, fail, meta};

pub(in crate::modules) async fn directory(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let name = absolute(&chunk.name)?;
    let mut wanted = meta(&args)?;
    wanted.mode = args.mode("dir_mode")?.or(wanted.mode);
    let forced = if args.flag("force", false)? {
        not_a_directory(host, &name).await?
    } else {
        None
    };
    let (path, stat) = match &forced {
        Some(_) => (name.clone(), None),
        None => follow(host, &name).await?,
    };
    let Some(stat) = stat else {
        known_owner(host, &wanted).await?;
        let mut effects = parents(host, &path, args.flag("makedirs", false)?, &wanted).await?;
        let mut changes = Map::from_iter([(name.clone(), json!({"directory": "new"}))]);
        if let Some(forced) = forced {
            changes.insert(
                "forced".into(),
                json!(format!("{} was replaced", forced.what)),
            );
            effects.push(forced.effect);
        }
        effects.push(Effect::Mkdir { path, meta: wanted });
        return Ok(Plan::change(
            changes,
            effects,
            format!("The following directories will be created: {name}"),
            format!("Directory {name} updated"),
        ));
    };
    if stat.kind != FileKind::Directory {
        return fail(format!(
            "Specified location {name} exists and is {}",
            kind_name(&stat)
        ));
    }
    let (mut changes, set) = meta_difference(host, &stat, &wanted).await?;
    known_owner(host, &set).await?;
    let mut effects = Vec::new();
    if set != Meta::default() {
        effects.push(Effect::SetMeta {
            path: path.clone(),
            meta: set,
        });
    }
    let remark = below(
        host,
        &args,
        (&name, &path),
        &wanted,
        &mut changes,
        &mut effects,
    )
    .await?;
    if changes.is_empty() {
        return Ok(Plan::nothing(format!(
            "The directory {name} is in the correct state{remark}"
        )));
    }
    Ok(Plan::change(
        changes,
        effects,
        format!("The directory {name} is set to be changed{remark}"),
        format!("Directory {name} updated{remark}"),
    ))
}

/// `recurse` and `clean` of the directory `name`, which is at `path` after links are followed: the
/// changes to all entries below, and a remark about the ones that stay.
async fn below(
    host: &dyn Host,
    args: &Args<'_>,
    (name, path): (&str, &str),
    directory: &Meta,
    changes: &mut Map<String, Value>,
    effects: &mut Vec<Effect>,
) -> Result<String, Failure> {
    let recurse = args.list("recurse")?;
    let clean = args.flag("clean", false)?;
    if recurse.is_empty() && !clean {
        return Ok(String::new());
    }
    if let Some(unknown) = recurse
        .iter()
        .find(|what| !matches!(what.as_str(), "user" | "group" | "mode"))
    {
        return fail(format!(
            "file.directory: `recurse` takes user, group and mode, not `{unknown}`"
        ));
    }
    let on = |what: &str| recurse.iter().any(|r| r == what);
    let found = walk(host, path).await?;
    let (gone, remark) = if clean {
        surplus_below(
            &host.mounts().await?,
            path,
            &found,
            |_| false,
            &Keep::read(args, name)?,
        )
    } else {
        (Vec::new(), String::new())
    };
    let file_mode = args.mode("file_mode")?;
    for (relative, stat) in &found {
        let full = join(path, relative);
        let is_gone = gone.iter().any(|top| {
            full == *top
                || full
                    .strip_prefix(top.as_str())
                    .is_some_and(|rest| rest.starts_with('/'))
        });
        if is_gone || stat.kind == FileKind::Symlink {
            continue;
        }
        let mode = if stat.kind == FileKind::Directory {
            directory.mode
        } else {
            file_mode
        };
        let wanted = Meta {
            user: directory.user.clone().filter(|_| on("user")),
            group: directory.group.clone().filter(|_| on("group")),
            mode: mode.filter(|_| on("mode")),
        };
        let (differs, set) = meta_difference(host, stat, &wanted).await?;
        if !differs.is_empty() {
            changes.insert(full.clone(), Value::Object(differs));
            effects.push(Effect::SetMeta {
                path: full,
                meta: set,
            });
        }
    }
    if !gone.is_empty() {
        changes.insert("removed".into(), json!(gone));
        effects.extend(gone.into_iter().map(|path| Effect::Remove { path }));
    }
    Ok(remark)
}
