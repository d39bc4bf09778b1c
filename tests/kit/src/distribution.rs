//! A real registry, the `distribution` program, with TLS and logins.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::files::run;
use crate::registry::{Content, OCI_INDEX};
use crate::tls::Authority;

/// Path of the program.
const PROGRAM: &str = "HALITE_REGISTRY";

/// The registry. It runs until it is dropped. Its login is `me` and `secret`.
pub struct Registry {
    child: Mutex<Child>,
    port: u16,
    agent: ureq::Agent,
}

impl Registry {
    /// Starts a registry that keeps everything in a directory.
    #[must_use]
    pub fn start(dir: &Path, authority: &Authority) -> Self {
        let program = std::env::var_os(PROGRAM).map(PathBuf::from);
        let program = program.unwrap_or_else(|| {
            panic!(
                "{PROGRAM} must name the program; `cargo lab test source:` builds it, and so does: go install \
                    github.com/distribution/distribution/v3/cmd/registry@v3.1.2"
            )
        });
        let files = authority.files(dir);
        let logins = run("apache2-utils", dir, "htpasswd", &["-Bbn", "me", "secret"]);
        std::fs::write(dir.join("htpasswd"), logins).unwrap();
        let agent = agent(authority);
        // Another test may take the port between the two moments.
        for _ in 0..4 {
            let port = TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
                .port();
            if let Some(child) = serve(&program, dir, &files, port, &agent) {
                return Self {
                    child: Mutex::new(child),
                    port,
                    agent,
                };
            }
        }
        panic!("the registry found no free port");
    }

    /// `localhost:PORT`.
    #[must_use]
    pub fn host(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// Pushes everything in the order in which a registry accepts it.
    pub fn push(&self, name: &str, content: &Content) {
        let url = |path: &str| format!("https://{}/v2/{name}/{path}", self.host());
        let login = "Basic bWU6c2VjcmV0";
        for (digest, bytes) in &content.blobs {
            let begun = self
                .agent
                .post(url("blobs/uploads/"))
                .header("Authorization", login)
                .send_empty()
                .unwrap();
            let location = begun.headers()["location"].to_str().unwrap();
            let separator = if location.contains('?') { '&' } else { '?' };
            let put = self
                .agent
                .put(format!("{location}{separator}digest={digest}"))
                .header("Authorization", login);
            put.header("Content-Type", "application/octet-stream")
                .send(bytes.as_slice())
                .unwrap();
        }
        // Images before the indexes that name them.
        let mut manifests: Vec<_> = content.manifests.iter().collect();
        manifests.sort_by_key(|(reference, (kind, _))| {
            (kind == OCI_INDEX, !reference.contains("sha256:"))
        });
        for (reference, (kind, bytes)) in manifests {
            let reference = reference.rsplit_once('/').unwrap().1;
            let put = self
                .agent
                .put(url(&format!("manifests/{reference}")))
                .header("Authorization", login);
            put.header("Content-Type", kind)
                .send(bytes.as_slice())
                .unwrap();
        }
    }

    /// Its answer to a path below `/v2/`; `None` if it has nothing there.
    #[must_use]
    pub fn get(&self, path: &str, accept: &str) -> Option<Vec<u8>> {
        let url = format!("https://{}/v2/{path}", self.host());
        let asked = self
            .agent
            .get(url)
            .header("Authorization", "Basic bWU6c2VjcmV0")
            .header("Accept", accept);
        match asked.call() {
            Ok(mut answer) => Some(
                answer
                    .body_mut()
                    .with_config()
                    .limit(1 << 30)
                    .read_to_vec()
                    .unwrap(),
            ),
            Err(ureq::Error::StatusCode(404)) => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// Stops it.
    pub fn stop(&self) {
        let mut child = self.child.lock().unwrap();
        // It may already have exited.
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A client that trusts that authority.
fn agent(authority: &Authority) -> ureq::Agent {
    let certificate = Certificate::from_pem(&std::fs::read(&authority.path).unwrap()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = TlsConfig::builder().root_certs(RootCerts::from([certificate]));
    let tls = tls.unversioned_rustls_crypto_provider(provider).build();
    ureq::Agent::config_builder()
        .tls_config(tls)
        .proxy(None)
        .build()
        .into()
}

/// Starts the registry on this port and waits until it answers; `None` if the port is taken.
fn serve(
    program: &Path,
    dir: &Path,
    (certificate, key): &(PathBuf, PathBuf),
    port: u16,
    agent: &ureq::Agent,
) -> Option<Child> {
    let text = format!(
        "\
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {root}}}}}
auth: {{htpasswd: {{realm: test, path: {logins}}}}}
http:
  addr: 127.0.0.1:{port}
  tls: {{certificate: {certificate}, key: {key}}}
",
        root = dir.join("storage").display(),
        logins = dir.join("htpasswd").display(),
        certificate = certificate.display(),
        key = key.display(),
    );
    let conf = dir.join("registry.yml");
    std::fs::write(&conf, text).unwrap();
    let log = dir.join("registry.log");
    let mut command = Command::new(program);
    command
        .arg("serve")
        .arg(conf)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    let url = format!("https://localhost:{port}/v2/");
    let answers = || {
        let limit = Some(Duration::from_secs(5));
        let asked = agent.get(&url).config().timeout_global(limit).build();
        // Without a login it answers that it needs one.
        matches!(asked.call(), Err(ureq::Error::StatusCode(401)))
    };
    while !answers() {
        let said = || std::fs::read_to_string(&log).unwrap();
        if child.try_wait().unwrap().is_some() {
            let said = said();
            assert!(
                said.contains("address already in use"),
                "the registry exited: {said}"
            );
            return None;
        }
        assert!(
            started.elapsed() < Duration::from_secs(300),
            "the registry does not answer: {}",
            said()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(child)
}
