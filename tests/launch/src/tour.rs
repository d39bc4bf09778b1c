//! `cargo lab try`: a master and a minion with their own root; a highstate's diff, its apply, a
//! drift and its repair, each with the command as a person types it and its output.

mod namespaces;
mod root;

use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

pub use self::root::PROGRAMS;
use crate::errors::Context as _;
use crate::programs;

/// Programs of the machine that it uses, with their Debian packages.
const NEEDED: [(&str, &str); 5] = [
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("setsid", "util-linux"),
    ("mount", "mount"),
    ("sha256sum", "coreutils"),
];

/// Time for the master to make its CAs and answer, and for the minion to connect.
const ANSWER: Duration = Duration::from_secs(60);

/// Lines of a log in the message of a failure.
const SHOWN_LINES: usize = 10;

/// Commands to try afterwards: words of `cargo lab try --`.
const NEXT: [&str; 5] = [
    "ctl ping",
    "ctl highstate --test",
    "ctl render worker-1",
    "ctl grains worker-1",
    "ctl job list",
];

/// The output of the tour.
#[derive(Debug)]
pub enum Screen {
    /// Standard output, as it comes.
    Terminal,
    /// A text, for a test.
    Kept(String),
}

/// A tour, whether it runs or not.
#[derive(Debug)]
pub struct Tour {
    programs: PathBuf,
    state: PathBuf,
    /// The output of the tour.
    pub screen: Screen,
    /// Held while something starts or stops.
    lock: Option<File>,
}

impl Tour {
    /// The tour of these programs whose files are in the directory `state`.
    #[must_use]
    pub fn new(programs: &Path, state: &Path, screen: Screen) -> Self {
        Self {
            programs: programs.to_owned(),
            state: state.to_owned(),
            screen,
            lock: None,
        }
    }

    /// Refuses if it cannot work. Takes no time, so that this is known before anything is built.
    ///
    /// # Errors
    /// A program is missing, or the kernel refuses namespaces.
    pub fn begin(&mut self) -> io::Result<()> {
        self.say("A master and a minion of Halite, in namespaces and a root of their own: nothing of this machine is read or changed.");
        programs::require(&NEEDED)?;
        if programs::require(&[("perl", "perl-base")]).is_err() {
            programs::require(&[("ip", "iproute2")])?;
        }
        namespaces::options()?;
        self.claim()
    }

    /// Starts it, replacing a running one, shows everything, and leaves it running.
    ///
    /// # Errors
    /// A step failed; nothing is left running.
    pub fn run(&mut self) -> io::Result<()> {
        self.start().and_then(|()| self.show()).map_err(|error| {
            let logs = ["master.log", "minion.log"].map(|name| self.log(name));
            let ended = match self.end() {
                Ok(()) => String::new(),
                Err(error) => format!("\n{error}"),
            };
            io::Error::other(format!("{error}{}{ended}", logs.concat()))
        })
    }

    /// Stops it and removes its files.
    ///
    /// # Errors
    /// Its processes or files belong to another user.
    pub fn down(&mut self) -> io::Result<()> {
        self.end()?;
        self.say("Nothing runs any more, and its files are removed.");
        Ok(())
    }

    /// A command that runs one of the programs inside.
    ///
    /// # Errors
    /// The tour does not run, or does not have the program.
    pub fn enter(&self, words: &[&str]) -> io::Result<Command> {
        match words {
            [program, arguments @ ..] if PROGRAMS.contains(program) => {
                namespaces::enter(&self.root(), program, arguments)
            }
            _ => Err(io::Error::other(format!(
                "the only programs inside are {}",
                PROGRAMS.join(", ")
            ))),
        }
    }

    fn root(&self) -> PathBuf {
        self.state.join("root")
    }

    /// Takes the claim on the state directory, stops running processes and removes the files.
    fn end(&mut self) -> io::Result<()> {
        self.claim()?;
        namespaces::end(&self.root())?;
        if self.state.exists() {
            let what = || format!("cannot remove {}", self.state.display());
            fs::remove_dir_all(&self.state).context(what)?;
        }
        Ok(())
    }

    /// Waits for another `cargo lab try` that starts or stops the same tour.
    fn claim(&mut self) -> io::Result<()> {
        if self.lock.is_some() {
            return Ok(());
        }
        let path = self.state.with_extension("lock");
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let lock = File::create(&path).context(|| format!("cannot make {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                self.say("Waiting for another `cargo lab try` of this clone to end.");
                lock.lock()?;
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        self.lock = Some(lock);
        Ok(())
    }

    fn start(&mut self) -> io::Result<()> {
        self.end()?;
        let root = self.root();
        root::make(&root, &self.programs)?;
        self.say(&format!(
            "\nThe master starts in {}; waiting until it answers.",
            shown(&root)
        ));
        let logs = ["master.log", "minion.log"].map(|name| self.state.join(name));
        let mut child = namespaces::start(&root, &logs[0], &logs[1])?;
        self.wait("the master to answer", &["ctl", "key", "list"], &mut child)?;

        self.say("\nEnrol the minion worker-1 with a token:");
        let create = ["ctl", "token", "create", "--id", "worker-1"];
        let answer = self.carry_out(&inside_line(&create), self.enter(&create)?)?;
        let enrol = ["halite-minion", "enrol", "--master", "127.0.0.1:4550"];
        let with = ["--id", "worker-1", "--token", token(&answer)?];
        self.inside(&[&enrol[..], &with].concat())?;
        self.say("\nWaiting until the minion answers.");
        let ping = ["ctl", "ping", "worker-1"];
        self.wait("the minion to answer", &ping, &mut child)?;
        self.inside(&ping)?;
        Ok(())
    }

    /// The tour itself.
    fn show(&mut self) -> io::Result<()> {
        let root = self.root();
        let custom = shown(&root.join("etc/halite/custom/init.sls"));
        self.say(&format!(
            "\nIts declared states ({custom}), not applied yet:"
        ));
        self.inside(&["ctl", "highstate", "--test"])?;
        self.say("\nApply it:");
        self.inside(&["ctl", "highstate"])?;
        self.say("\nDamage a file's content, a mode and a link:");
        let path = |inside: &str| shown(&root.join(inside));
        self.on_the_machine(&format!("echo 'edited by hand' >> {}", path("etc/motd")))?;
        self.on_the_machine(&format!("chmod 777 {}", path("srv/app/settings.conf")))?;
        self.on_the_machine(&format!("ln -sfn /dev/null {}", path("srv/app/current")))?;
        self.say("\nThe drift:");
        self.inside(&["ctl", "highstate", "--test"])?;
        self.say("\nRepair it:");
        self.inside(&["ctl", "highstate"])?;
        self.say("\nNothing differs any more:");
        self.inside(&["ctl", "highstate", "--test"])?;
        let next = NEXT.map(|words| format!("  cargo lab try -- {words}\n"));
        self.say(&format!(
            "\nMaster and minion keep running. Edit {custom} for states of your own. Try next:\n{}\
             Stop it and remove its files:\n  cargo lab try --down\n\
             Services and packages need systemd, and Kubernetes needs hosts: `cargo lab demo` shows them.",
            next.concat()
        ));
        Ok(())
    }

    /// Polls until the command succeeds.
    fn wait(&self, what: &str, words: &[&str], master: &mut Child) -> io::Result<()> {
        let start = Instant::now();
        loop {
            let Err(missing) = self.enter(words).and_then(|mut it| programs::run(&mut it)) else {
                return Ok(());
            };
            if let Some(status) = master.try_wait()? {
                return Err(io::Error::other(format!("the master ended with {status}")));
            }
            if start.elapsed() > ANSWER {
                let seconds = ANSWER.as_secs();
                let text = format!("waited {seconds} s for {what}; still missing: {missing}");
                return Err(io::Error::other(text));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Shows a command, and runs it inside.
    fn inside(&mut self, words: &[&str]) -> io::Result<()> {
        let mut command = self.enter(words)?;
        if matches!(self.screen, Screen::Terminal) {
            // In colours, as for a person.
            command.stdout(Stdio::inherit());
        }
        self.carry_out(&inside_line(words), command).map(drop)
    }

    /// Shows a line of shell, and runs it.
    fn on_the_machine(&mut self, line: &str) -> io::Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        self.carry_out(line, command).map(drop)
    }

    /// Shows a line and its command's output, and returns that output, unless the command prints it
    /// itself.
    fn carry_out(&mut self, line: &str, mut command: Command) -> io::Result<String> {
        self.say(&format!("$ {line}"));
        let output = command
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context(|| format!("cannot run `{line}`"))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        self.say(printed.trim_end());
        if !output.status.success() {
            let text = format!("`{line}` ended with {}", output.status);
            return Err(io::Error::other(text));
        }
        Ok(printed)
    }

    fn say(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match &mut self.screen {
            // Without a reader a program's step fails and stops running processes, which a panic
            // here would not.
            Screen::Terminal => drop(writeln!(io::stdout(), "{text}")),
            Screen::Kept(kept) => {
                kept.push_str(text);
                kept.push('\n');
            }
        }
    }

    /// The end of a log, for the message of a failure.
    fn log(&self, name: &str) -> String {
        let text = fs::read_to_string(self.state.join(name)).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let end = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
        match end {
            [] => String::new(),
            lines => format!("\nend of {name}:\n  {}", lines.join("\n  ")),
        }
    }
}

/// The line by which a person runs a program inside.
fn inside_line(words: &[&str]) -> String {
    format!("cargo lab try -- {}", words.join(" "))
}

/// The token in the answer of `ctl token create`.
fn token(answer: &str) -> io::Result<&str> {
    let value = answer.lines().find_map(|line| line.strip_prefix("token "));
    let missing = || io::Error::other("`ctl token create` printed no token");
    value.map(str::trim).ok_or_else(missing)
}

/// A path as a person types it: relative to the working directory if it is below, quoted for a
/// shell if needed.
fn shown(path: &Path) -> String {
    let here = env::current_dir().unwrap_or_default();
    let path = path.strip_prefix(&here).unwrap_or(path).to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if path.chars().all(is_plain) {
        return path.into_owned();
    }
    format!("'{}'", path.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_displayed_as_typed() {
        let here = env::current_dir().unwrap();
        assert_eq!(shown(&here.join("target/try")), "target/try");
        assert_eq!(shown(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }

    #[test]
    fn the_token_is_found_in_the_answer() {
        assert_eq!(token("token    a.b.c\nexpires  soon\n").unwrap(), "a.b.c");
        assert!(token("refused").is_err());
    }
}
