//! A real registry, the `distribution` program, with TLS and logins.

use std::{
    fs::File,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use halite_bundle::{
    fetch::{
        Digest, Fetcher, Settings,
        http::{Credentials, Secret},
        oci::{Platform, Puller, Registries, Wanted},
    },
    recipe::Reference,
};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::{
    fixture::{Fixture, content, run},
    registry::{Content, OCI_INDEX},
    tls::Authority,
};

/// Where the program is.
const PROGRAM: &str = "HALITE_REGISTRY";

struct Registry {
    child: Child,
    port: u16,
    agent: ureq::Agent,
}

impl Registry {
    fn start(fixture: &Fixture, authority: &Authority) -> Self {
        let program = std::env::var_os(PROGRAM).map(PathBuf::from);
        let program = program.unwrap_or_else(|| {
            panic!(
                "{PROGRAM} has to name the program; `cargo lab test source:` builds it, and so does: go install \
                    github.com/distribution/distribution/v3/cmd/registry@v3.0.0"
            )
        });
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (certificate, key) = authority.files(&fixture.path(""));
        let logins = run("apache2-utils", &fixture.path(""), "htpasswd", &["-Bbn", "me", "secret"]);
        std::fs::write(fixture.path("htpasswd"), logins).unwrap();
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
            root = fixture.path("storage").display(),
            logins = fixture.path("htpasswd").display(),
            certificate = certificate.display(),
            key = key.display(),
        );
        let conf = fixture.path("registry.yml");
        std::fs::write(&conf, text).unwrap();
        let log = fixture.path("registry.log");
        let mut command = Command::new(program);
        command
            .arg("serve")
            .arg(conf)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let said = || std::fs::read_to_string(&log).unwrap();
            assert!(child.try_wait().unwrap().is_none(), "the registry ended: {}", said());
            assert!(started.elapsed() < Duration::from_secs(30), "the registry does not listen: {}", said());
            std::thread::yield_now();
        }
        let certificate = Certificate::from_pem(&std::fs::read(&authority.path).unwrap()).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder().root_certs(RootCerts::from([certificate]));
        let tls = tls.unversioned_rustls_crypto_provider(provider).build();
        let agent = ureq::Agent::config_builder().tls_config(tls).proxy(None).build().into();
        Self { child, port, agent }
    }

    fn host(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// Pushes everything in the order in which a registry takes it.
    fn push(&self, name: &str, content: &Content) {
        let url = |path: &str| format!("https://{}/v2/{name}/{path}", self.host());
        let login = "Basic bWU6c2VjcmV0";
        for (digest, bytes) in &content.blobs {
            let begun =
                self.agent.post(url("blobs/uploads/")).header("Authorization", login).send_empty().unwrap();
            let location = begun.headers()["location"].to_str().unwrap();
            let separator = if location.contains('?') { '&' } else { '?' };
            let put = self
                .agent
                .put(format!("{location}{separator}digest={digest}"))
                .header("Authorization", login);
            put.header("Content-Type", "application/octet-stream").send(bytes.as_slice()).unwrap();
        }
        // Images before the indexes that name them.
        let mut manifests: Vec<_> = content.manifests.iter().collect();
        manifests.sort_by_key(|(reference, (kind, _))| (kind == OCI_INDEX, !reference.contains("sha256:")));
        for (reference, (kind, bytes)) in manifests {
            let reference = reference.rsplit_once('/').unwrap().1;
            let put = self.agent.put(url(&format!("manifests/{reference}"))).header("Authorization", login);
            put.header("Content-Type", kind).send(bytes.as_slice()).unwrap();
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn images_are_pulled_with_a_login() {
    let fixture = Fixture::new();
    let authority = Authority::new(&fixture.path(""));
    let registry = Registry::start(&fixture, &authority);
    let (gzip, zstd) = (content(700_000, 50), content(300_000, 51));
    let mut all = Content::default();
    let layers: [(&str, &[u8]); 2] = [
        ("application/vnd.oci.image.layer.v1.tar+gzip", &gzip),
        ("application/vnd.oci.image.layer.v1.tar+zstd", &zstd),
    ];
    let amd64 = all.image("app/web", false, "linux/amd64", &layers);
    let arm64 = all.image("app/web", false, "linux/arm64", &layers[..1]);
    let index = all.index("app/web", OCI_INDEX, &[arm64, amd64.clone()]);
    all.tag("app/web", "1", &index);
    registry.push("app/web", &all);

    let reference = Reference::parse(&format!("{}/app/web:1", registry.host())).unwrap();
    let wanted = Wanted { reference, platform: Platform::default(), digest: None };
    let settings = Settings { authorities: vec![authority.path.clone()], ..fixture.settings() };
    let fetcher: Fetcher = fixture.fetcher_with(settings);
    let error = Puller::new(&fetcher, &Registries::default()).resolve(&wanted).unwrap_err().to_string();
    assert!(error.contains("401") && error.contains("a login for localhost:"), "{error}");
    let secret = Secret { user: "me".into(), password: "secret".into() };
    let registries = Registries::new(Credentials::default().with("localhost", secret));
    let puller = Puller::new(&fetcher, &registries);
    assert_eq!(puller.resolve(&wanted).unwrap().manifest.oci(), amd64["digest"].as_str().unwrap());
    // The beginning of a layer is there already; the registry sends the rest.
    let part = fixture.path(&format!("cache/partial/{}.part", Digest::of(&gzip)));
    std::fs::write(part, &gzip[..400_000]).unwrap();
    let layout = fixture.path("layout");
    let pulled = puller.layout(&wanted, &layout).unwrap();
    for (part, layer) in pulled.parts[1..].iter().zip([&gzip, &zstd]) {
        assert_eq!(&std::fs::read(layout.join("blobs/sha256").join(part.hex().unwrap())).unwrap(), layer);
    }
    let other = Wanted { platform: "linux/s390x".parse().unwrap(), ..wanted.clone() };
    let error = puller.resolve(&other).unwrap_err().to_string();
    assert!(error.contains("it is not there for linux/s390x; there is: linux/amd64, linux/arm64"), "{error}");
    let locked = Wanted { digest: Some(amd64["digest"].as_str().unwrap().parse().unwrap()), ..wanted };
    let offline = Fetcher::offline(fixture.cache());
    Puller::new(&offline, &registries).pull(&[locked]).unwrap();
}
