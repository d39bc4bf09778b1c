//! Lists of sources: the first that exists, as Salt's `file.source_list` chooses it.

use halite_document::Problem;
use serde_json::Value;

use super::call::Call;
use super::input::Input;
use crate::template::Renderer;

/// The source of a call: the one that it has, or the first of a list that the state tree or the
/// bundle has; `None` without a source.
///
/// # Errors
/// None of the list exists, or only the host knows whether one does.
pub(super) fn source(
    input: &Input,
    renderer: &Renderer,
    call: &Call,
) -> Result<Option<String>, Box<Problem>> {
    let items = match call.chunk.args.get("source") {
        Some(Value::Array(items)) => items,
        Some(Value::String(text)) => return Ok(Some(text.clone())),
        _ => return Ok(None),
    };
    let fail = |message: String, hint: &str| {
        Box::new(Problem::at(&call.source_argument, message).hint(hint))
    };
    let texts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    for text in &texts {
        let exists = if let Some(path) = text.strip_prefix("salt://") {
            renderer.has(path)
        } else if let Some(path) = text.strip_prefix("bundle://") {
            (input.bundle)(path).is_some()
        } else {
            return Err(fail(
                format!("`{text}` in a list of sources: only the host knows whether it exists"),
                "a list takes `salt://path` and `bundle://path`; nothing is downloaded",
            ));
        };
        if exists {
            return Ok(Some((*text).to_owned()));
        }
    }
    Err(fail(
        format!("none of the sources exists: {}", texts.join(", ")),
        "add one of them to the state tree",
    ))
}
