//! A host with the daemon, its directories and a fake systemd that receives its notifications.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use halite_proto::transport::ClientIdentity;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Timeout for expected events: it ends a test that would hang, even on the slowest machine.
pub const SOON: Duration = Duration::from_secs(120);

pub struct DaemonHost {
    pub directory: TempDir,
    /// A loopback address for this host alone, so that the fixed ports are free.
    pub address: String,
    systemd: UnixDatagram,
}

impl DaemonHost {
    pub fn new(number: u8) -> Self {
        let directory = TempDir::new().unwrap();
        let [_, _, high, low] = std::process::id().to_be_bytes();
        // No one else uses 127.128.0.0/9; each test has its own second octet.
        let address = format!("127.{}.{high}.{low}", 128 + number);
        let shown = directory.path().display();
        let config = format!(
            "cluster: prod\nlisten: {address}:4550\nmetrics: {address}:4552\nadvertise: [{address}]\n\
             state_dir: {shown}/state\nconfig_dir: {shown}/etc\nbundle: {shown}/bundle\n"
        );
        std::fs::write(directory.path().join("master.yaml"), config).unwrap();
        let systemd = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        systemd.set_read_timeout(Some(SOON)).unwrap();
        Self {
            directory,
            address,
            systemd,
        }
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    pub fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_halite-master"));
        command
            .arg(verb)
            .arg("--config")
            .arg(self.path("master.yaml"));
        command
            .env("NOTIFY_SOCKET", self.path("notify"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn init(&self) -> Output {
        self.command("init").output().unwrap()
    }

    pub fn told(&self) -> String {
        let mut buffer = [0; 64];
        let length = self
            .systemd
            .recv(&mut buffer)
            .expect("the daemon does not notify systemd");
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    pub fn stop(&self, child: Child) -> Output {
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }

    pub fn identity(&self) -> (ClientIdentity, String) {
        let read =
            |name: &str| std::fs::read_to_string(self.path("etc/operator").join(name)).unwrap();
        let identity = ClientIdentity {
            certificate_pem: read("operator.crt"),
            key_pem: read("operator.key"),
        };
        (identity, read("ca.crt"))
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
