//! `user.*`, by the host's own useradd(8), usermod(8) and userdel(8).

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::{Failure, Plan, fail};
use crate::host::effect::{Command, Effect};
use crate::host::{Host, User};

/// Runs a program without a shell.
pub(super) fn program(argv: &[&str]) -> Effect {
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    Effect::Run(Command {
        argv,
        ..Command::default()
    })
}

/// The account that the state requires.
struct AccountSpec {
    uid: Option<u32>,
    gid: Option<String>,
    groups: Option<Vec<String>>,
    remove_groups: bool,
    home: Option<String>,
    shell: Option<String>,
    fullname: Option<String>,
}

pub(super) async fn present(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let name = &chunk.name;
    let spec = AccountSpec {
        uid: args.number("uid")?,
        gid: args.text("gid")?,
        groups: match args.maybe_list("groups")? {
            Some(groups) => Some(sorted(group_names(host, groups).await?)),
            None => None,
        },
        remove_groups: args.flag("remove_groups", true)?,
        home: args.text("home")?,
        shell: args.text("shell")?,
        fullname: args.text("fullname")?,
    };
    let found = host.user(name).await?;
    spec.check(host, name, found.as_ref()).await?;
    let (changes, mut options, new) = match found {
        Some(found) => {
            let (changes, options) = spec.differences(host, &found).await?;
            (changes, options, false)
        }
        None => {
            if spec.gid.is_none() && host.group(name).await?.is_some() {
                return fail(format!(
                    "cannot add the user {name}: there is already a group of this name; to make it the user's group, \
                     give `gid: {name}`"
                ));
            }
            let system = args.flag("system", false)?;
            let mut options = spec.options();
            options.push(if args.flag("createhome", !system)? {
                "-m".into()
            } else {
                "-M".into()
            });
            if system {
                options.push("-r".into());
            }
            (spec.described(name), options, true)
        }
    };
    if changes.is_empty() {
        return Ok(Plan::nothing(format!(
            "User {name} is present and up to date"
        )));
    }
    options.insert(0, if new { "useradd" } else { "usermod" }.to_owned());
    options.push(name.clone());
    let effects = vec![Effect::Run(Command {
        argv: options,
        ..Command::default()
    })];
    if new {
        let comment = format!("User {name} set to be added");
        return Ok(Plan::change(
            changes,
            effects,
            comment,
            format!("New user {name} created"),
        ));
    }
    let keys = changes.keys().cloned().collect::<Vec<_>>().join(", ");
    let comment = format!("The following user attributes are set to be changed: {keys}");
    Ok(Plan::change(
        changes,
        effects,
        comment,
        format!("Updated user {name}"),
    ))
}

/// The names of groups, of which some are given by number: `usermod` reports only names.
async fn group_names(host: &dyn Host, mut groups: Vec<String>) -> Result<Vec<String>, Failure> {
    for group in &mut groups {
        if group.parse::<u32>().is_ok()
            && let Some(found) = host.group(group).await?
        {
            *group = found.name;
        }
    }
    Ok(groups)
}

fn sorted(mut list: Vec<String>) -> Vec<String> {
    list.sort();
    list.dedup();
    list
}

impl AccountSpec {
    /// Refuses what useradd and usermod would refuse.
    async fn check(
        &self,
        host: &dyn Host,
        name: &str,
        found: Option<&User>,
    ) -> Result<(), Failure> {
        if let Some(uid) = self
            .uid
            .filter(|uid| found.is_none_or(|user| user.uid != *uid))
            && let Some(taken) = host.user(&uid.to_string()).await?
            && taken.name != name
        {
            return fail(format!(
                "the uid {uid} of the user {name} is already that of {}",
                taken.name
            ));
        }
        let has = |group: &&String| found.is_some_and(|user| user.groups.contains(group));
        let more = self.groups.iter().flatten().filter(|group| !has(group));
        for group in self.gid.iter().chain(more) {
            if host.group(group).await?.is_none() && !host.uncertain() {
                return fail(format!(
                    "there is no group {group} for the user {name}; add it with group.present"
                ));
            }
        }
        Ok(())
    }

    /// Options of useradd for all given values.
    fn options(&self) -> Vec<String> {
        let mut options = Vec::new();
        let mut add = |flag: &str, value: Option<String>| {
            if let Some(value) = value {
                options.extend([flag.to_owned(), value]);
            }
        };
        add("-u", self.uid.map(|uid| uid.to_string()));
        add("-g", self.gid.clone());
        add(
            "-G",
            self.groups
                .as_ref()
                .filter(|groups| !groups.is_empty())
                .map(|groups| groups.join(",")),
        );
        add("-d", self.home.clone());
        add("-s", self.shell.clone());
        add("-c", self.fullname.clone());
        options
    }

    /// The new account as changes.
    fn described(&self, name: &str) -> Map<String, Value> {
        let mut changes = Map::from_iter([("name".to_owned(), json!(name))]);
        let mut add = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                changes.insert(key.to_owned(), value);
            }
        };
        add("uid", self.uid.map(|v| json!(v)));
        add("gid", self.gid.as_ref().map(|v| json!(v)));
        add("groups", self.groups.as_ref().map(|v| json!(v)));
        add("home", self.home.as_ref().map(|v| json!(v)));
        add("shell", self.shell.as_ref().map(|v| json!(v)));
        add("fullname", self.fullname.as_ref().map(|v| json!(v)));
        changes
    }

    /// Changes and options of usermod for all differences.
    async fn differences(
        &self,
        host: &dyn Host,
        found: &User,
    ) -> Result<(Map<String, Value>, Vec<String>), Failure> {
        let mut changes = Map::new();
        let mut options = Vec::new();
        let mut differ = |key: &str, flag: &str, value: Value, text: String| {
            changes.insert(key.to_owned(), value);
            options.extend([flag.to_owned(), text]);
        };
        if let Some(uid) = self.uid.filter(|uid| *uid != found.uid) {
            differ("uid", "-u", json!(uid), uid.to_string());
        }
        if let Some(gid) = &self.gid {
            let wanted = match gid.parse::<u32>() {
                Ok(number) => Some(number),
                Err(_) => host.group(gid).await?.map(|group| group.gid),
            };
            if wanted != Some(found.gid) {
                differ("gid", "-g", json!(gid), gid.clone());
            }
        }
        for (key, flag, wanted, old) in [
            ("home", "-d", &self.home, &found.home),
            ("shell", "-s", &self.shell, &found.shell),
        ] {
            if let Some(value) = wanted.as_ref().filter(|value| *value != old) {
                differ(key, flag, json!(value), value.clone());
            }
        }
        // The others are the room, phone numbers and more: they stay, as in Salt.
        let (full_name, others) = match found.gecos.split_once(',') {
            Some((name, others)) => (name, format!(",{others}")),
            None => (found.gecos.as_str(), String::new()),
        };
        if let Some(value) = self.fullname.as_ref().filter(|value| *value != full_name) {
            differ("fullname", "-c", json!(value), format!("{value}{others}"));
        }
        if let Some(groups) = &self.groups {
            let gid = self.gid.clone().unwrap_or_else(|| found.gid.to_string());
            let primary = host.group(&gid).await?.map(|group| group.name);
            // The primary group needs no membership, as in Salt.
            let supplementary = |list: &[String]| -> Vec<String> {
                let others = list.iter().filter(|name| Some(*name) != primary.as_ref());
                sorted(others.cloned().collect())
            };
            let old = supplementary(&found.groups);
            let mut all = supplementary(groups);
            if !self.remove_groups {
                all = sorted(all.into_iter().chain(old.iter().cloned()).collect());
            }
            if all != old {
                // As a member of it, if it is declared or already one: a group may list its
                // members.
                let is_named = |name: &String| groups.contains(name) || found.groups.contains(name);
                let named = primary.clone().filter(is_named);
                let written = sorted(all.iter().cloned().chain(named).collect());
                differ("groups", "-G", json!(all), written.join(","));
            }
        }
        Ok((changes, options))
    }
}

pub(super) async fn absent(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let name = &chunk.name;
    if host.user(name).await?.is_none() {
        return Ok(Plan::nothing(format!("User {name} is not present")));
    }
    let purge = Args::new(chunk).flag("purge", false)?;
    let effect = if purge {
        program(&["userdel", "-r", name])
    } else {
        program(&["userdel", name])
    };
    Ok(Plan::change(
        Map::from_iter([(name.clone(), json!("removed"))]),
        vec![effect],
        format!("User {name} set for removal"),
        format!("Removed user {name}"),
    ))
}
