//! `cmd.*`

use std::collections::BTreeMap;

use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::args::{Args, scalar};
use super::{Failure, Plan, fail};
use crate::host::Host;
use crate::host::effect::{Command, Effect};

pub(super) async fn run(_host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let line = &chunk.name;
    let shell = args.text("shell")?.unwrap_or_else(|| "/bin/sh".to_owned());
    let command = Command {
        argv: vec![shell, "-c".to_owned(), line.clone()],
        cwd: args.text("cwd")?,
        env: environment(args.any("env"))?,
        stdin: args.text("stdin")?.map(String::into_bytes),
        runas: chunk.controls.runas.clone(),
        timeout: args.number("timeout")?,
        success_retcodes: codes(args.any("success_retcodes"))?,
    };
    let displayed = if chunk.sensitive {
        "<hidden: holds a secret>"
    } else {
        line
    };
    Ok(Plan::change(
        Map::from_iter([("cmd".to_owned(), json!(displayed))]),
        vec![Effect::Run(command)],
        format!("Command \"{displayed}\" would have been executed"),
        format!("Command \"{displayed}\" run"),
    ))
}

/// Plans nothing: only a watched change runs the command.
pub(super) async fn wait(_host: &dyn Host, _chunk: &Chunk) -> Result<Plan, Failure> {
    Ok(Plan::nothing(""))
}

/// A mapping, or a list of mappings.
fn environment(value: Option<&Value>) -> Result<BTreeMap<String, String>, Failure> {
    let maps: Vec<&Map<String, Value>> = match value {
        None => Vec::new(),
        Some(Value::Object(map)) => vec![map],
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_object).collect(),
        Some(_) => return fail("cmd: `env` is a mapping, or a list of mappings"),
    };
    let mut env = BTreeMap::new();
    for (key, value) in maps.into_iter().flatten() {
        match scalar(value) {
            Some(text) => env.insert(key.clone(), text),
            None => return fail(format!("cmd: `env`: {key} must be a text")),
        };
    }
    Ok(env)
}

fn codes(value: Option<&Value>) -> Result<Vec<i32>, Failure> {
    let items = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items.iter().collect(),
        Some(one) => vec![one],
    };
    let codes = items
        .into_iter()
        .map(|v| v.as_i64().and_then(|n| i32::try_from(n).ok()))
        .collect::<Option<_>>();
    match codes {
        Some(codes) => Ok(codes),
        None => fail("cmd: `success_retcodes` is an exit code, or a list of exit codes"),
    }
}
