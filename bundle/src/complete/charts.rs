//! What the charts of a bundle name. They are rendered, so all that is left is to read them.

use std::{fs, path::Path};

use serde_json::{Map, Value, json};

use super::{Rendering, State};
use crate::{chart, error::Error, manifest::Manifest};

/// Everything that the charts of the bundle in a directory name, each object with the file of the chart that made it.
///
/// # Errors
/// When one of them is there and cannot be read.
pub fn charts(directory: &Path, manifest: &Manifest) -> Result<Rendering, Error> {
    let mut rendering = Rendering { options: "whoever installs it".to_owned(), ..Rendering::default() };
    for name in manifest.charts.keys() {
        let place = chart::place(name);
        let state = |file: &str, line: u32, args: Value| State {
            file: file.to_owned(),
            line,
            function: FUNCTION.to_owned(),
            name: name.clone(),
            args: match args {
                Value::Object(args) => args,
                _ => Map::new(),
            },
        };
        rendering.states.push(state(&place, 0, json!({"source": format!("bundle://{place}")})));
        let path = directory.join(&place);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            // That it is not there is found like everything else that is missing.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::file("read", path)(error)),
        };
        for document in chart::split(&text) {
            let object: Value = serde_saphyr::from_str(&document.text)
                .map_err(|error| Error::content(&path, format!("line {}: {error}", document.line)))?;
            let (file, line) = match &document.source {
                Some(source) => (source.as_str(), 0),
                None => (place.as_str(), document.line),
            };
            rendering.states.push(state(file, line, json!({"documents": [object]})));
        }
    }
    Ok(rendering)
}

/// What stands for a state function in the places that charts name.
pub(super) const FUNCTION: &str = "chart";
