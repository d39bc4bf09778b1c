//! `file.copy`: a copy of a file that is on the host.

use halite_states::args::{Args, Show};
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::content::{ContentSource, Difference, FileSpec, difference};
use crate::host::effect::Meta;
use crate::host::{FileKind, Host, Stat};
use crate::modules::paths::{absolute, follow, join, parents};
use crate::modules::replace::{kind_name, not_a_file_itself};
use crate::modules::{Failure, Plan, fail, meta};

pub(in crate::modules) async fn copy(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let mut name = absolute(&chunk.name)?;
    let source = absolute(&args.required("source")?)?;
    let (from, found) = follow(host, &source).await?;
    match &found {
        Some(stat) if stat.kind == FileKind::File => {}
        Some(stat) => {
            return fail(format!(
                "{source} is {}; file.copy copies single files",
                kind_name(stat)
            ));
        }
        None if host.uncertain() => {}
        None => return fail(format!("Source file \"{source}\" is not present")),
    }
    let is_directory = |stat: &Stat| stat.kind == FileKind::Directory;
    if args.flag("subdir", false)?
        && follow(host, &name)
            .await?
            .1
            .as_ref()
            .is_some_and(is_directory)
    {
        name = join(&name, source.rsplit('/').next().unwrap_or_default());
    }
    let force = args.flag("force", false)?;
    if !force && host.stat(&name).await?.is_some() {
        return Ok(Plan::nothing(format!(
            "The target file \"{name}\" exists and will not be overwritten"
        )));
    }
    let (source_content, source_stat) = match found {
        Some(stat) => (ContentSource::Path(from), Some(stat)),
        // An earlier effect of the plan may make it.
        None => (ContentSource::Bytes(Vec::new()), None),
    };
    let spec = FileSpec {
        source: Some(source_content),
        meta: wanted(host, &args, source_stat.as_ref()).await?,
        show: Show::No,
    };
    // As with Salt, a link is replaced and not followed.
    let removal = not_a_file_itself(host, &name).await?;
    let stat = match &removal {
        Some(_) => None,
        None => host.stat(&name).await?,
    };
    let Difference { changes, effects } = difference(host, &name, stat.as_ref(), &spec).await?;
    if changes.is_empty() {
        return Ok(Plan::nothing(format!(
            "File \"{name}\" is a copy of \"{source}\""
        )));
    }
    let mut all = parents(host, &name, args.flag("makedirs", false)?, &Meta::default()).await?;
    all.extend(removal.map(|removal| removal.effect));
    all.extend(effects);
    Ok(Plan::change(
        Map::from_iter([(name.clone(), json!(source))]),
        all,
        format!("File \"{source}\" is set to be copied to \"{name}\""),
        format!("Copied \"{source}\" to \"{name}\""),
    ))
}

/// Owner, group and mode of the copy: those of the source with `preserve`; otherwise the given
/// ones, root, its group, and the mode of the source.
async fn wanted(host: &dyn Host, args: &Args<'_>, source: Option<&Stat>) -> Result<Meta, Failure> {
    if args.flag("preserve", false)? {
        return Ok(Meta {
            user: source.map(|stat| stat.user.clone()),
            group: source.map(|stat| stat.group.clone()),
            mode: source.map(|stat| stat.mode),
        });
    }
    let given = meta(args)?;
    let user = given.user.unwrap_or_else(|| "root".to_owned());
    let group = match given.group {
        Some(group) => group,
        // The user's own group, by its number.
        None => match host.user(&user).await? {
            Some(known) if user != "root" => known.gid.to_string(),
            _ => "root".to_owned(),
        },
    };
    Ok(Meta {
        user: Some(user),
        group: Some(group),
        mode: given.mode.or(source.map(|stat| stat.mode)),
    })
}
