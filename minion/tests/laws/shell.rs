//! The commands of the table on the fake host. On a real host a shell runs them; `law-package` is a
//! script of the suite.

use halite_minion::host::FileKind;
use halite_minion::host::effect::{Command, Output, PATH};
use halite_minion_fake::FakeState;
use halite_minion_fake::disk::Node;

/// Answers a command of the table.
pub fn run(state: &mut FakeState, command: &Command) -> Option<Output> {
    if let [_, _, line, file] = command.argv.as_slice() {
        return checked(state, line, file);
    }
    let [_, _, line] = command.argv.as_slice() else {
        return None;
    };
    let words: Vec<&str> = line.split(' ').collect();
    let user = command.runas.as_deref().unwrap_or("root");
    let stdout = match words.as_slice() {
        ["printenv", names @ ..] => {
            let values = names.iter().map(|name| variable(command, name));
            values.map(|value| format!("{value}\n")).collect()
        }
        ["umask"] => format!("{:04o}\n", command.umask.unwrap_or_default()),
        ["pwd"] => format!("{}\n", command.cwd.as_deref().unwrap_or("/")),
        ["id", "-un"] => format!("{user}\n"),
        ["cat"] => {
            let input = command.stdin.as_deref().unwrap_or_default();
            String::from_utf8_lossy(input).into_owned()
        }
        ["touch", path] => {
            let file = Node {
                mode: 0o666 & !command.umask.unwrap_or_default(),
                user: user.to_owned(),
                ..Node::file(b"")
            };
            state.disk.put(path, file);
            String::new()
        }
        ["mkfifo", path] => {
            let pipe = Node {
                kind: FileKind::Other,
                ..Node::file(b"")
            };
            state.disk.put(path, pipe);
            String::new()
        }
        ["law-package", name, version, hold @ ..] => {
            state
                .packages
                .insert((*name).to_owned(), (*version).to_owned());
            state.held.extend(hold.iter().map(|_| (*name).to_owned()));
            String::new()
        }
        _ => return None,
    };
    Some(Output {
        stdout,
        ..Output::default()
    })
}

/// The `check_cmd` of a file: it runs with the path of a temporary file, which it removes.
fn checked(state: &mut FakeState, line: &str, file: &str) -> Option<Output> {
    let code = match line.split(' ').next()? {
        "true" => 0,
        "false" => 1,
        _ => return None,
    };
    state.disk.take(file);
    Some(Output {
        code,
        ..Output::default()
    })
}

/// A variable of the command's environment: its own, or one of those that each command has.
fn variable(command: &Command, name: &str) -> String {
    let usual = match name {
        "HOME" => "/root",
        "PATH" => PATH,
        "LANG" | "LC_ALL" => "C.UTF-8",
        _ => "",
    };
    let own = command.env.get(name).cloned();
    own.unwrap_or_else(|| usual.to_owned())
}
