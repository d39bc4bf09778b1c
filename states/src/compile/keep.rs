//! Paths that `clean` keeps because states that are required or watched manage them.
//!
//! Salt looks them up on the minion while it cleans (`_gen_keep_files` in `salt/states/file.py`).
//! Here they are in the low state: a state function sees its own call only.

use serde_json::Value;

use super::call::Call;
use crate::low::Chunk;

/// Gives each call that cleans a directory the argument `keep`: full paths, each with everything
/// below it.
pub(super) fn add(calls: &mut [Call]) {
    for at in 0..calls.len() {
        let chunk = &calls[at].chunk;
        if chunk.state != "file" || chunk.args.get("clean") != Some(&Value::Bool(true)) {
            continue;
        }
        let root = chunk.name.trim_end_matches('/');
        let needed = &chunk.requisites;
        let mut keep: Vec<String> = [
            &needed.require,
            &needed.require_any,
            &needed.watch,
            &needed.watch_any,
        ]
        .into_iter()
        .flatten()
        .flat_map(|target| managed(&calls[*target].chunk))
        .filter(|path| is_within(path, root))
        .collect();
        keep.sort();
        keep.dedup();
        if !keep.is_empty() {
            calls[at].chunk.args.insert("keep".into(), keep.into());
        }
    }
}

/// The paths that a call manages: for a call that copies a tree, the copied files.
fn managed(chunk: &Chunk) -> Vec<String> {
    let name = chunk.name.trim_end_matches('/').to_owned();
    match (chunk.state.as_str(), chunk.fun.as_str()) {
        ("file", "recurse") => match chunk.args.get("files").and_then(Value::as_object) {
            Some(files) => files
                .keys()
                .map(|relative| format!("{name}/{relative}"))
                .collect(),
            None => Vec::new(),
        },
        ("x509", "certificate") => {
            let key = match chunk.args.get("key").and_then(Value::as_str) {
                Some(key) => key.to_owned(),
                // The extension is replaced.
                None => match name.rsplit_once('.') {
                    Some((stem, extension)) if !extension.contains('/') => format!("{stem}.key"),
                    _ => format!("{name}.key"),
                },
            };
            vec![name, key]
        }
        ("file" | "archive" | "kubeconfig", _) => vec![name],
        _ => Vec::new(),
    }
}

/// Tests whether a path is `root` or below it.
fn is_within(path: &str, root: &str) -> bool {
    path.strip_prefix(root)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
