//! Scrapes over real connections: who is served, and who is not.

use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

use halite_core::ca::{Cas, Profile};
use halite_core::clock::{Clock as _, SystemClock};
use halite_proto::pki::PrivateKey;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::super::tests::exposition;
use super::*;
use crate::health_rounds::LatestHealth;

const SITE: &str = "site";
/// A source in the declared network, and one outside it.
const DECLARED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 9);

/// A site with its CAs, and the files of the port.
struct Site {
    directory: TempDir,
    cas: Cas,
    port: PrometheusPort,
}

/// A certificate with its key, PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Site {
    /// A site; each test has a number of its own, so that the port is free.
    fn new(number: u8, asks_clients: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cas = Cas::create_or_load(directory.path(), "prod", SystemClock.now()).unwrap();
        let path = |name: &str| directory.path().join(name);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 160 + number, high, low);
        let port = PrometheusPort {
            listen: (address, 4553).into(),
            from: vec!["127.0.0.0/24".parse().unwrap()],
            certificate: path("metrics.crt"),
            key: path("metrics.key"),
            client_ca: asks_clients.then(|| path("clients.pem")),
        };
        let site = Self {
            directory,
            cas,
            port,
        };
        let identity = site.identity(SITE, true);
        site.write(&identity);
        // The CA of clients is a CA of this test's choice.
        let clients = site.cas.certificate_pem("front-proxy").unwrap();
        std::fs::write(site.directory.path().join("clients.pem"), clients).unwrap();
        site
    }

    fn identity(&self, ca: &str, is_server: bool) -> Identity {
        let key = PrivateKey::generate().unwrap();
        let profile = Profile {
            common_name: "cp-1".to_owned(),
            addresses: vec![self.port.listen.ip()],
            server_auth: is_server,
            client_auth: !is_server,
            days: 365,
            ..Profile::default()
        };
        let request = key.request("cp-1").unwrap();
        let issued = self
            .cas
            .sign(ca, &request, &profile, SystemClock.now())
            .unwrap();
        Identity {
            certificate: issued.certificate_pem,
            key: key.to_pem(),
        }
    }

    fn write(&self, identity: &Identity) {
        std::fs::write(&self.port.certificate, &identity.certificate).unwrap();
        std::fs::write(&self.port.key, &identity.key).unwrap();
    }

    fn serve(&self) -> JoinHandle<()> {
        let port = self.port.clone();
        let exposition = Arc::new(exposition(LatestHealth::default()));
        tokio::spawn(async move { serve_tls(&port, &exposition).await })
    }

    /// The answer to a scrape from this address, by a client that trusts this CA.
    async fn scrape(
        &self,
        from: Ipv4Addr,
        trusted: &str,
        identity: Option<&Identity>,
    ) -> io::Result<String> {
        let mut roots = RootCertStore::empty();
        for ca in pki::certificates(self.cas.certificate_pem(trusted).unwrap()).unwrap() {
            roots.add(ca).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = pki::certificates(&identity.certificate).unwrap();
                let key = pki::private_key(&identity.key).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let mut left = 30_000;
        let stream = loop {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((from, 0).into()).unwrap();
            match socket.connect(self.port.listen).await {
                Ok(stream) => break stream,
                // It is about to listen.
                Err(error) => {
                    assert!(left > 0, "{error}");
                    left -= 1;
                    sleep(Duration::from_millis(10)).await;
                }
            }
        };
        let name = ServerName::from(self.port.listen.ip());
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: cp-1\r\nConnection: close\r\n\r\n")
            .await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}

fn is_served(answer: &io::Result<String>) -> bool {
    let text = answer.as_ref().map(String::as_str).unwrap_or_default();
    let has_all = text.contains("halite_master_info{") && text.ends_with("# EOF\n");
    text.starts_with("HTTP/1.1 200 OK\r\n") && has_all
}

#[tokio::test]
async fn a_client_that_trusts_the_sites_ca_scrapes_and_no_other_does() {
    let site = Site::new(0, false);
    let served = site.serve();
    let answer = site.scrape(DECLARED, SITE, None).await;
    assert!(is_served(&answer), "{answer:?}");
    let error = site.scrape(DECLARED, "kubernetes", None).await.unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    // A connection in plain HTTP gets no metrics.
    let mut plain = TcpStream::connect(site.port.listen).await.unwrap();
    plain
        .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let mut bytes = Vec::new();
    let _ = plain.read_to_end(&mut bytes).await;
    assert!(
        !String::from_utf8_lossy(&bytes).contains("halite"),
        "{bytes:?}"
    );
    served.abort();
}

#[tokio::test]
async fn a_client_from_another_network_is_not_served() {
    let site = Site::new(1, false);
    let served = site.serve();
    assert!(is_served(&site.scrape(DECLARED, SITE, None).await));
    let answer = site.scrape(OTHER, SITE, None).await;
    assert!(answer.is_err(), "{answer:?}");
    served.abort();
}

#[tokio::test]
async fn with_a_ca_of_clients_a_client_needs_a_certificate_of_it() {
    let site = Site::new(2, true);
    let served = site.serve();
    let (own, other) = (
        site.identity("front-proxy", false),
        site.identity("etcd", false),
    );
    let answer = site.scrape(DECLARED, SITE, Some(&own)).await;
    assert!(is_served(&answer), "{answer:?}");
    for identity in [None, Some(&other)] {
        let answer = site.scrape(DECLARED, SITE, identity).await;
        assert!(answer.is_err(), "{answer:?}");
    }
    served.abort();
}

#[tokio::test]
async fn a_renewed_certificate_is_used_and_a_missing_one_is_named() {
    let site = Site::new(3, false);
    let (listener, files, acceptor) = begin(&site.port).await.unwrap();
    drop(listener);
    let exposition = Arc::new(exposition(LatestHealth::default()));
    let mut server = PrometheusServer {
        port: &site.port,
        exposition: &exposition,
        files,
        acceptor,
        strangers: BTreeSet::new(),
    };
    let renewed = site.identity(SITE, true);
    site.write(&renewed);
    server.reload().await.unwrap();
    assert_eq!(server.files.certificate, renewed.certificate);
    // Certificate and key are replaced one after the other: a pair that does not match is refused,
    // and tried again.
    std::fs::write(&site.port.key, site.identity(SITE, true).key).unwrap();
    assert!(matches!(server.reload().await, Err(PortError::Tls(_))));
    assert_eq!(
        server.files.key, renewed.key,
        "the old pair is still in use"
    );
    std::fs::remove_file(&site.port.key).unwrap();
    let error = chain(&server.reload().await.unwrap_err());
    assert!(
        error.contains("metrics.key") && error.contains("ctl highstate"),
        "{error}"
    );
}

#[test]
fn attempts_from_other_networks_are_logged_once_each_and_not_without_end() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let site = Site::new(4, false);
    let (_, files, acceptor) = runtime.block_on(begin(&site.port)).unwrap();
    let exposition = Arc::new(exposition(LatestHealth::default()));
    let mut server = PrometheusServer {
        port: &site.port,
        exposition: &exposition,
        files,
        acceptor,
        strangers: BTreeSet::new(),
    };
    assert!(
        server.is_declared("::ffff:127.0.0.7".parse().unwrap()),
        "IPv4 in IPv6"
    );
    for last in 0..100 {
        assert!(!server.is_declared(Ipv4Addr::new(10, 0, 0, last).into()));
    }
    assert_eq!(server.strangers.len(), LOGGED);
}

/// A Prometheus server that ends with the test.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The answer of a Prometheus server to a query; empty while it does not answer.
fn query(address: SocketAddr, words: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = std::net::TcpStream::connect(address) {
        let _ = write!(
            stream,
            "GET /api/v1/query?query={words} HTTP/1.0\r\nHost: a\r\n\r\n"
        );
        let _ = stream.read_to_string(&mut answer);
    }
    answer
}

/// `cargo lab test --full source:` builds the program and runs this test.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs HALITE_PROMETHEUS, the path of a Prometheus server"]
async fn a_real_prometheus_scrapes_with_the_ca_and_not_without_it() {
    let program =
        std::env::var_os("HALITE_PROMETHEUS").expect("HALITE_PROMETHEUS names the program");
    let site = Site::new(5, false);
    let served = site.serve();
    let path = |name: &str| site.directory.path().join(name);
    let ca = path("site-ca.crt");
    std::fs::write(&ca, site.cas.certificate_pem(SITE).unwrap()).unwrap();
    let target = site.port.listen;
    let job = |name: &str, tls: &str| {
        format!(
            "- {{job_name: {name}, scheme: https, tls_config: {{{tls}}}, static_configs: [{{targets: ['{target}']}}]}}\n"
        )
    };
    let with = job("with", &format!("ca_file: {}", ca.display()));
    let rules = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../bundle/builder/src/alerts.yaml"
    );
    let text = format!(
        "global: {{scrape_interval: 1s}}\nrule_files: [{rules}]\nscrape_configs:\n{with}{}",
        job("without", "")
    );
    std::fs::write(path("prometheus.yml"), text).unwrap();
    let own = SocketAddr::new(target.ip(), 9090);
    let mut command = Command::new(program);
    command.arg(format!(
        "--config.file={}",
        path("prometheus.yml").display()
    ));
    command.arg(format!("--storage.tsdb.path={}", path("data").display()));
    command.arg(format!("--web.listen-address={own}"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let _prometheus = Prometheus(command.spawn().unwrap());
    // `up` has a value for each job after its first scrape.
    let begun = tokio::time::Instant::now();
    let answer = loop {
        let answer = query(own, "up");
        if answer.contains("\"with\"") && answer.contains("\"without\"") {
            break answer;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{answer}");
        sleep(Duration::from_millis(200)).await;
    };
    let up = |job: &str| query(own, &format!("up%7Bjob%3D%22{job}%22%7D"));
    assert!(up("with").contains(",\"1\"]"), "{answer}");
    assert!(up("without").contains(",\"0\"]"), "{answer}");
    let info = query(own, "halite_master_info");
    assert!(info.contains("\"cluster\":\"prod\""), "{info}");
    let known = query(own, "halite_master_job_duration_seconds_bucket");
    assert!(known.contains("state.highstate"), "{known}");
    served.abort();
}
