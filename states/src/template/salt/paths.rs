//! Python's functions of paths: texts, whether or not such a file exists.

use minijinja::{Error, Value};

use super::super::error::invalid;

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
