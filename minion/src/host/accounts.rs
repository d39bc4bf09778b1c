//! The account database as a value, changed as `useradd`, `groupadd` and their relatives would
//! change it: for the overlay and for tests.

mod predicted;

use std::collections::BTreeMap;

use super::{Group, User};

pub use self::predicted::PredictedAccounts;
pub(super) use self::predicted::other_accounts;

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
    /// A user by name or number.
    #[must_use]
    pub fn user(&self, key: &str) -> Option<&User> {
        let number = key.parse::<u32>().ok();
        let by_number = |user: &&User| Some(user.uid) == number;
        let by_name = self.users.get(key).and_then(Option::as_ref);
        by_name.or_else(|| self.users.values().flatten().find(by_number))
    }

    /// A group by name or number.
    #[must_use]
    pub fn group(&self, key: &str) -> Option<&Group> {
        let number = key.parse::<u32>().ok();
        let by_number = |group: &&Group| Some(group.gid) == number;
        let by_name = self.groups.get(key).and_then(Option::as_ref);
        by_name.or_else(|| self.groups.values().flatten().find(by_number))
    }

    /// The exit code and message with which the host's own program refuses a command; `None` if it
    /// carries it out. Only of a value that has all accounts.
    #[must_use]
    pub fn refusal(&self, argv: &[String]) -> Option<(i32, String)> {
        let program = argv.first()?.rsplit('/').next()?;
        let (options, name) = parse(argv);
        let name = name?;
        let option = |key: &str| options.get(key).map(String::as_str);
        let group = self.groups.get(&name).and_then(Option::as_ref);
        let refuse = |code: i32, why: String| Some((code, format!("{program}: {why}")));
        if program.starts_with("group") || program == "gpasswd" {
            let missing = if program == "gpasswd" { 3 } else { 6 };
            match (program, group) {
                ("groupadd", Some(_)) => {
                    return refuse(9, format!("group '{name}' already exists"));
                }
                ("groupadd", None) => {}
                (_, None) => return refuse(missing, format!("group '{name}' does not exist")),
                ("groupdel", Some(group)) => {
                    let mut users = self.users.values().flatten();
                    let user = users.find(|user| user.gid == group.gid)?;
                    let why = format!("cannot remove the primary group of user '{}'", user.name);
                    return refuse(8, why);
                }
                _ => {}
            }
            let gid = option("-g").and_then(|gid| self.group(gid));
            if let Some(taken) = gid.filter(|taken| taken.name != name) {
                return refuse(4, format!("GID '{}' already exists", taken.gid));
            }
            let mut members = option("-M")?.split(',').filter(|member| !member.is_empty());
            let member = members.find(|member| self.user(member).is_none())?;
            return refuse(3, format!("user '{member}' does not exist"));
        }
        match (program, self.users.get(&name).and_then(Option::as_ref)) {
            ("useradd", Some(_)) => return refuse(9, format!("user '{name}' already exists")),
            ("useradd", None) => {}
            (_, None) => return refuse(6, format!("user '{name}' does not exist")),
            _ => {}
        }
        let uid = option("-u").and_then(|uid| self.user(uid));
        if let Some(taken) = uid.filter(|taken| taken.name != name) {
            return refuse(4, format!("UID {} is not unique", taken.uid));
        }
        let more = option("-G").into_iter().flat_map(|list| list.split(','));
        let mut wanted = option("-g")
            .into_iter()
            .chain(more)
            .filter(|one| !one.is_empty());
        if let Some(unknown) = wanted.find(|one| self.group(one).is_none()) {
            return refuse(6, format!("group '{unknown}' does not exist"));
        }
        let own = program == "useradd" && option("-g").is_none() && option("-N").is_none();
        if own && group.is_some() {
            let why = format!(
                "group {name} exists - if you want to add this user to that group, use -g."
            );
            return refuse(9, why);
        }
        None
    }

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
                if old.is_some() == (program == "groupadd") {
                    return;
                }
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
                    self.groups.insert(name.clone(), Some(account));
                    self.update_users(&name);
                }
            }
            "groupdel" => {
                self.groups.insert(name.clone(), None);
                self.update_users(&name);
            }
            "userdel" => {
                let old = self.users.get(&name).cloned().flatten().or(user);
                self.users.insert(name.clone(), None);
                self.update_groups(&name);
                let own = self.groups.get(&name).cloned().flatten().or(group);
                if let (Some(old), Some(own)) = (old, own)
                    && self.is_left_alone(&old, &own)
                {
                    self.groups.insert(name, None);
                }
            }
            "useradd" | "usermod" => {
                let old = self.users.get(&name).cloned().flatten().or(user);
                if old.is_some() == (program == "useradd") {
                    return;
                }
                let mut account = old.unwrap_or_else(|| User {
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
                self.users.insert(name.clone(), Some(account));
                self.update_groups(&name);
            }
            _ => {}
        }
    }

    /// Lets users have a group exactly if they are its members: group(5) has both.
    fn update_users(&mut self, group: &str) {
        let members = match self.groups.get(group) {
            Some(Some(found)) => found.members.clone(),
            _ => Vec::new(),
        };
        for user in self.users.values_mut().flatten() {
            user.groups.retain(|one| one != group);
            if members.contains(&user.name) {
                user.groups.push(group.to_owned());
                user.groups.sort();
            }
        }
    }

    /// Lets groups have a user as a member exactly if the user has them.
    fn update_groups(&mut self, user: &str) {
        let groups = match self.users.get(user) {
            Some(Some(found)) => found.groups.clone(),
            _ => Vec::new(),
        };
        for group in self.groups.values_mut().flatten() {
            let is_member = group.members.iter().any(|member| member == user);
            let has_group = groups.contains(&group.name);
            if has_group && !is_member {
                group.members.push(user.to_owned());
            } else if !has_group {
                group.members.retain(|member| member != user);
            }
        }
    }

    /// Tests whether `userdel` removes the group with the name of a removed user (`USERGROUPS_ENAB`
    /// in login.defs(5)): it was the user's primary group, and no other user is in it.
    fn is_left_alone(&self, user: &User, group: &Group) -> bool {
        let is_primary = |other: &User| other.gid == group.gid;
        is_primary(user)
            && group.members.iter().all(|member| *member == user.name)
            && !self.users.values().flatten().any(is_primary)
    }
}

/// Options by their short name, and the account's name (the last word).
fn parse(argv: &[String]) -> (BTreeMap<String, String>, Option<String>) {
    let mut options = BTreeMap::new();
    let mut name = None;
    let program = argv.first().map_or("", String::as_str);
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
        // `-M` is a list of members to gpasswd(1), and no home to useradd(8).
        let is_flag = flag == "-M" && !program.ends_with("gpasswd");
        if let Some((short, _)) = VALUED
            .iter()
            .find(|(short, long)| !is_flag && (flag == *short || flag == *long))
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
            &argv("useradd -r -M -d /var/lib/etcd -s /usr/sbin/nologin etcd"),
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

    #[test]
    fn a_membership_is_the_same_in_both_accounts() {
        let mut accounts = Accounts::default();
        for line in [
            "groupadd a",
            "groupadd b",
            "useradd -G a,b web",
            "useradd ops",
        ] {
            accounts.run(&argv(line), None, None);
        }
        let members =
            |accounts: &Accounts, name: &str| accounts.group(name).unwrap().members.clone();
        let groups = |accounts: &Accounts, name: &str| accounts.user(name).unwrap().groups.clone();
        assert_eq!(members(&accounts, "a"), ["web"]);
        accounts.run(&argv("gpasswd -M ops a"), None, None);
        assert_eq!(groups(&accounts, "web"), ["b"]);
        assert_eq!(groups(&accounts, "ops"), ["a"]);
        accounts.run(&argv("groupdel b"), None, None);
        assert!(groups(&accounts, "web").is_empty());
        accounts.run(&argv("userdel ops"), None, None);
        assert!(members(&accounts, "a").is_empty());
    }

    #[test]
    fn the_group_of_a_removed_user_leaves_unless_another_user_is_in_it() {
        let mut accounts = Accounts::default();
        for line in ["useradd web", "useradd ops", "useradd -G ops other"] {
            accounts.run(&argv(line), None, None);
        }
        accounts.run(&argv("userdel web"), None, None);
        accounts.run(&argv("userdel ops"), None, None);
        assert_eq!(accounts.group("web"), None);
        assert!(accounts.group("ops").is_some());
    }

    #[test]
    fn a_guessed_number_finds_no_account() {
        let mut accounts = PredictedAccounts::default();
        accounts.run(&argv("useradd -m deploy"), None, None);
        accounts.run(&argv("groupadd web"), None, None);
        accounts.run(&argv("useradd -u 700 known"), None, None);
        for guess in 1000..1010 {
            assert_eq!(accounts.user(&guess.to_string()), None);
            assert_eq!(accounts.group(&guess.to_string()), None);
        }
        let name = |user: Option<Option<User>>| user.flatten().map(|user| user.name);
        assert_eq!(name(accounts.user("deploy")).as_deref(), Some("deploy"));
        assert_eq!(name(accounts.user("700")).as_deref(), Some("known"));
        let user = accounts.user("deploy").flatten();
        accounts.run(&argv("usermod -u 1000 deploy"), user, None);
        assert_eq!(name(accounts.user("1000")).as_deref(), Some("deploy"));
        accounts.run(&argv("userdel deploy"), None, None);
        assert_eq!(accounts.user("deploy"), Some(None));
    }
}
