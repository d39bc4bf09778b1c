//! The account database as a value, changed as `useradd`, `groupadd` and their relatives would
//! change it: for the overlay and for tests.

use std::collections::BTreeMap;

use super::{Group, User};

/// The account database as a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    /// By name; `None` means removed (an overlay must hide the account below).
    pub users: BTreeMap<String, Option<User>>,
    /// By name; `None` means removed.
    pub groups: BTreeMap<String, Option<Group>>,
}

/// Options that take a value, in both spellings.
const VALUED: &[(&str, &str)] = &[
    ("-u", "--uid"),
    ("-g", "--gid"),
    ("-G", "--groups"),
    ("-d", "--home"),
    ("-d", "--home-dir"),
    ("-s", "--shell"),
    ("-c", "--comment"),
    ("-k", "--skel"),
    ("-e", "--expiredate"),
    ("-b", "--base-dir"),
    ("-K", "--key"),
    ("-p", "--password"),
    ("-l", "--login"),
    ("-n", "--new-name"),
    ("-M", "--members"),
];

/// Returns whether [`Accounts::run`] knows a command.
#[must_use]
pub fn is_account_command(argv: &[String]) -> bool {
    let program = argv
        .first()
        .map_or("", |p| p.rsplit('/').next().unwrap_or(p));
    matches!(
        program,
        "useradd" | "usermod" | "userdel" | "groupadd" | "groupmod" | "groupdel" | "gpasswd"
    )
}

impl Accounts {
    /// Applies the command's changes. `user` and `group` answer for accounts that are not in this
    /// value (the host below an overlay).
    pub fn run(&mut self, argv: &[String], user: Option<User>, group: Option<Group>) {
        let program = argv
            .first()
            .map_or("", |p| p.rsplit('/').next().unwrap_or(p))
            .to_owned();
        let (options, name) = parse(argv);
        let Some(name) = name else { return };
        let number = |key: &str| options.get(key).and_then(|v| v.parse::<u32>().ok());
        let text = |key: &str| options.get(key).cloned();
        match program.as_str() {
            "groupadd" | "groupmod" => {
                let old = self.groups.get(&name).cloned().flatten().or(group);
                let gid = number("-g")
                    .or(old.as_ref().map(|g| g.gid))
                    .unwrap_or_else(|| free_id(&options, self));
                let members = old.map(|g| g.members).unwrap_or_default();
                self.groups
                    .insert(name.clone(), Some(Group { name, gid, members }));
            }
            "gpasswd" => {
                if let Some(mut account) = self.groups.get(&name).cloned().flatten().or(group)
                    && let Some(list) = text("-M")
                {
                    account.members = list
                        .split(',')
                        .filter(|m| !m.is_empty())
                        .map(str::to_owned)
                        .collect();
                    self.groups.insert(name, Some(account));
                }
            }
            "groupdel" => {
                self.groups.insert(name, None);
            }
            "userdel" => {
                self.users.insert(name, None);
            }
            "useradd" | "usermod" => {
                let mut account = self
                    .users
                    .get(&name)
                    .cloned()
                    .flatten()
                    .or(user)
                    .unwrap_or_else(|| User {
                        uid: free_id(&options, self),
                        home: format!("/home/{name}"),
                        shell: "/bin/sh".to_owned(),
                        name: name.clone(),
                        ..User::default()
                    });
                account.uid = number("-u").unwrap_or(account.uid);
                account.home = text("-d").unwrap_or(account.home);
                account.shell = text("-s").unwrap_or(account.shell);
                account.gecos = text("-c").unwrap_or(account.gecos);
                match text("-g") {
                    Some(primary) => {
                        let known = self
                            .groups
                            .get(&primary)
                            .cloned()
                            .flatten()
                            .or(group)
                            .map(|g| g.gid);
                        account.gid = primary.parse().ok().or(known).unwrap_or(account.gid);
                    }
                    None if program == "useradd" && !options.contains_key("-N") => {
                        account.gid = account.uid;
                        let own = Group {
                            name: name.clone(),
                            gid: account.uid,
                            members: Vec::new(),
                        };
                        self.groups.insert(name.clone(), Some(own));
                    }
                    None => {}
                }
                if let Some(list) = text("-G") {
                    let wanted = list.split(',').filter(|g| !g.is_empty()).map(str::to_owned);
                    if !options.contains_key("-a") {
                        account.groups.clear();
                    }
                    account.groups.extend(wanted);
                    account.groups.sort();
                    account.groups.dedup();
                }
                self.users.insert(name, Some(account));
            }
            _ => {}
        }
    }
}

/// Options by their short name, and the account's name (the last word).
fn parse(argv: &[String]) -> (BTreeMap<String, String>, Option<String>) {
    let mut options = BTreeMap::new();
    let mut name = None;
    let mut words = argv.iter().skip(1);
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            name = Some(word.clone());
            continue;
        }
        let (flag, inline) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        if let Some((short, _)) = VALUED
            .iter()
            .find(|(short, long)| flag == *short || flag == *long)
        {
            let value = inline.or_else(|| words.next().cloned()).unwrap_or_default();
            options.insert((*short).to_owned(), value);
        } else {
            let short = match flag {
                "--append" | "-aG" => "-a",
                "--system" => "-r",
                "--no-user-group" => "-N",
                other => other,
            };
            options.insert(short.to_owned(), String::new());
            if flag == "-aG" {
                options.insert("-G".to_owned(), words.next().cloned().unwrap_or_default());
            }
        }
    }
    (options, name)
}

/// A free number: below 1000 for system accounts.
fn free_id(options: &BTreeMap<String, String>, accounts: &Accounts) -> u32 {
    let used = |id: u32| {
        accounts.users.values().flatten().any(|u| u.uid == id)
            || accounts.groups.values().flatten().any(|g| g.gid == id)
    };
    if options.contains_key("-r") {
        (100..1000).rev().find(|id| !used(*id)).unwrap_or(999)
    } else {
        (1000..60_000).find(|id| !used(*id)).unwrap_or(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_system_user_gets_a_group_of_its_own() {
        let mut accounts = Accounts::default();
        accounts.run(
            &argv("useradd -r -d /var/lib/etcd -s /usr/sbin/nologin etcd"),
            None,
            None,
        );
        let user = accounts.users["etcd"].clone().unwrap();
        assert!(user.uid < 1000);
        assert_eq!(user.home, "/var/lib/etcd");
        assert_eq!(accounts.groups["etcd"].as_ref().unwrap().gid, user.gid);
    }

    #[test]
    fn modify_and_remove() {
        let mut accounts = Accounts::default();
        accounts.run(&argv("groupadd --gid 700 web"), None, None);
        accounts.run(&argv("useradd --uid=700 --gid 700 web"), None, None);
        accounts.run(&argv("usermod -a -G b,a web"), None, None);
        accounts.run(&argv("usermod -aG c web"), None, None);
        assert_eq!(
            accounts.users["web"].as_ref().unwrap().groups,
            ["a", "b", "c"]
        );
        accounts.run(&argv("userdel web"), None, None);
        assert_eq!(accounts.users["web"], None);
    }
}
