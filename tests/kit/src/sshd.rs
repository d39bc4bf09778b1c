//! A real SSH server on loopback, and an `ssh` that uses nothing of the user's own configuration.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use crate::process::{done, make_program};

/// The environment variable with the path of another `sshd` than that of the package.
const OTHER: &str = "HALITE_SSHD";
const PACKAGED: &str = "/usr/sbin/sshd";
/// Limit of the wait for its start.
const SOON: Duration = Duration::from_secs(30);

/// An SSH server into which root logs in with a key; it ends when dropped.
pub struct SshServer {
    directory: tempfile::TempDir,
    port: u16,
    process: Child,
}

impl SshServer {
    /// Starts the server; `None` if this machine has none, or the tests do not run as root.
    #[must_use]
    pub fn start() -> Option<Self> {
        let program = env::var_os(OTHER).map_or_else(|| PathBuf::from(PACKAGED), PathBuf::from);
        if !program.exists() || !rustix::process::geteuid().is_root() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        for name in ["host_key", "other_key", "user_key"] {
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
            command.arg(directory.path().join(name));
            done(command);
        }
        configure(directory.path(), port);
        let process = spawn(directory.path(), &program);
        let since = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(since.elapsed() < SOON, "sshd does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        Some(Self {
            directory,
            port,
            process,
        })
    }

    /// A path in the directory of this server.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The `ssh` program for this server. It reaches the server under every name of loopback.
    #[must_use]
    pub fn client(&self) -> PathBuf {
        self.path("ssh")
    }

    /// The same on a terminal of its own, on which this answer is typed. `typescript` in the
    /// directory has all that the terminal displayed.
    #[must_use]
    pub fn answering(&self, answer: &str) -> PathBuf {
        let here = self.directory.path().display();
        // A question discards what was typed before it.
        let typing = format!("(sleep 2; echo '{answer}'; sleep 1)");
        let program = format!(
            "#!/bin/sh\n{typing} | script -qec \"ssh -F {here}/ssh_config $*\" {here}/typescript\n"
        );
        make_program(&self.path("answering"), &program);
        self.path("answering")
    }

    /// Makes the client know the server's key, or another one in its place.
    pub fn know(&self, is_right: bool) {
        let name = if is_right {
            "host_key.pub"
        } else {
            "other_key.pub"
        };
        let key = fs::read_to_string(self.path(name)).unwrap();
        let line = format!("[127.0.0.1]:{} {key}", self.port);
        fs::write(self.path("known_hosts"), line).unwrap();
    }
}

fn configure(directory: &Path, port: u16) {
    let here = directory.display();
    let server = format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {here}/host_key\nAuthorizedKeysFile {here}/user_key.pub\n\
         StrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\nPidFile none\n"
    );
    let client = format!(
        "Port {port}\nIdentityFile {here}/user_key\nIdentitiesOnly yes\nUserKnownHostsFile {here}/known_hosts\n\
         GlobalKnownHostsFile /dev/null\nUpdateHostKeys no\n"
    );
    fs::write(directory.join("sshd_config"), server).unwrap();
    fs::write(directory.join("ssh_config"), client).unwrap();
    let program = format!("#!/bin/sh\nexec ssh -F {here}/ssh_config \"$@\"\n");
    make_program(&directory.join("ssh"), &program);
}

/// The server has its own mounts: it needs a user and a directory that come with its package.
fn spawn(directory: &Path, program: &Path) -> Child {
    let script = r#"
        cp /etc/passwd "$0/passwd"
        grep -q ^sshd: "$0/passwd" || echo 'sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin' >> "$0/passwd"
        mount --bind "$0/passwd" /etc/passwd
        mount -t tmpfs tmpfs /run
        mkdir -m 755 /run/sshd
        exec "$1" -D -e -f "$0/sshd_config""#;
    let log = fs::File::create(directory.join("log")).unwrap();
    Command::new("unshare")
        .args(["--mount", "sh", "-ec", script])
        .arg(directory)
        .arg(program)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

impl Drop for SshServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
