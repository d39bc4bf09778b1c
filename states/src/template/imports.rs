//! Imports: which variables an imported file sees, and files that are imported as data.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::{Environment, Error, ErrorKind, State, Value};
use serde_json::Value as Json;

use super::error::{caused, invalid};
use super::lines;
use super::values::{from_json, from_node};

/// The name under which a template finds the variables that it was rendered with.
pub(super) const VARIABLES: &str = "__variables";

/// Set at the start of a file that is imported without context.
const ISOLATED: &str = "isolated";

/// Names that a file has of its own, or that the engine gives it.
const OWN: &[&str] = &[
    "__isolated",
    "caller",
    "loop",
    "self",
    "super",
    "tpldir",
    "tplfile",
    "tplpath",
];

/// Adds the functions that rewritten tags call.
pub(super) fn add(env: &mut Environment<'static>) {
    let names = NamesUsed::default();
    env.add_function(
        "__isolate",
        move |state: &mut State, file: &Value| -> Result<Value, Error> {
            isolate(state, file, &names)?;
            Ok(file.clone())
        },
    );
    env.add_function("__take_isolated", |state: &mut State| {
        let isolated = state.set_temp(ISOLATED, Value::from(false));
        isolated.is_some_and(|isolated| isolated.is_true())
    });
    env.add_function(
        "__parse_yaml",
        |text: &Value, file: &Value| -> Result<Value, Error> {
            let (text, file) = (lines::strip(&text.to_string()), file.to_string());
            let node = halite_secrets::yaml::parse(&file, &text)
                .map_err(|problem| caused(format!("`{file}` is not YAML"), problem))?;
            Ok(from_node(&node))
        },
    );
    env.add_function(
        "__parse_json",
        |text: &Value, file: &Value| -> Result<Value, Error> {
            let json: Json = serde_json::from_str(&lines::strip(&text.to_string()))
                .map_err(|error| caused(format!("`{file}` is not JSON"), error))?;
            Ok(from_json(&json))
        },
    );
    env.add_function("__parse_text", |text: &Value, _: &Value| {
        lines::strip(&text.to_string())
    });
}

/// For each file the names that it uses and does not set itself.
#[derive(Default)]
struct NamesUsed(Mutex<HashMap<String, Arc<[String]>>>);

impl NamesUsed {
    fn of(&self, state: &State, file: &str) -> Result<Arc<[String]>, Error> {
        let template = state.get_template(file)?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used = known.entry(template.name().to_owned()).or_insert_with(|| {
            let mut used: Vec<String> = template.undeclared_variables(false).into_iter().collect();
            used.sort_unstable();
            used.into()
        });
        Ok(used.clone())
    }
}

/// Prepares the import of a file without context. The engine lets every imported file see the
/// variables of the importing one; a file that would use one of them is refused.
fn isolate(state: &mut State, file: &Value, names: &NamesUsed) -> Result<(), Error> {
    let Some(path) = file.as_str() else {
        return Err(invalid(
            "only a single file can be imported or included `without context`",
        ));
    };
    let used = match names.of(state, path) {
        Ok(used) => used,
        // The tag itself reports it, or ignores that it is missing.
        Err(error) if error.kind() == ErrorKind::TemplateNotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let variables = state.lookup(VARIABLES).unwrap_or_default();
    for name in used.iter().filter(|name| !OWN.contains(&name.as_str())) {
        let Some(value) = state.lookup(name).filter(|value| !value.is_undefined()) else {
            continue;
        };
        let global = state
            .env()
            .globals()
            .any(|(global, known)| global == name && known == value);
        let given = variables
            .get_attr(name)
            .is_ok_and(|given| !given.is_undefined() && given == value);
        if !global && !given {
            return Err(invalid(format!(
                "`{path}` uses `{name}`, which only an import `with context` can see"
            )));
        }
    }
    state.set_temp(ISOLATED, Value::from(true));
    Ok(())
}
