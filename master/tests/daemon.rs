//! The daemon as systemd runs it: init, run, ready, stop; and a store that it must not start with.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use halite_proto::transport::{ClientIdentity, connect};
use halite_proto::v1;
use halite_proto::v1::operator_client::OperatorClient;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Limit for what has to come: it ends a test that would hang, on the slowest machine.
const SOON: Duration = Duration::from_secs(120);

struct Host {
    directory: TempDir,
    /// A loopback address of its own, so that the fixed ports are free.
    address: String,
    systemd: UnixDatagram,
}

impl Host {
    fn new(number: u8) -> Self {
        let directory = TempDir::new().unwrap();
        let [_, _, high, low] = std::process::id().to_be_bytes();
        // 127.128.0.0/9 has no other user; each test has its own second octet.
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

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, verb: &str) -> Command {
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

    fn init(&self) -> Output {
        self.command("init").output().unwrap()
    }

    fn told(&self) -> String {
        let mut buffer = [0; 64];
        let length = self
            .systemd
            .recv(&mut buffer)
            .expect("the daemon does not say anything to systemd");
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    fn stop(&self, child: Child) -> Output {
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }

    fn identity(&self) -> (ClientIdentity, String) {
        let read =
            |name: &str| std::fs::read_to_string(self.path("etc/operator").join(name)).unwrap();
        let identity = ClientIdentity {
            certificate_pem: read("operator.crt"),
            key_pem: read("operator.key"),
        };
        (identity, read("ca.crt"))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn init_run_call_stop() {
    let host = Host::new(0);
    let refused = host.command("run").output().unwrap();
    assert!(!refused.status.success());
    assert!(
        text(&refused.stderr).contains("halite-master"),
        "{refused:?}"
    );
    let first = host.init();
    assert!(first.status.success(), "{first:?}");
    assert_eq!(host.init().stdout, first.stdout);

    let child = host
        .command("run")
        .env("HALITE_LOG_FORMAT", "json")
        .spawn()
        .unwrap();
    assert_eq!(host.told(), "READY=1");
    let (identity, ca) = host.identity();
    let channel = connect(&format!("{}:4550", host.address), &ca, Some(&identity))
        .await
        .unwrap();
    let mut operator = OperatorClient::new(channel.clone());
    let token = operator
        .create_token(v1::CreateTokenRequest::default())
        .await
        .unwrap()
        .into_inner()
        .token;
    assert!(
        first
            .stdout
            .windows(64)
            .any(|part| part == token.rsplit('.').next().unwrap().as_bytes())
    );

    let metrics = get(&host.address, "/metrics");
    assert!(
        metrics
            .contains("halite_master_calls_total{method=\"Operator/CreateToken\",code=\"Ok\"} 1"),
        "{metrics}"
    );
    assert!(get(&host.address, "/healthz").ends_with("ok\n"));

    let output = host.stop(child);
    assert_eq!(host.told(), "STOPPING=1");
    let log = text(&output.stderr);
    assert!(log.lines().all(|line| line.starts_with('{')), "{log}");
    assert!(log.contains("Operator/CreateToken"), "{log}");
    assert!(
        !log.contains(token.split('.').nth(1).unwrap()),
        "a secret is in the log"
    );
    assert!(!channel.closed().await.is_empty());
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(format!("{address}:4552")).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

#[test]
fn a_master_that_works_feeds_the_watchdog() {
    let host = Host::new(3);
    assert!(host.init().status.success());
    let mut command = host.command("run");
    command.env("WATCHDOG_USEC", "2000000");
    let child = command.spawn().unwrap();
    assert_eq!(host.told(), "READY=1");
    assert_eq!(host.told(), "WATCHDOG=1");
    assert_eq!(host.told(), "WATCHDOG=1");
    host.stop(child);
}

#[test]
fn a_damaged_store_stops_the_start_and_the_advice_helps() {
    let host = Host::new(1);
    assert!(host.init().status.success());
    let child = host.command("run").spawn().unwrap();
    assert_eq!(host.told(), "READY=1");
    // The copy is made beside the work.
    let copy = host.path("state/store.db.backup");
    while !Path::new(&copy).exists() {
        std::thread::yield_now();
    }
    host.stop(child);
    assert_eq!(host.told(), "STOPPING=1");

    let store = host.path("state/store.db");
    std::fs::write(&store, "this was a database once").unwrap();
    let refused = host.command("run").output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("is damaged"), "{said}");

    // What it says to do, done by a shell; systemd is not here.
    let advice = said.split_once("to go back to it: ").unwrap().1.trim();
    let advice = advice
        .replace("systemctl stop halite-master", "true")
        .replace("systemctl start halite-master", "true");
    assert!(!advice.contains("systemctl"), "{advice}");
    let done = Command::new("sh").arg("-c").arg(&advice).output().unwrap();
    assert!(Path::new(&store).exists(), "{advice}: {done:?}");
    let child = host.command("run").spawn().unwrap();
    assert_eq!(host.told(), "READY=1");
    host.stop(child);
}

#[test]
fn a_port_in_use_is_named() {
    let host = Host::new(2);
    assert!(host.init().status.success());
    let _other = std::net::TcpListener::bind(format!("{}:4550", host.address)).unwrap();
    let refused = host.command("run").output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(
        said.contains(&format!(
            "cannot listen on {}:4550: Address already in use",
            host.address
        )),
        "{said}"
    );
}
