//! The system's `ssh`, so that the operator's configuration, agent, keys and known hosts apply.

use std::io;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::str::FromStr;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Time for a host to answer and to start a shell.
const CHECK: Duration = Duration::from_secs(30);
/// Time for the command that a new host runs, which fetches the minion's program.
const JOIN: Duration = Duration::from_mins(10);
/// Options of every call: whatever the operator's configuration says, `ssh` runs one command,
/// forwards nothing, and leaves no process behind that holds its output open.
const OPTIONS: [&str; 8] = [
    "ConnectTimeout=10",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
    "ControlMaster=no",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "RemoteCommand=none",
];
/// Never asks, and never accepts a key that is not known.
const BATCH: [&str; 2] = ["BatchMode=yes", "StrictHostKeyChecking=yes"];
/// `ssh` asks on the terminal for a key that is not known, displays its fingerprint, and records an
/// accepted key.
const ASKS: [&str; 4] = [
    "BatchMode=no",
    "StrictHostKeyChecking=ask",
    "PasswordAuthentication=no",
    "KbdInteractiveAuthentication=no",
];
/// The environment of calls that never ask. The `ssh` of a jump host has none of the options above,
/// and would ask on the terminal.
const SILENT: [(&str, &str); 2] = [
    ("SSH_ASKPASS_REQUIRE", "force"),
    ("SSH_ASKPASS", "/bin/false"),
];
/// The programs without which a host cannot join; the others belong to every system.
const TOOLS: &str =
    "command -v curl >/dev/null || { echo 'curl is missing there; install it' >&2; exit 1; }\n";
/// Lines that the scripts print at their end. Exit code 0 proves nothing: an account may have a
/// forced command that only prints a message.
const READY: &str = "halite-ready";
const JOINED: &str = "halite-joined";
/// The exit code of `ssh` for its own errors.
const OWN_ERROR: i32 = 255;

/// The user of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshUser(String);

/// A text that is not a user.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a user is a word that does not begin with `-`, for example root")]
pub struct InvalidUser;

impl FromStr for SshUser {
    type Err = InvalidUser;

    fn from_str(text: &str) -> Result<Self, InvalidUser> {
        let is_odd = |c: char| c.is_whitespace() || c.is_control();
        if text.is_empty() || text.starts_with('-') || text.contains(is_odd) {
            return Err(InvalidUser);
        }
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Display for SshUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A failed login or command on a host.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// There is no `ssh`.
    #[error("cannot run ssh; install the package openssh-client")]
    Program(#[source] io::Error),
    /// The host's key is not known, or the operator did not accept it.
    #[error(
        "cannot log in to {login}: its host key, or that of a jump host, is in no known_hosts file; compare its \
         fingerprint with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on that host, and accept it with `ssh {login}`"
    )]
    UnknownKey {
        /// User and host.
        login: String,
    },
    /// The host has another key than before.
    #[error(
        "cannot log in to {login}: its host key is not the one in known_hosts, so another host may have answered; \
         if the host was installed again, remove the old key with `ssh-keygen -R {host}`"
    )]
    ChangedKey {
        /// User and host.
        login: String,
        /// The host.
        host: String,
    },
    /// The connection or the login failed.
    #[error("cannot log in to {login}: {said}; `ssh {login}` must work without a password")]
    Login {
        /// User and host.
        login: String,
        /// The words of `ssh`.
        said: String,
    },
    /// The command on the host failed.
    #[error("cannot {what} on {login}: {said}")]
    Remote {
        /// The command.
        what: &'static str,
        /// User and host.
        login: String,
        /// Its last words.
        said: String,
    },
    /// The host did not finish in time.
    #[error(
        "cannot {what} on {login}: it did not finish within {} s, and may still run there; {remedy}",
        limit.as_secs()
    )]
    Late {
        /// The command.
        what: &'static str,
        /// User and host.
        login: String,
        /// The time that it had.
        limit: Duration,
        /// The next thing to do.
        remedy: &'static str,
    },
}

/// A script that runs on a host.
struct Script<'a> {
    /// Its purpose.
    what: &'static str,
    text: &'a str,
    /// The line that it prints when it has succeeded; `None` if another call checks that.
    proof: Option<&'static str>,
    /// A text to hide in errors.
    secret: &'a str,
    /// The time that it has, and the remedy if that is too short. Without a limit, `ssh` may ask
    /// the operator.
    limit: Option<(Duration, &'static str)>,
}

/// Logins of one user on several hosts.
#[derive(Debug)]
pub struct Ssh {
    program: PathBuf,
    user: SshUser,
}

impl Ssh {
    /// Logins with the `ssh` in `PATH`.
    pub fn new(user: SshUser) -> Self {
        Self {
            program: PathBuf::from("ssh"),
            user,
        }
    }

    #[cfg(test)]
    pub fn with_program(program: PathBuf, user: SshUser) -> Self {
        Self { program, user }
    }

    /// Checks that the host answers with a known key, and that a command can be root there and has
    /// its tools. Changes nothing.
    ///
    /// # Errors
    /// The first of these that fails.
    pub async fn check(&self, host: &str) -> Result<(), SshError> {
        let what = match self.user.0.as_str() {
            "root" => "prepare the new host",
            _ => "use sudo without a password",
        };
        let script = Script {
            what,
            text: &format!("{TOOLS}echo {READY}\n"),
            proof: Some(READY),
            secret: "",
            limit: Some((CHECK, "log in there to see what waits")),
        };
        self.run(host, &script).await
    }

    /// Lets `ssh` ask the operator for the host's key. It records an accepted key in the operator's
    /// known_hosts. The host must then pass [`Ssh::check`].
    ///
    /// # Errors
    /// The operator did not accept the key, or the login fails.
    pub async fn ask(&self, host: &str) -> Result<(), SshError> {
        let script = Script {
            what: "prepare the new host",
            text: TOOLS,
            proof: None,
            secret: "",
            limit: None,
        };
        self.run(host, &script).await
    }

    /// Runs the command that makes the host join. It goes to the standard input of a shell: every
    /// user of both hosts can read command lines. `secret` is hidden in errors.
    ///
    /// # Errors
    /// The login or the command fails.
    pub async fn join(&self, host: &str, command: &str, secret: &str) -> Result<(), SshError> {
        let script = Script {
            what: "enrol the host",
            text: &format!("{command}\n[ $? -eq 0 ] && echo {JOINED}\n"),
            proof: Some(JOINED),
            secret,
            limit: Some((
                JOIN,
                "check there that ports 4550 and 4551 of the master are reachable",
            )),
        };
        self.run(host, &script).await
    }

    fn command(&self, can_ask: bool, host: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-T");
        let options = if can_ask {
            &ASKS[..]
        } else {
            command.envs(SILENT);
            &BATCH[..]
        };
        for option in OPTIONS.iter().chain(options) {
            command.args(["-o", option]);
        }
        let shell = match self.user.0.as_str() {
            "root" => "sh",
            _ => "sudo -n sh",
        };
        command.args(["-l", &self.user.0, host, shell]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn run(&self, host: &str, script: &Script<'_>) -> Result<(), SshError> {
        let login = format!("{}@{host}", self.user);
        let ended = async {
            let mut child = self.command(script.limit.is_none(), host).spawn()?;
            if let Some(mut input) = child.stdin.take() {
                // A host that ends early says why in its output.
                let _ = input.write_all(script.text.as_bytes()).await;
            }
            child.wait_with_output().await
        };
        let ended = match script.limit {
            None => ended.await,
            Some((limit, remedy)) => match tokio::time::timeout(limit, ended).await {
                Ok(ended) => ended,
                Err(_) => {
                    return Err(SshError::Late {
                        what: script.what,
                        login,
                        limit,
                        remedy,
                    });
                }
            },
        };
        let output = ended.map_err(SshError::Program)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let is_proven =
            (script.proof).is_none_or(|proof| printed.lines().any(|line| line == proof));
        if output.status.success() && is_proven {
            return Ok(());
        }
        Err(failure(&output, script, login, host))
    }
}

/// The error of an `ssh` that failed. Its texts are those of OpenSSH, which has no translations.
fn failure(output: &Output, script: &Script<'_>, login: String, host: &str) -> SshError {
    let said = match output.stderr.trim_ascii() {
        [] => &output.stdout,
        _ => &output.stderr,
    };
    let mut said = String::from_utf8_lossy(said).into_owned();
    if !script.secret.is_empty() {
        said = said.replace(script.secret, "…");
    }
    if output.status.code() != Some(OWN_ERROR) {
        let what = script.what;
        let said = last_words(&said, 3);
        return SshError::Remote { what, login, said };
    }
    if said.contains("IDENTIFICATION HAS CHANGED") {
        let host = host.to_owned();
        return SshError::ChangedKey { login, host };
    }
    if said.contains("Host key verification failed") {
        return SshError::UnknownKey { login };
    }
    let said = last_words(&said, 1);
    SshError::Login { login, said }
}

/// The last lines of a text, as one line.
fn last_words(text: &str, lines: usize) -> String {
    let all: Vec<&str> = (text.lines().map(str::trim))
        .filter(|line| !line.is_empty())
        .collect();
    if all.is_empty() {
        return "it said nothing".to_owned();
    }
    all[all.len().saturating_sub(lines)..].join("; ")
}

#[cfg(test)]
#[path = "ssh_tests.rs"]
mod tests;
