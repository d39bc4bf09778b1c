//! Python's functions of paths, which are texts whether or not such a file exists, and the
//! directories of the state tree.

use minijinja::{Error, Value};

use super::super::error::invalid;
use super::super::files::Files;
use super::super::lists::list;
use super::arguments::Arguments;

/// `cp.list_master_dirs(saltenv=None, prefix='')`: the directories of the state tree.
pub(super) fn master_directories(
    files: &Files,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let args = Arguments::bind(name, &["saltenv", "prefix"], args)?;
    let saltenv = args.text("saltenv")?.unwrap_or_default();
    if !matches!(saltenv.as_str(), "" | "base") {
        return Err(invalid(format!(
            "the environment `{saltenv}` does not exist; use `base`"
        )));
    }
    let prefix = match args.optional("prefix") {
        Some(_) => args.required_text("prefix")?,
        None => String::new(),
    };
    Ok(list(
        files
            .directories(prefix.trim_matches('/'))
            .into_iter()
            .map(Value::from),
    ))
}

/// The part behind the last slash.
pub(super) fn basename(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The part before the last slash.
pub(super) fn dirname(path: &str) -> &str {
    let Some(at) = path.rfind('/') else {
        return "";
    };
    let head = &path[..=at];
    match head.trim_end_matches('/') {
        "" => head,
        directory => directory,
    }
}

/// The parts, each below the one before it unless it is absolute.
pub(super) fn join(parts: &[Value]) -> Result<Value, Error> {
    let mut joined = String::new();
    for part in parts {
        let part = part
            .as_str()
            .ok_or_else(|| invalid("salt['file.join'] takes texts"))?;
        if part.starts_with('/') {
            joined.clear();
        } else if !joined.is_empty() && !joined.ends_with('/') {
            joined.push('/');
        }
        joined.push_str(part);
    }
    Ok(joined.into())
}
