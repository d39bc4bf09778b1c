//! The accounts of an overlay: those of the host below with the predicted changes.

use std::collections::BTreeSet;

use super::{Accounts, parse};
use crate::host::{Group, User};

/// The predicted accounts of an overlay. A number that only `useradd` or `groupadd` will choose is
/// a guess, by which no account is found.
#[derive(Debug, Default)]
pub struct PredictedAccounts {
    accounts: Accounts,
    guessed_users: BTreeSet<String>,
    guessed_groups: BTreeSet<String>,
    guesses: u32,
}

/// The first guess; the next ones are lower. No host gives such a number, so a guess is not that of
/// an account of the host below.
const FIRST_GUESS: u32 = u32::MAX - 1;

impl PredictedAccounts {
    /// A user by name, or by a number that is known. `Some(None)`: a command removed it.
    #[must_use]
    pub fn user(&self, key: &str) -> Option<Option<User>> {
        let users = &self.accounts.users;
        if let Some(known) = users.get(key) {
            return Some(known.clone());
        }
        let number = key.parse::<u32>().ok()?;
        let mut users = users.values().flatten();
        let found =
            users.find(|user| user.uid == number && !self.guessed_users.contains(&user.name));
        found.map(|user| Some(user.clone()))
    }

    /// A group by name, or by a number that is known. `Some(None)`: a command removed it.
    #[must_use]
    pub fn group(&self, key: &str) -> Option<Option<Group>> {
        let groups = &self.accounts.groups;
        if let Some(known) = groups.get(key) {
            return Some(known.clone());
        }
        let number = key.parse::<u32>().ok()?;
        let mut groups = groups.values().flatten();
        let found =
            groups.find(|group| group.gid == number && !self.guessed_groups.contains(&group.name));
        found.map(|group| Some(group.clone()))
    }

    /// Adds a user of the host below whose memberships a command is about to change.
    pub(in crate::host) fn add_user(&mut self, user: User) {
        let users = &mut self.accounts.users;
        users.entry(user.name.clone()).or_insert(Some(user));
    }

    /// Adds a group of the host below whose members a command is about to change.
    pub(in crate::host) fn add_group(&mut self, group: Group) {
        let groups = &mut self.accounts.groups;
        groups.entry(group.name.clone()).or_insert(Some(group));
    }

    /// As [`Accounts::run`].
    pub fn run(&mut self, argv: &[String], user: Option<User>, group: Option<Group>) {
        let program = argv
            .first()
            .map_or("", |p| p.rsplit('/').next().unwrap_or(p));
        let (options, name) = parse(argv);
        let Some(name) = name else { return };
        let mut argv = argv.to_vec();
        match program {
            "useradd" if user.is_none() => {
                let guess = !options.contains_key("-u");
                if guess {
                    self.guess(&mut argv, "-u");
                }
                note(&mut self.guessed_users, &name, guess);
                if !options.contains_key("-g") && !options.contains_key("-N") {
                    note(&mut self.guessed_groups, &name, guess);
                }
            }
            "groupadd" if group.is_none() => {
                let guess = !options.contains_key("-g");
                if guess {
                    self.guess(&mut argv, "-g");
                }
                note(&mut self.guessed_groups, &name, guess);
            }
            "usermod" if options.contains_key("-u") => note(&mut self.guessed_users, &name, false),
            "groupmod" if options.contains_key("-g") => {
                note(&mut self.guessed_groups, &name, false);
            }
            _ => {}
        }
        self.accounts.run(&argv, user, group);
    }

    /// Adds a guessed number to a command.
    fn guess(&mut self, argv: &mut Vec<String>, option: &str) {
        let number = FIRST_GUESS - self.guesses;
        self.guesses += 1;
        drop(argv.splice(1..1, [option.to_owned(), number.to_string()]));
    }
}

/// Notes whether the number of an account is a guess.
fn note(guessed: &mut BTreeSet<String>, name: &str, guess: bool) {
    if guess {
        guessed.insert(name.to_owned());
    } else {
        guessed.remove(name);
    }
}

/// The names of the users and of the groups, other than its own account, whose memberships a
/// command changes. `user` and `group` are its own account.
pub(in crate::host) fn other_accounts(
    argv: &[String],
    user: Option<&User>,
    group: Option<&Group>,
) -> (Vec<String>, Vec<String>) {
    let program = argv
        .first()
        .map_or("", |p| p.rsplit('/').next().unwrap_or(p));
    let (options, _) = parse(argv);
    let listed = |key: &str| -> Vec<String> {
        let list = options.get(key).map(String::as_str).unwrap_or_default();
        let names = list.split(',').filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    };
    match program {
        "gpasswd" | "groupdel" => {
            let mut users = listed("-M");
            users.extend(group.into_iter().flat_map(|group| group.members.clone()));
            (users, Vec::new())
        }
        "useradd" | "usermod" | "userdel" => {
            let mut groups = listed("-G");
            groups.extend(user.into_iter().flat_map(|user| user.groups.clone()));
            (Vec::new(), groups)
        }
        _ => (Vec::new(), Vec::new()),
    }
}
