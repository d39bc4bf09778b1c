//! Reads a chunk's arguments, and runs the trivial states.

use halite_states::args::Args;
use halite_states::engine::{Checked, Failure};
use halite_states::low::Chunk;
use serde_json::{Map, Value};

use super::operation::Operation;

/// Replaces each `kind: List` with its members.
pub(super) fn flattened(documents: Vec<Value>) -> Vec<Value> {
    let mut flat = Vec::with_capacity(documents.len());
    for document in documents {
        let is_list = document
            .get("kind")
            .and_then(Value::as_str)
            .is_some_and(|kind| kind.ends_with("List"));
        match document.get("items").and_then(Value::as_array) {
            Some(items) if is_list => flat.extend(items.iter().cloned()),
            _ if document.is_null() => {}
            _ => flat.push(document),
        }
    }
    flat
}

pub(super) fn check_test(chunk: &Chunk, fun: &str) -> Result<Checked<Vec<Operation>>, Failure> {
    let comment = Args::new(chunk)
        .text("comment")?
        .unwrap_or_else(|| "Success!".into());
    match fun {
        "nop" | "succeed_without_changes" | "show_notification" => Ok(Checked {
            comment: Args::new(chunk).text("text")?.unwrap_or(comment),
            ..Checked::default()
        }),
        "succeed_with_changes" => Ok(Checked {
            changes: Map::from_iter([(
                "testing".to_owned(),
                serde_json::json!({"old": "Unchanged", "new": "Something pretended to change"}),
            )]),
            comment,
            diff: Vec::new(),
        }),
        "fail_without_changes" => Err(Failure::new(
            Args::new(chunk)
                .text("comment")?
                .unwrap_or_else(|| "Failure!".into()),
        )),
        _ => Err(Failure::new(format!(
            "{} is not available on the target `master`",
            chunk.function()
        ))),
    }
}
