//! Users and groups, without libc's name service: the minion's binary is static and cannot load the
//! host's NSS modules.
//!
//! The local files are read first, as `nsswitch.conf` specifies everywhere; for other names the
//! host's own `getent` is run. Answers are remembered for the life of this value, which is one run.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::command;
use crate::host::effect::Command;
use crate::host::{Group, HostError, HostResult, User};

/// Longest wait for a directory service.
const DEADLINE: Duration = Duration::from_secs(20);

/// Users and groups of this host.
#[derive(Debug, Default)]
pub struct NameService {
    answers: Mutex<HashMap<(&'static str, String), Option<String>>>,
}

impl NameService {
    /// Forgets all answers: accounts may have changed.
    pub fn forget(&self) {
        self.answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// The line of `database` whose name (first field) or number (third field) is `key`.
    async fn line(&self, database: &'static str, key: &str) -> HostResult<Option<String>> {
        let question = (database, key.to_owned());
        let known = self
            .answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&question)
            .cloned();
        if let Some(answer) = known {
            return Ok(answer);
        }
        let local = std::fs::read_to_string(format!("/etc/{database}")).unwrap_or_default();
        let answer = match find(&local, key) {
            Some(line) => Some(line.to_owned()),
            None => getent(database, key).await?,
        };
        self.answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(question, answer.clone());
        Ok(answer)
    }

    /// A user by name.
    ///
    /// # Errors
    /// `getent` cannot be run.
    pub async fn user(&self, name: &str) -> HostResult<Option<User>> {
        let Some(mut user) = self
            .line("passwd", name)
            .await?
            .as_deref()
            .and_then(parse_user)
        else {
            return Ok(None);
        };
        let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
        user.groups = groups
            .lines()
            .filter_map(parse_group)
            .filter(|g| g.members.contains(&user.name))
            .map(|g| g.name)
            .collect();
        user.groups.sort();
        Ok(Some(user))
    }

    /// A group by name.
    ///
    /// # Errors
    /// `getent` cannot be run.
    pub async fn group(&self, name: &str) -> HostResult<Option<Group>> {
        Ok(self
            .line("group", name)
            .await?
            .as_deref()
            .and_then(parse_group))
    }

    /// The name of a user id, or the number itself if it has no name.
    ///
    /// # Errors
    /// `getent` cannot be run.
    pub async fn user_name(&self, uid: u32) -> HostResult<String> {
        self.name("passwd", uid).await
    }

    /// The name of a group id, or the number itself if it has no name.
    ///
    /// # Errors
    /// `getent` cannot be run.
    pub async fn group_name(&self, gid: u32) -> HostResult<String> {
        self.name("group", gid).await
    }

    async fn name(&self, database: &'static str, id: u32) -> HostResult<String> {
        if id == 0 {
            return Ok("root".to_owned());
        }
        let line = self.line(database, &id.to_string()).await?;
        Ok(line
            .as_deref()
            .and_then(|l| l.split(':').next())
            .map_or_else(|| id.to_string(), str::to_owned))
    }

    /// The id of a user, given by name or number.
    ///
    /// # Errors
    /// The user does not exist.
    pub async fn uid(&self, user: &str) -> HostResult<u32> {
        if let Ok(number) = user.parse() {
            return Ok(number);
        }
        let found = self.user(user).await?;
        found
            .map(|u| u.uid)
            .ok_or_else(|| HostError::refused(format!("there is no user `{user}` on this host")))
    }

    /// The id of a group, given by name or number.
    ///
    /// # Errors
    /// The group does not exist.
    pub async fn gid(&self, group: &str) -> HostResult<u32> {
        if let Ok(number) = group.parse() {
            return Ok(number);
        }
        let found = self.group(group).await?;
        found
            .map(|g| g.gid)
            .ok_or_else(|| HostError::refused(format!("there is no group `{group}` on this host")))
    }
}

/// By name, or by number if `key` is a number.
fn find<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let numeric = key.bytes().all(|b| b.is_ascii_digit());
    text.lines().find(|line| {
        let mut fields = line.split(':');
        let name = fields.next();
        if numeric {
            fields.nth(1) == Some(key)
        } else {
            name == Some(key)
        }
    })
}

async fn getent(database: &str, key: &str) -> HostResult<Option<String>> {
    let argv = ["getent", database, key].map(str::to_owned).to_vec();
    match command::run(
        &Command {
            argv,
            ..Command::default()
        },
        Some(DEADLINE),
    )
    .await
    {
        Ok(output) if output.code == 0 => Ok(output.stdout.lines().next().map(str::to_owned)),
        // 2: not found. Any other code (or a missing getent) must not pass for absence.
        Ok(output) if output.code == 2 => Ok(None),
        Ok(output) => Err(command::failure(&["getent", database, key], &output)),
        Err(HostError::Start { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

fn parse_user(line: &str) -> Option<User> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, gecos, home, shell] = fields.as_slice() else {
        return None;
    };
    Some(User {
        name: (*name).to_owned(),
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        home: (*home).to_owned(),
        shell: (*shell).to_owned(),
        gecos: (*gecos).to_owned(),
        groups: Vec::new(),
    })
}

fn parse_group(line: &str) -> Option<Group> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, gid, members] = fields.as_slice() else {
        return None;
    };
    let members = members
        .split(',')
        .filter(|m| !m.is_empty())
        .map(str::to_owned)
        .collect();
    Some(Group {
        name: (*name).to_owned(),
        gid: gid.parse().ok()?,
        members,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_name_and_number() {
        let text =
            "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n";
        assert!(find(text, "daemon").unwrap().starts_with("daemon"));
        assert!(find(text, "1").unwrap().starts_with("daemon"));
        assert_eq!(find(text, "x"), None);
        let user = parse_user(find(text, "0").unwrap()).unwrap();
        assert_eq!((user.name.as_str(), user.home.as_str()), ("root", "/root"));
        assert_eq!(parse_user("broken"), None);
    }

    #[test]
    fn groups_have_members() {
        let group = parse_group("adm:x:4:syslog,ann").unwrap();
        assert_eq!(group.members, ["syslog", "ann"]);
        assert!(parse_group("adm:x:4:").unwrap().members.is_empty());
    }

    #[tokio::test]
    async fn root_is_on_every_host() {
        let names = NameService::default();
        assert_eq!(names.user_name(0).await.unwrap(), "root");
        assert_eq!(names.uid("root").await.unwrap(), 0);
        assert_eq!(names.uid("4711").await.unwrap(), 4711);
        assert!(
            names
                .gid("no-such-group")
                .await
                .unwrap_err()
                .to_string()
                .contains("no-such-group")
        );
    }
}
