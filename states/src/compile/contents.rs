//! Contents of files that are not in the tree: of the pillar, and those that are templates.

use std::collections::BTreeMap;

use halite_document::Problem;
use halite_secrets::reference;
use serde_json::{Value, json};

use super::call::Call;
use crate::serialized::{Data, JsonForm, YamlForm};
use crate::template::{Purpose, Renderer, Rendering};

/// Reads the pillar as a template does, so that the call is compiled again for a minion with
/// another pillar.
const READ: &str =
    "{{ [salt['pillar.get'](__place, none, delimiter=__delimiter)] | json(sort_keys=False) }}";

/// Puts the contents that `contents_pillar` names into the call.
///
/// # Errors
/// The pillar has no such place, or no text there.
pub(super) fn from_pillar(
    renderer: &Renderer,
    call: &mut Call,
    renderings: &mut Vec<Rendering>,
) -> Result<(), Box<Problem>> {
    let delimiter = call.chunk.args.remove("contents_delimiter");
    let delimiter = delimiter.unwrap_or_else(|| json!(":"));
    let Some(Value::Array(places)) = call.chunk.args.remove("contents_pillar") else {
        return Ok(());
    };
    let fail = |message: String| Box::new(Problem::at(&call.source_argument, message));
    let others = ["source", "contents"];
    if let Some(other) = others
        .iter()
        .find(|name| call.chunk.args.contains_key(**name))
    {
        return Err(fail(format!(
            "`{other}` and `contents_pillar` exclude each other"
        )));
    }
    let mut parts = Vec::new();
    for place in &places {
        let found = read_pillar(renderer, call, place, &delimiter, renderings)?;
        let place = place.as_str().unwrap_or_default();
        let text = text(&found).ok_or_else(|| {
            let found = match found {
                Value::Null => "nothing",
                _ => "no text",
            };
            let message = format!("the pillar has {found} at `{place}`");
            Box::new(Problem::at(&call.source_argument, message))
        })?;
        parts.push(text);
    }
    call.chunk
        .args
        .insert("contents".into(), json!(parts.join("\n")));
    Ok(())
}

/// The value at a place of the pillar; null if there is none.
fn read_pillar(
    renderer: &Renderer,
    call: &mut Call,
    place: &Value,
    delimiter: &Value,
    renderings: &mut Vec<Rendering>,
) -> Result<Value, Box<Problem>> {
    let variables = BTreeMap::from([
        ("__place".to_owned(), place.clone()),
        ("__delimiter".to_owned(), delimiter.clone()),
    ]);
    let rendering = renderer.rendering_text(Purpose::Sls, READ, &variables)?;
    let found: Vec<Value> = serde_json::from_str(&rendering.rendered().text).unwrap_or_default();
    for path in &rendering.rendered().pillar {
        if !call.provenance.pillar.contains(path) {
            call.provenance.pillar.push(path.clone());
        }
    }
    renderings.push(rendering);
    Ok(found.into_iter().next().unwrap_or_default())
}

/// Puts the data of `file.serialize` into the call as contents.
///
/// # Errors
/// The call has no data, the data have a secret, or they cannot be written as Salt does.
pub(super) fn serialize(
    renderer: &Renderer,
    call: &mut Call,
    renderings: &mut Vec<Rendering>,
) -> Result<(), Box<Problem>> {
    let dataset = call.chunk.args.remove("dataset");
    let data = match (dataset, call.chunk.args.remove("dataset_pillar")) {
        (Some(data), None) => data,
        (None, Some(place)) => read_pillar(renderer, call, &place, &json!(":"), renderings)?,
        _ => Value::Null,
    };
    let names = ["serializer", "formatter"];
    let given: Vec<Value> = names
        .iter()
        .filter_map(|name| call.chunk.args.remove(*name))
        .collect();
    let position = &call.chunk.source;
    let fail = |message: String| Problem::at(position, format!("file.serialize: {message}"));
    if data.is_null() {
        return Err(Box::new(fail(
            "the data are missing; give either `dataset` or `dataset_pillar`".to_owned(),
        )));
    }
    if reference::is_in(&data) {
        return Err(Box::new(fail("the data have a secret".to_owned()).hint(
            "the text is finished before the secret is put in; use file.managed with a template",
        )));
    }
    let form = match given.as_slice() {
        [] => "yaml".to_owned(),
        [Value::String(name)] => name.to_ascii_lowercase(),
        _ => String::new(),
    };
    let data = Data::from_json(&data);
    let written = match form.as_str() {
        "yaml" => data.and_then(|data| YamlForm::block().write(&data)),
        "json" => {
            let form = JsonForm {
                indent: Some("  ".to_owned()),
                sort_keys: true,
                ..JsonForm::default()
            };
            data.and_then(|data| form.write(&data))
        }
        _ => {
            return Err(Box::new(fail(
                "give one of `serializer` and `formatter`: `yaml` or `json`".to_owned(),
            )));
        }
    };
    let text = written.map_err(|error| {
        Box::new(
            fail(format!(
                "cannot write the data exactly as Salt does: they have {error}"
            ))
            .hint("use file.managed with `contents`, and the filter `yaml` or `json`"),
        )
    })?;
    call.chunk
        .args
        .insert("contents".into(), json!(text + "\n"));
    Ok(())
}

/// A text, or lines.
fn text(value: &Value) -> Option<String> {
    let line = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_i64() => Some(number.to_string()),
        _ => None,
    };
    match value {
        Value::Array(items) => {
            let lines: Option<Vec<String>> = items.iter().map(line).collect();
            lines.map(|lines| lines.join("\n"))
        }
        other => line(other),
    }
}

/// Renders contents as a template, with `defaults` and `context` as variables.
///
/// # Errors
/// The template's.
pub(super) fn render(
    renderer: &Renderer,
    call: &mut Call,
    renderings: &mut Vec<Rendering>,
) -> Result<(), Box<Problem>> {
    let args = &mut call.chunk.args;
    let flag = args.get("contents_newline").and_then(Value::as_bool);
    let contents = args.get("contents").and_then(Value::as_str).unwrap_or("");
    // The ends of lines are Salt's before it renders the text.
    let mut text: String = contents
        .lines()
        .flat_map(|line| [line.trim_end_matches('\r'), "\n"])
        .collect();
    if flag == Some(false) {
        text.truncate(text.trim_end_matches(['\n', '\r']).len());
    }
    let mut variables = BTreeMap::new();
    for name in ["defaults", "context"] {
        if let Some(Value::Object(given)) = args.remove(name) {
            variables.extend(given);
        }
    }
    args.remove("template");
    let rendering = renderer
        .rendering_text(Purpose::File, &text, &variables)
        .map_err(|problem| {
            Problem::at(
                &call.chunk.source,
                format!("cannot render the contents: {}", problem.message),
            )
            .hint(problem.hint)
        })?;
    let rendered = rendering.rendered().clone();
    renderings.push(rendering);
    for path in &rendered.pillar {
        if !call.provenance.pillar.contains(path) {
            call.provenance.pillar.push(path.clone());
        }
    }
    for file in rendered.files.iter().skip(1) {
        if !call.provenance.files.contains(file) {
            call.provenance.files.push(file.clone());
        }
    }
    let newline = rendered.text.is_empty() || rendered.text.ends_with('\n');
    let args = &mut call.chunk.args;
    args.insert("contents".into(), json!(rendered.text));
    args.insert("contents_newline".into(), json!(newline));
    Ok(())
}
