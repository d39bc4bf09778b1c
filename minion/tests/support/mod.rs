//! Case files, and the fake hosts that they describe.

mod initial;
mod snapshot;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use halite_durable::digest::sha256;
use halite_minion::host::Host as _;
use halite_minion::host::effect::{Command, Effect};
use halite_minion::modules;
use halite_minion::modules::Plan;
use halite_minion_fake::FakeHost;
use halite_minion_fake::disk::Node;
use halite_states::low::Chunk;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::initial::{Initial, set_up, tar};

pub use self::snapshot::Snapshot;

/// One case file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    #[serde(skip)]
    pub label: String,
    #[serde(skip)]
    pub state: String,
    #[serde(skip)]
    pub fun: String,
    pub name: String,
    #[serde(default)]
    pub args: Map<String, Value>,
    #[serde(default)]
    sensitive: bool,
    /// Uses `watch` instead of `check`.
    #[serde(default)]
    pub watch: bool,
    #[serde(default)]
    host: Initial,
    /// Arguments of the same function that are applied first.
    before: Option<Map<String, Value>>,
    /// Files to remove, and days to pass, after that.
    #[serde(default)]
    damage: Damage,
    #[serde(rename = "expect")]
    pub expected: Expected,
}

impl Case {
    /// The texts of its files at the start, by path.
    pub fn texts(&self) -> Vec<(&str, &str)> {
        let files = self.host.files.iter();
        files
            .filter_map(|(path, file)| Some((path.as_str(), file.text()?)))
            .collect()
    }
}

/// The outcome that a case expects: an error, changes, or neither (`noop`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    pub error: Option<String>,
    /// A text in the error of the apply; `then` holds after it.
    pub fails: Option<String>,
    pub changes: Option<Value>,
    #[serde(default)]
    noop: bool,
    pub comment: Option<String>,
    pub done: Option<String>,
    pub effects: Option<Vec<String>>,
    /// Files' texts afterwards; null: absent.
    #[serde(default)]
    then: BTreeMap<String, Option<String>>,
    /// Modes afterwards.
    #[serde(default)]
    modes: BTreeMap<String, String>,
}

impl Expected {
    pub fn expect(&self, host: &FakeHost) -> anyhow::Result<()> {
        for (path, wanted) in &self.then {
            let found = host.text(path);
            if found != *wanted {
                bail!("{path} holds {found:?}, not {wanted:?}");
            }
        }
        for (path, wanted) in &self.modes {
            let found = host
                .state()
                .disk
                .stat(path)
                .map(|stat| format!("{:04o}", stat.mode));
            if found.as_ref() != Some(wanted) {
                bail!("{path} has the mode {found:?}, not {wanted}");
            }
        }
        Ok(())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Damage {
    remove: Vec<String>,
    days: i64,
    mode: BTreeMap<String, String>,
    replace: BTreeMap<String, (String, String)>,
}

/// All cases below `root`, `MODULE.FUNCTION/CASE.json`.
pub fn cases(root: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for function in sorted(root) {
        let full = function.file_name().unwrap().to_string_lossy().into_owned();
        let (state, fun) = full
            .split_once('.')
            .expect("a folder is named module.function");
        for path in sorted(&function) {
            let text = std::fs::read_to_string(&path).unwrap();
            let label = format!("{full}/{}", path.file_stem().unwrap().to_string_lossy());
            let mut case: Case =
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{label}: {e}"));
            let expected = &case.expected;
            let given = [
                expected.error.is_some(),
                expected.changes.is_some(),
                expected.noop,
            ];
            assert_eq!(
                given.iter().filter(|given| **given).count(),
                1,
                "{label}: one of error, changes, noop"
            );
            (case.label, case.state, case.fun) = (label, state.to_owned(), fun.to_owned());
            cases.push(case);
        }
    }
    cases
}

fn sorted(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
}

/// The case's chunk, with `@ca:NAME`, `@ca:NAME+NAME` and `blob:@LABEL` replaced.
pub fn chunk(case: &Case, host: &FakeHost) -> anyhow::Result<Chunk> {
    chunk_with(case, host, &case.args)
}

fn chunk_with(case: &Case, host: &FakeHost, args: &Map<String, Value>) -> anyhow::Result<Chunk> {
    let mut args = Value::Object(args.clone());
    resolve(&mut args, case, host)?;
    serde_json::from_value(json!({
        "state": case.state, "fun": case.fun, "id": "case", "name": case.name, "sls": "cases",
        "source": {"file": "cases.sls", "line": 1, "column": 1},
        "args": args, "sensitive": case.sensitive,
    }))
    .map_err(anyhow::Error::from)
}

fn resolve(value: &mut Value, case: &Case, host: &FakeHost) -> anyhow::Result<()> {
    match value {
        Value::String(text) => {
            if let Some(name) = text.strip_prefix("@ca:") {
                // Several, as in a CA's file while it is rotated.
                let names = name.split('+');
                let all = names.map(|name| host.state().cas.certificate(name));
                *text = all.collect::<Result<String, _>>()?;
            } else if let Some((prefix, label)) = text
                .split_once('@')
                .filter(|(p, _)| matches!(*p, "blob:" | ""))
            {
                let bytes = match (case.host.blobs.get(label), case.host.archives.get(label)) {
                    (Some(text), _) => text.as_bytes().to_vec(),
                    (_, Some(members)) => tar(members),
                    _ => bail!("there is no blob {label}"),
                };
                *text = format!("{prefix}{}", sha256(&bytes));
            }
            Ok(())
        }
        Value::Array(items) => items
            .iter_mut()
            .try_for_each(|item| resolve(item, case, host)),
        Value::Object(map) => map
            .values_mut()
            .try_for_each(|item| resolve(item, case, host)),
        _ => Ok(()),
    }
}

/// Carries out a plan like the runner: a failing program ends it.
pub async fn carry_out(host: &FakeHost, plan: &Plan) -> anyhow::Result<()> {
    for effect in &plan.effects {
        let output = host.perform(effect).await?;
        if output.code != 0 {
            bail!("a program ended with {}: {}", output.code, output.stderr);
        }
    }
    Ok(())
}

/// An effect in a few words.
pub fn summary(effect: &Effect) -> String {
    match effect {
        Effect::Write { path, .. } => format!("write {path}"),
        Effect::Mkdir { path, .. } => format!("mkdir {path}"),
        Effect::Symlink { path, .. } => format!("symlink {path}"),
        Effect::SetMeta { path, .. } => format!("meta {path}"),
        Effect::Remove { path } => format!("remove {path}"),
        Effect::Unit { name, action } => format!("{action:?} {name}").to_lowercase(),
        Effect::Run(Command { argv, .. }) => argv.join(" "),
        Effect::Packages {
            install, remove, ..
        } => {
            format!("packages +{} -{}", install.len(), remove.len())
        }
        other => format!("{other:?}")
            .split([' ', '(', '{'])
            .next()
            .unwrap_or_default()
            .to_lowercase(),
    }
}

/// A fake host in the case's initial state.
pub async fn build(case: &Case) -> anyhow::Result<FakeHost> {
    let host = FakeHost::new();
    set_up(&host, &case.host);
    if let Some(args) = &case.before {
        let chunk = chunk_with(case, &host, args)?;
        let function =
            modules::find(&case.state, &case.fun).context("there is no such function")?;
        let plan = (function.check)(&host, &chunk).await.context("before")?;
        carry_out(&host, &plan).await.context("before")?;
    }
    let mut state = host.state();
    state.clock += case.damage.days * 86_400_000;
    for path in &case.damage.remove {
        state.disk.take(path);
    }
    for (path, mode) in &case.damage.mode {
        let old = state
            .disk
            .node(path)
            .with_context(|| format!("damage: {path} is not there"))?
            .clone();
        let mode = u32::from_str_radix(mode, 8)?;
        state.disk.put(path, Node { mode, ..old });
    }
    for (path, (from, to)) in &case.damage.replace {
        let old = state
            .disk
            .node(path)
            .with_context(|| format!("damage: {path} is not there"))?
            .clone();
        let content = String::from_utf8_lossy(&old.content)
            .replace(from.as_str(), to)
            .into_bytes();
        state.disk.put(path, Node { content, ..old });
    }
    drop(state);
    Ok(host)
}
