//! The initial state of a fake host, as a case file describes it.

use std::collections::BTreeMap;

use base64::Engine as _;
use halite_durable::digest::sha256;
use halite_minion::host::effect::{Command, FirewallSettings, IpsetSettings, Output};
use halite_minion::host::{
    FileKind, FirewallView, Group, IpsetView, MountPoint, PackageManager, UnitState, User,
};
use halite_minion_fake::disk::Node;
use halite_minion_fake::{FakeHost, FakeState, Offer};
use serde::Deserialize;
use serde_json::Value;

/// The state of the host before the check.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Initial {
    pub files: BTreeMap<String, File>,
    pub directories: BTreeMap<String, Owned>,
    pub links: BTreeMap<String, String>,
    /// Named pipes.
    pub pipes: Vec<String>,
    pub manager: Option<String>,
    pub packages: BTreeMap<String, String>,
    /// Packages whose installation or removal was cut off.
    pub cut_off: BTreeMap<String, String>,
    /// Packages on hold.
    pub held: Vec<String>,
    /// Packages that the installation of another one removes.
    pub conflicts: BTreeMap<String, Vec<String>>,
    pub offered: BTreeMap<String, String>,
    /// Virtual package to the offered one that provides it.
    pub provided: BTreeMap<String, String>,
    pub units: BTreeMap<String, String>,
    /// Units whose program ends at once after its start.
    pub dying: Vec<String>,
    pub users: BTreeMap<String, Value>,
    pub groups: BTreeMap<String, Value>,
    pub sysctls: BTreeMap<String, String>,
    pub modules: Vec<String>,
    pub loadable: Vec<String>,
    pub mounts: Vec<(String, String, String, String)>,
    /// Devices that mount(8) refuses.
    pub unmountable: Vec<String>,
    pub swaps: Vec<String>,
    pub zones: BTreeMap<String, View>,
    pub policies: BTreeMap<String, View>,
    pub ipsets: BTreeMap<String, SetView>,
    pub images: Vec<String>,
    pub registry: Vec<String>,
    pub http: BTreeMap<String, Vec<Option<(u16, String)>>>,
    /// Files that appear or (null) vanish while the host waits, by seconds since the start.
    pub later: BTreeMap<i64, BTreeMap<String, Option<String>>>,
    /// URLs of servers whose certificates no CA of the host has signed.
    pub untrusted: Vec<String>,
    /// Label to text; `blob:@LABEL` refers to it in the arguments.
    pub blobs: BTreeMap<String, String>,
    /// Label to members of a tar archive: path to (mode, text); a text of null is a directory, `->
    /// x` a link.
    pub archives: BTreeMap<String, BTreeMap<String, (String, Option<String>)>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum File {
    Text(String),
    Full {
        text: Option<String>,
        base64: Option<String>,
        archive: Option<String>,
        #[serde(flatten)]
        owned: Owned,
    },
}

impl File {
    /// Its text, if it has one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Full { text, .. } => text.as_deref(),
        }
    }
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub struct Owned {
    pub mode: Option<String>,
    pub user: Option<String>,
    pub group: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct View {
    pub permanent: Option<FirewallSettings>,
    pub runtime: Option<FirewallSettings>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetView {
    pub permanent: Option<IpsetSettings>,
    pub runtime: Option<IpsetSettings>,
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

pub fn tar(members: &BTreeMap<String, (String, Option<String>)>) -> Vec<u8> {
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

/// Puts a fake host into its initial state.
pub fn set_up(host: &FakeHost, initial: &Initial) {
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
    for path in &initial.pipes {
        let pipe = Node {
            kind: FileKind::Other,
            ..Node::file(b"")
        };
        state.disk.put(path, pipe);
    }
    if initial.manager.as_deref() == Some("dnf") {
        state.manager = PackageManager::Dnf;
    }
    state.packages.extend(initial.packages.clone());
    state.cut_off.extend(initial.cut_off.clone());
    state.held.extend(initial.held.clone());
    state.conflicts.extend(initial.conflicts.clone());
    for (name, version) in &initial.offered {
        state.offered.insert(
            name.clone(),
            Offer {
                version: version.clone(),
                ..Offer::default()
            },
        );
    }
    for (name, package) in &initial.provided {
        let offer = state.offered.entry(package.clone()).or_default();
        offer.provides.push(name.clone());
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
    state.dying.extend(initial.dying.iter().cloned());
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
    for (source, path, fstype, options) in initial.mounts.iter().cloned() {
        // A bind mount in findmnt(8)'s form: `/dev/vda[/srv/app]`.
        let (device, root) = match source.split_once('[') {
            Some((device, root)) => (device.to_owned(), root.trim_end_matches(']').to_owned()),
            None => (source, "/".to_owned()),
        };
        state.mounts.push(MountPoint {
            device,
            root,
            path,
            fstype,
            options,
        });
    }
    state
        .unmountable
        .extend(initial.unmountable.iter().cloned());
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
    state.ipsets.extend(initial.ipsets.iter().map(|(name, v)| {
        let view = IpsetView {
            permanent: v.permanent.clone(),
            runtime: v.runtime.clone(),
        };
        (name.clone(), view)
    }));
    state.images.extend(initial.images.iter().cloned());
    state.registry.extend(initial.registry.iter().cloned());
    state.untrusted.extend(initial.untrusted.iter().cloned());
    for (url, answers) in &initial.http {
        state
            .http
            .insert(url.clone(), answers.iter().cloned().collect());
    }
    for (seconds, files) in &initial.later {
        let files = files
            .iter()
            .map(|(path, text)| (path.clone(), text.clone().map(String::into_bytes)));
        let time = state.clock + seconds * 1000;
        state.later.insert(time, files.collect());
    }
    let blobs = initial.blobs.values().map(|text| text.clone().into_bytes());
    for bytes in blobs
        .chain(initial.archives.values().map(tar))
        .collect::<Vec<_>>()
    {
        state.blobs.insert(sha256(&bytes), bytes);
    }
    state.disk.put("/bin/true", Node::file(b""));
    state.hook = Some(|state, command| {
        if restarted(state, command) {
            return Some(Output::default());
        }
        known(command)
    });
}

/// Ends a process and starts its successor, as the kubelet does, if the command restarts one.
fn restarted(state: &mut FakeState, command: &Command) -> bool {
    let [_, _, line, pid, _] = command.argv.as_slice() else {
        return false;
    };
    if !line.contains("kill -TERM ") {
        return false;
    }
    let next = pid.parse::<u32>().unwrap() + 1;
    for name in ["cgroup", "cmdline", "stat"] {
        let content = state.disk.read(&format!("/proc/{pid}/{name}"));
        if let Some(content) = content.map(<[u8]>::to_vec) {
            let path = format!("/proc/{next}/{name}");
            state.disk.put(&path, Node::file(&content));
        }
    }
    state.disk.take(&format!("/proc/{pid}"));
    true
}

/// Answers the commands of `check_cmd`: their first word is the outcome.
fn known(command: &Command) -> Option<Output> {
    let line = command.argv.get(2)?;
    let code = match line.split(' ').next()? {
        "accept" | "kill" => 0,
        "reject" => 1,
        _ => return None,
    };
    Some(Output {
        code,
        stderr: "rejected".into(),
        ..Default::default()
    })
}
