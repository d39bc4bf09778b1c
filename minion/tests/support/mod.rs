//! Case files, and the fake hosts that they describe.

mod snapshot;

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use halite_minion::host::effect::{Command, Effect, FirewallSettings};
use halite_minion::host::fake::{FakeHost, Offer};
use halite_minion::host::fake_disk::Node;
use halite_minion::host::{
    FileKind, FirewallView, Group, Host, HostError, MountPoint, PackageManager, UnitState, User,
};
use halite_minion::modules;
use halite_minion::modules::Plan;
use halite_states::low::Chunk;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

pub use snapshot::Snapshot;

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
    /// Asks `watch` instead of `check`.
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
    pub wanted: Wanted,
}

/// What a case expects: an error, changes, or nothing at all (`noop`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    pub error: Option<String>,
    pub changes: Option<Value>,
    #[serde(default)]
    noop: bool,
    pub comment: Option<String>,
    pub done: Option<String>,
    pub effects: Option<Vec<String>>,
    /// Files' texts afterwards; null: not there.
    #[serde(default)]
    then: BTreeMap<String, Option<String>>,
    /// Modes afterwards.
    #[serde(default)]
    modes: BTreeMap<String, String>,
}

impl Wanted {
    pub fn expect(&self, host: &FakeHost) -> Result<(), String> {
        for (path, wanted) in &self.then {
            let found = host.text(path);
            if found != *wanted {
                return Err(format!("{path} holds {found:?}, not {wanted:?}"));
            }
        }
        for (path, wanted) in &self.modes {
            let found = host
                .state()
                .disk
                .stat(path)
                .map(|stat| format!("{:04o}", stat.mode));
            if found.as_ref() != Some(wanted) {
                return Err(format!("{path} has the mode {found:?}, not {wanted}"));
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

/// The host before.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Initial {
    files: BTreeMap<String, File>,
    directories: BTreeMap<String, Owned>,
    links: BTreeMap<String, String>,
    manager: Option<String>,
    packages: BTreeMap<String, String>,
    offered: BTreeMap<String, String>,
    units: BTreeMap<String, String>,
    users: BTreeMap<String, Value>,
    groups: BTreeMap<String, Value>,
    sysctls: BTreeMap<String, String>,
    modules: Vec<String>,
    loadable: Vec<String>,
    mounts: Vec<(String, String, String, String)>,
    swaps: Vec<String>,
    zones: BTreeMap<String, View>,
    policies: BTreeMap<String, View>,
    images: Vec<String>,
    registry: Vec<String>,
    http: BTreeMap<String, Vec<Option<(u16, String)>>>,
    /// Label to text; `blob:@LABEL` stands for it in the arguments.
    blobs: BTreeMap<String, String>,
    /// Label to members of a tar archive: path to (mode, text); a text of null is a directory, `->
    /// x` a link.
    archives: BTreeMap<String, BTreeMap<String, (String, Option<String>)>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum File {
    Text(String),
    Full {
        text: Option<String>,
        base64: Option<String>,
        archive: Option<String>,
        #[serde(flatten)]
        owned: Owned,
    },
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
struct Owned {
    mode: Option<String>,
    user: Option<String>,
    group: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct View {
    permanent: Option<FirewallSettings>,
    runtime: Option<FirewallSettings>,
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
            let wanted = &case.wanted;
            let said = [
                wanted.error.is_some(),
                wanted.changes.is_some(),
                wanted.noop,
            ];
            assert_eq!(
                said.iter().filter(|said| **said).count(),
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

/// The case's chunk, with `@ca:NAME` and `blob:@LABEL` replaced.
pub fn chunk(case: &Case, host: &FakeHost) -> Result<Chunk, String> {
    made(case, host, &case.args)
}

fn made(case: &Case, host: &FakeHost, args: &Map<String, Value>) -> Result<Chunk, String> {
    let mut args = Value::Object(args.clone());
    resolve(&mut args, case, host)?;
    serde_json::from_value(json!({
        "state": case.state, "fun": case.fun, "id": "case", "name": case.name, "sls": "cases",
        "source": {"file": "cases.sls", "line": 1, "column": 1},
        "args": args, "sensitive": case.sensitive,
    }))
    .map_err(|e| e.to_string())
}

fn resolve(value: &mut Value, case: &Case, host: &FakeHost) -> Result<(), String> {
    match value {
        Value::String(text) => {
            if let Some(name) = text.strip_prefix("@ca:") {
                *text = host.state().cas.certificate(name).map_err(|e| e.0)?;
            } else if let Some((prefix, label)) = text
                .split_once('@')
                .filter(|(p, _)| matches!(*p, "blob:" | ""))
            {
                let bytes = match (case.host.blobs.get(label), case.host.archives.get(label)) {
                    (Some(text), _) => text.as_bytes().to_vec(),
                    (_, Some(members)) => tar(members),
                    _ => return Err(format!("there is no blob {label}")),
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

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn tar(members: &BTreeMap<String, (String, Option<String>)>) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, (mode, text)) in members {
        let mut header = tar::Header::new_gnu();
        header.set_mode(u32::from_str_radix(mode, 8).unwrap());
        header.set_size(0);
        let link = text.as_ref().and_then(|text| text.strip_prefix("-> "));
        match (text, link) {
            (None, _) => {
                header.set_entry_type(tar::EntryType::Directory);
                builder
                    .append_data(&mut header, path, std::io::empty())
                    .unwrap();
            }
            (_, Some(target)) => {
                header.set_entry_type(tar::EntryType::Symlink);
                builder.append_link(&mut header, path, target).unwrap();
            }
            (Some(text), None) => {
                header.set_size(text.len() as u64);
                builder
                    .append_data(&mut header, path, text.as_bytes())
                    .unwrap();
            }
        }
    }
    builder.into_inner().unwrap()
}

/// Carries out a plan as the runner does: a failing program ends it.
pub async fn settle(host: &FakeHost, plan: &Plan) -> Result<(), String> {
    for effect in &plan.effects {
        let output = host.perform(effect).await.map_err(|HostError(e)| e)?;
        if output.code != 0 {
            return Err(format!(
                "a program ended with {}: {}",
                output.code, output.stderr
            ));
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
        Effect::Packages { install, remove } => {
            format!("packages +{} -{}", install.len(), remove.len())
        }
        other => format!("{other:?}")
            .split([' ', '(', '{'])
            .next()
            .unwrap_or_default()
            .to_lowercase(),
    }
}

fn node(node: Node, owned: &Owned) -> Node {
    Node {
        mode: owned
            .mode
            .as_ref()
            .map_or(node.mode, |mode| u32::from_str_radix(mode, 8).unwrap()),
        user: owned.user.clone().unwrap_or_else(|| node.user.clone()),
        group: owned.group.clone().unwrap_or_else(|| node.group.clone()),
        ..node
    }
}

/// A fake host in the case's first state.
pub async fn build(case: &Case) -> Result<FakeHost, String> {
    let host = FakeHost::new();
    place(&host, &case.host);
    if let Some(args) = &case.before {
        let chunk = made(case, &host, args)?;
        let function = modules::find(&case.state, &case.fun).ok_or("there is no such function")?;
        let plan = (function.check)(&host, &chunk)
            .await
            .map_err(|e| format!("before: {}", e.0))?;
        settle(&host, &plan)
            .await
            .map_err(|e| format!("before: {e}"))?;
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
            .ok_or(format!("damage: {path} is not there"))?
            .clone();
        let mode = u32::from_str_radix(mode, 8).map_err(|e| e.to_string())?;
        state.disk.put(path, Node { mode, ..old });
    }
    for (path, (from, to)) in &case.damage.replace {
        let old = state
            .disk
            .node(path)
            .ok_or(format!("damage: {path} is not there"))?
            .clone();
        let content = String::from_utf8_lossy(&old.content)
            .replace(from.as_str(), to)
            .into_bytes();
        state.disk.put(path, Node { content, ..old });
    }
    drop(state);
    Ok(host)
}

fn place(host: &FakeHost, initial: &Initial) {
    let mut state = host.state();
    for (path, owned) in &initial.directories {
        state.disk.put(path, node(Node::directory(), owned));
    }
    for (path, file) in &initial.files {
        let (content, owned) = match file {
            File::Text(text) => (text.clone().into_bytes(), Owned::default()),
            File::Full {
                text: Some(text),
                owned,
                ..
            } => (text.clone().into_bytes(), owned.clone()),
            File::Full {
                archive: Some(label),
                owned,
                ..
            } => (tar(&initial.archives[label]), owned.clone()),
            File::Full { base64, owned, .. } => {
                let text = base64.as_deref().unwrap_or_default();
                (
                    base64::engine::general_purpose::STANDARD
                        .decode(text)
                        .unwrap(),
                    owned.clone(),
                )
            }
        };
        state.disk.put(path, node(Node::file(&content), &owned));
    }
    for (path, target) in &initial.links {
        let link = Node {
            kind: FileKind::Symlink,
            mode: 0o777,
            ..Node::file(target.as_bytes())
        };
        state.disk.put(path, link);
    }
    if initial.manager.as_deref() == Some("dnf") {
        state.manager = PackageManager::Dnf;
    }
    state.packages.extend(initial.packages.clone());
    for (name, version) in &initial.offered {
        state.offered.insert(
            name.clone(),
            Offer {
                version: version.clone(),
                ..Offer::default()
            },
        );
    }
    for (name, words) in &initial.units {
        let has = |word: &str| words.split(' ').any(|w| w == word);
        let first = |all: &[&str]| {
            all.iter()
                .find(|w| has(w))
                .copied()
                .unwrap_or_default()
                .to_owned()
        };
        let load = if has("masked") { "masked" } else { "loaded" };
        let unit = UnitState {
            load: load.to_owned(),
            active: first(&["active", "inactive", "failed", "activating"]),
            file: first(&["enabled", "disabled", "static", "masked"]),
            needs_reload: has("changed"),
        };
        state.units.insert(name.clone(), unit);
    }
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap_or_default() as u32;
    let list = |value: &Value, key: &str| -> Vec<String> {
        let items = value[key].as_array().into_iter().flatten();
        items
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect()
    };
    for (name, v) in &initial.users {
        let user = User {
            name: name.clone(),
            uid: number(v, "uid"),
            gid: number(v, "gid"),
            home: text(v, "home"),
            shell: text(v, "shell"),
            gecos: text(v, "gecos"),
            groups: list(v, "groups"),
        };
        state.accounts.users.insert(name.clone(), Some(user));
    }
    for (name, v) in &initial.groups {
        let group = Group {
            name: name.clone(),
            gid: number(v, "gid"),
            members: list(v, "members"),
        };
        state.accounts.groups.insert(name.clone(), Some(group));
    }
    for (key, value) in &initial.sysctls {
        state.put_sysctl(key, value);
    }
    state.modules.extend(initial.modules.iter().cloned());
    state.loadable.extend(initial.loadable.iter().cloned());
    for (device, path, fstype, options) in initial.mounts.iter().cloned() {
        state.mounts.push(MountPoint {
            device,
            path,
            fstype,
            options,
        });
    }
    state.swaps.clone_from(&initial.swaps);
    let view = |v: &View| FirewallView {
        permanent: v.permanent.clone(),
        runtime: v.runtime.clone(),
    };
    state.zones.extend(
        initial
            .zones
            .iter()
            .map(|(name, v)| (name.clone(), view(v))),
    );
    state.policies.extend(
        initial
            .policies
            .iter()
            .map(|(name, v)| (name.clone(), view(v))),
    );
    state.images.extend(initial.images.iter().cloned());
    state.registry.extend(initial.registry.iter().cloned());
    for (url, answers) in &initial.http {
        state
            .http
            .insert(url.clone(), answers.iter().cloned().collect());
    }
    let blobs = initial.blobs.values().map(|text| text.clone().into_bytes());
    for bytes in blobs
        .chain(initial.archives.values().map(tar))
        .collect::<Vec<_>>()
    {
        state.blobs.insert(sha256(&bytes), bytes);
    }
    state.disk.put("/bin/true", Node::file(b""));
    state.hook = Some(|_, command| known(command));
}

/// Commands of `check_cmd`: the verdict is their first word.
fn known(command: &Command) -> Option<halite_minion::host::effect::Output> {
    let line = command.argv.get(2)?;
    let code = match line.split(' ').next()? {
        "accept" => 0,
        "reject" => 1,
        _ => return None,
    };
    Some(halite_minion::host::effect::Output {
        code,
        stderr: "rejected".into(),
        ..Default::default()
    })
}
