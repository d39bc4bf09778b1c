//! `file.managed`

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::json;

use super::content::{ContentSource, Difference, FileSpec, difference};
use crate::host::Host;
use crate::host::effect::{Command, Effect, Meta};
use crate::modules::paths::{absolute, follow, parent, parents};
use crate::modules::replace::not_a_file_itself;
use crate::modules::{Failure, Plan, fail, meta};

pub(in crate::modules) async fn managed(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let name = absolute(&chunk.name)?;
    let forced = if args.flag("force", false)? {
        not_a_file_itself(host, &name).await?
    } else {
        None
    };
    let (path, stat) = match &forced {
        Some(_) => (name.clone(), None),
        None => follow(host, &name).await?,
    };
    if stat.is_none() && !args.flag("create", true)? {
        return Ok(Plan::nothing(format!(
            "File {name} is not present and is not set for creation"
        )));
    }
    let mut spec = FileSpec {
        source: source(&args)?,
        meta: meta(&args)?,
        show: args.show()?,
    };
    if stat.is_some() && !args.flag("replace", true)? {
        spec.source = None;
    }
    let Difference {
        mut changes,
        mut effects,
    } = difference(host, &path, stat.as_ref(), &spec).await?;
    if changes.is_empty() {
        return Ok(Plan::nothing(format!(
            "File {name} is in the correct state"
        )));
    }
    if let Some(command) = args.text("check_cmd")? {
        effects = check_first(effects, &command);
    }
    let new_directory = Meta {
        mode: args.mode("dir_mode")?,
        ..spec.meta
    };
    let mut all = parents(host, &path, args.flag("makedirs", false)?, &new_directory).await?;
    if let Some(forced) = forced {
        changes.insert(
            "forced".into(),
            json!(format!("{} was replaced", forced.what)),
        );
        // The old entry stays until `check_cmd` has accepted the new content.
        let write = |effect: &Effect| matches!(effect, Effect::Write { .. });
        let last = effects.iter().rposition(write).unwrap_or_default();
        effects.insert(last, forced.effect);
    }
    all.append(&mut effects);
    Ok(Plan::change(
        changes,
        all,
        format!("The file {name} is set to be changed"),
        format!("File {name} updated"),
    ))
}

/// The required content, from `contents` or `source`.
fn source(args: &Args<'_>) -> Result<Option<ContentSource>, Failure> {
    match (args.text("contents")?, args.text("source")?) {
        (Some(_), Some(_)) => fail("file.managed: `contents` and `source` exclude each other"),
        (Some(mut contents), None) => {
            if !args.flag("contents_newline", true)? {
                contents.truncate(contents.trim_end_matches(['\n', '\r']).len());
            } else if !contents.is_empty() && !contents.ends_with('\n') {
                contents.push('\n');
            }
            Ok(Some(ContentSource::Bytes(contents.into_bytes())))
        }
        (None, Some(source)) => Ok(Some(ContentSource::parse(&source)?)),
        (None, None) => Ok(None),
    }
}

/// Runs `command` on the new content, in a temporary file in the target's directory, before the
/// target is touched: if the command fails, the apply ends there. Each step may be interrupted; the
/// next check starts over and uses the same temporary file.
fn check_first(effects: Vec<Effect>, command: &str) -> Vec<Effect> {
    let mut all = Vec::new();
    for effect in effects {
        if let Effect::Write {
            path,
            content,
            meta,
        } = &effect
        {
            let name = path.rsplit('/').next().unwrap_or_default();
            let temporary = format!(
                "{}/.{name}.halite-check",
                parent(path).trim_end_matches('/')
            );
            let private = Meta {
                mode: Some(0o600),
                ..meta.clone()
            };
            all.push(Effect::Write {
                path: temporary.clone(),
                content: content.clone(),
                meta: private,
            });
            // `$0` is the temporary file; it is removed in both cases.
            let line = format!("{command} \"$0\"; code=$?; rm -f \"$0\"; exit $code");
            all.push(Effect::Run(Command {
                argv: vec!["/bin/sh".into(), "-c".into(), line, temporary.clone()],
                ..Command::default()
            }));
            all.push(Effect::Remove { path: temporary });
        }
        all.push(effect);
    }
    all
}
