//! The commands that a fake host knows.

use halite_minion::host::FileKind;
use halite_minion::host::accounts::is_account_command;
use halite_minion::host::effect::{Command, Output};

use crate::disk::Node;
use crate::host::FakeState;

impl FakeState {
    pub(crate) fn command(&mut self, command: &Command) -> Output {
        if let Some(hook) = self.hook
            && let Some(output) = hook(self, command)
        {
            return output;
        }
        if let Some(output) = self.answers.get(&command.argv) {
            return output.clone();
        }
        if is_account_command(&command.argv) {
            if let Some((code, stderr)) = self.accounts.refusal(&command.argv) {
                return Output {
                    code,
                    stderr,
                    ..Output::default()
                };
            }
            self.change_accounts(&command.argv);
            return Output::default();
        }
        let line = match command.argv.as_slice() {
            [_, flag, line] if flag == "-c" => line.clone(),
            argv => argv.join(" "),
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = |code: i32| Output {
            code,
            ..Output::default()
        };
        match words.as_slice() {
            ["true" | "/bin/true"] => done(0),
            ["false" | "/bin/false"] => done(1),
            ["exit", code] => done(code.parse().unwrap_or(2)),
            ["echo", rest @ ..] => Output {
                stdout: format!("{}\n", rest.join(" ")),
                ..Output::default()
            },
            ["test", kind, path] => {
                let stat = self.disk.stat(&self.disk.follow(path));
                let holds = match *kind {
                    "-f" => stat.is_some_and(|s| s.kind == FileKind::File),
                    "-d" => stat.is_some_and(|s| s.kind == FileKind::Directory),
                    _ => stat.is_some(),
                };
                done(i32::from(!holds))
            }
            _ => Output {
                code: 127,
                stderr: format!("{line}: not found"),
                ..Output::default()
            },
        }
    }

    /// Carries out an account command; `useradd -m` makes the home and `userdel -r` removes it.
    fn change_accounts(&mut self, argv: &[String]) {
        let has = |flag: &str| argv.iter().any(|word| word == flag);
        let name = argv.last().map(String::as_str).unwrap_or_default();
        let old = self.accounts.user(name).cloned();
        self.accounts.run(argv, None, None);
        match (argv.first().map(String::as_str), old) {
            (Some("useradd"), None) if has("-m") => {
                let Some(user) = self.accounts.user(name).cloned() else {
                    return;
                };
                if self.disk.stat(&user.home).is_some() {
                    return;
                }
                let gid = user.gid.to_string();
                let group = self.accounts.group(&gid).map(|group| group.name.clone());
                let home = Node {
                    user: user.name,
                    group: group.unwrap_or(gid),
                    ..Node::directory()
                };
                self.disk.put(&user.home, home);
            }
            (Some("userdel"), Some(user)) if has("-r") => self.disk.take(&user.home),
            _ => {}
        }
    }
}
