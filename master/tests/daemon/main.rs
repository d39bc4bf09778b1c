//! The daemon as systemd runs it: init, run, ready, stop; and a store with which it must not start.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod declaration;
mod host;
mod minions;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use halite_proto::transport::connect;
use halite_proto::v1;
use halite_proto::v1::operator_client::OperatorClient;

use self::host::{DaemonHost, SOON, text};

#[tokio::test(flavor = "multi_thread")]
async fn init_run_call_stop() {
    let host = DaemonHost::new(0);
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

/// The first highstate writes the configuration before any certificate exists.
#[test]
fn a_master_serves_before_the_certificate_of_its_metrics_exists() {
    let host = DaemonHost::new(9);
    let (address, shown) = (&host.address, host.directory.path().display().to_string());
    let mut config = std::fs::read_to_string(host.path("master.yaml")).unwrap();
    config.push_str(&format!(
        "prometheus: {{listen: '{address}:4553', from: [127.0.0.0/8], certificate: {shown}/a.crt, key: {shown}/a.key}}\n"
    ));
    std::fs::write(host.path("master.yaml"), config).unwrap();
    assert!(host.init().status.success());
    let child = host.command("run").spawn().unwrap();
    assert_eq!(host.told(), "READY=1");
    let metrics = get(&host.address, "/metrics");
    assert!(
        metrics.contains("halite_master_info{cluster=\"prod\""),
        "{metrics}"
    );
    // Nothing about the cluster: no round of checks has run.
    assert!(!metrics.contains("halite_healthy"), "{metrics}");
    let log = text(&host.stop(child).stderr);
    assert!(
        log.contains("a.crt") && log.contains("trying again"),
        "{log}"
    );
}

/// Replaces a CA by one of the same name that expired long ago.
fn expire(host: &DaemonHost, name: &str) {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let subject = format!("{name}-ca prod");
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, subject);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_before = rcgen::date_time_ymd(2010, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let directory = host.path("state/ca");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join(format!("{name}.crt")), certificate).unwrap();
    std::fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

/// The CA of the identities among them: a command still reaches the master, and reads which.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_with_expired_cas_starts_answers_and_says_which() {
    let host = DaemonHost::new(10);
    expire(&host, "halite");
    expire(&host, "etcd");
    let first = host.init();
    assert!(first.status.success(), "{first:?}");
    let child = host.command("run").spawn().unwrap();
    assert_eq!(host.told(), "READY=1");
    let (identity, ca) = host.identity();
    let channel = connect(&format!("{}:4550", host.address), &ca, Some(&identity))
        .await
        .unwrap();
    let mut operator = OperatorClient::new(channel);
    let status = operator.status(v1::StatusRequest {}).await.unwrap();
    let status = status.into_inner().json;
    let log = text(&host.stop(child).stderr);
    for name in ["halite", "etcd"] {
        let said = format!("the CA {name} expired on 2020-01-01");
        assert!(log.contains(&said), "{log}");
        assert!(status.contains(&said), "{status}");
    }
    assert!(!log.contains("the CA kubernetes expired"), "{log}");
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
    let host = DaemonHost::new(3);
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
    let host = DaemonHost::new(1);
    assert!(host.init().status.success());
    let child = host.command("run").spawn().unwrap();
    assert_eq!(host.told(), "READY=1");
    // The copy is made in parallel with the work.
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

    // The commands in its message, run by a shell; systemd is missing here.
    let advice = said.split_once("to restore it: ").unwrap().1.trim();
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
    let host = DaemonHost::new(2);
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
