//! `cmd.*`, and the environment of every command of a state.

use std::collections::BTreeMap;

use halite_states::args::{Args, scalar};
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::paths::follow;
use super::{Failure, Plan, fail};
use crate::host::effect::{Command, Effect, PATH};
use crate::host::{FileKind, Host};

/// Permission bits that new files of a command do not get. The minion's own umask is for its files,
/// which are root's alone.
pub(crate) const UMASK: u32 = 0o022;

pub(super) async fn run(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let line = &chunk.name;
    let command = Command {
        stdin: args.text("stdin")?.map(String::into_bytes),
        ..shell(host, chunk, line).await?
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

/// A shell command of a state: a `cmd.*` command, or one of the state's conditions, which run like
/// the command itself (`_run_check` in `salt/state.py`).
///
/// Only `cmd.*` has arguments for it. Salt also takes arguments with another meaning, such as the
/// `shell` of `user.present`.
pub(crate) async fn shell(host: &dyn Host, chunk: &Chunk, line: &str) -> Result<Command, Failure> {
    let args = Args::new(chunk);
    let runas = chunk.controls.runas.clone();
    let own = chunk.state == "cmd";
    let text = |key: &str| if own { args.text(key) } else { Ok(None) };
    let mut env = environment(args.any("env").filter(|_| own))?;
    let home = home(host, runas.as_deref(), &mut env).await?;
    if let Some(first) = text("prepend_path")? {
        let path = env
            .entry("PATH".to_owned())
            .or_insert_with(|| PATH.to_owned());
        *path = format!("{first}:{path}");
    }
    let shell = text("shell")?.unwrap_or_else(|| "/bin/sh".to_owned());
    Ok(Command {
        argv: vec![shell, "-c".to_owned(), line.to_owned()],
        cwd: text("cwd")?.or(home),
        env,
        stdin: None,
        runas,
        timeout: if own { args.number("timeout")? } else { None },
        success_retcodes: codes(args.any("success_retcodes").filter(|_| own))?,
        umask: Some(if own { args.mode("umask")? } else { None }.unwrap_or(UMASK)),
    })
}

/// The home of the user that runs the command, if it is a directory. `env` gets the variables that
/// name the user, unless the state gives them.
async fn home(
    host: &dyn Host,
    runas: Option<&str>,
    env: &mut BTreeMap<String, String>,
) -> Result<Option<String>, Failure> {
    let name = runas.unwrap_or("root");
    let Some(user) = host.user(name).await? else {
        // An earlier state of this plan may create it.
        return match runas {
            Some(name) if !host.uncertain() => fail(format!("User {name} is not available")),
            _ => Ok(None),
        };
    };
    for (variable, value) in [
        ("HOME", &user.home),
        ("USER", &user.name),
        ("LOGNAME", &user.name),
    ] {
        env.entry(variable.to_owned())
            .or_insert_with(|| value.clone());
    }
    if !user.home.starts_with('/') {
        return Ok(None);
    }
    let (_, stat) = follow(host, &user.home).await?;
    let is_there = stat.is_some_and(|stat| stat.kind == FileKind::Directory);
    Ok(is_there.then_some(user.home))
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
