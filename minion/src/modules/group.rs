//! `group.*`, by the host's own groupadd(8), groupmod(8), groupdel(8) and gpasswd(1).

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::user::program;
use super::{Failure, Plan, fail};
use crate::host::Host;

pub(super) async fn present(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let name = &chunk.name;
    let gid: Option<u32> = args.number("gid")?;
    let members = match args.maybe_list("members")? {
        Some(members) => Some(user_names(host, members).await?),
        None => None,
    };
    let add = user_names(host, args.list("addusers")?).await?;
    let remove = user_names(host, args.list("delusers")?).await?;
    if members.is_some() && !(add.is_empty() && remove.is_empty()) {
        return fail("group.present: `members` excludes `addusers` and `delusers`");
    }
    if let Some(both) = add.iter().find(|user| remove.contains(user)) {
        return fail(format!(
            "group.present: {both} is both in `addusers` and in `delusers`"
        ));
    }
    let found = host.group(name).await?;
    let is_new = |gid: &u32| found.as_ref().is_none_or(|group| group.gid != *gid);
    if let Some(gid) = gid.filter(is_new)
        && let Some(taken) = host.group(&gid.to_string()).await?
        && taken.name != *name
    {
        return fail(format!(
            "the gid {gid} of the group {name} is already that of {}",
            taken.name
        ));
    }
    let mut changes = Map::new();
    let mut effects = Vec::new();
    let number = gid.map(|gid| gid.to_string());
    match (&found, &number) {
        (None, number) => {
            let mut argv = vec!["groupadd"];
            if args.flag("system", false)? {
                argv.push("-r");
            }
            if let Some(number) = number {
                argv.extend(["-g", number.as_str()]);
            }
            argv.push(name);
            changes.insert("name".into(), json!(name));
            effects.push(program(&argv));
        }
        (Some(found), Some(number)) if Some(found.gid) != gid => {
            effects.push(program(&["groupmod", "-g", number, name]));
        }
        _ => {}
    }
    if let Some(gid) = gid.filter(is_new) {
        changes.insert("gid".into(), json!(gid));
    }
    let mut old = found
        .as_ref()
        .map(|group| group.members.clone())
        .unwrap_or_default();
    old.sort();
    let mut wanted = members.unwrap_or_else(|| {
        old.iter()
            .filter(|user| !remove.contains(user))
            .chain(&add)
            .cloned()
            .collect()
    });
    wanted.sort();
    wanted.dedup();
    if wanted != old {
        for user in wanted.iter().filter(|user| !old.contains(user)) {
            if host.user(user).await?.is_none() && !host.uncertain() {
                return fail(format!(
                    "there is no user {user} for the group {name}; add it with user.present"
                ));
            }
        }
        changes.insert("members".into(), json!(wanted));
        effects.push(program(&["gpasswd", "-M", &wanted.join(","), name]));
    }
    if changes.is_empty() {
        return Ok(Plan::nothing(format!(
            "Group {name} is present and up to date"
        )));
    }
    if found.is_none() {
        let comment = format!("Group {name} set to be added");
        return Ok(Plan::change(
            changes,
            effects,
            comment,
            format!("New group {name} created"),
        ));
    }
    let keys = changes.keys().cloned().collect::<Vec<_>>().join(", ");
    let comment = format!("The following group attributes are set to be changed: {keys}");
    Ok(Plan::change(
        changes,
        effects,
        comment,
        format!("Updated group {name}"),
    ))
}

/// The names of users, of which some are given by number: a group lists only names.
async fn user_names(host: &dyn Host, mut users: Vec<String>) -> Result<Vec<String>, Failure> {
    for user in &mut users {
        if user.parse::<u32>().is_ok()
            && let Some(found) = host.user(user).await?
        {
            *user = found.name;
        }
    }
    Ok(users)
}

pub(super) async fn absent(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let name = &chunk.name;
    if host.group(name).await?.is_none() {
        return Ok(Plan::nothing(format!("Group {name} is not present")));
    }
    Ok(Plan::change(
        Map::from_iter([(name.clone(), json!("removed"))]),
        vec![program(&["groupdel", name])],
        format!("Group {name} is set for removal"),
        format!("Removed group {name}"),
    ))
}
