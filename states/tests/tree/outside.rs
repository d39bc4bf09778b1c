//! Connections of hosts to the world outside the site: trusted certificates, registries and proxy
//! of containerd, time servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use halite_states::compile::Compiled;
use serde_json::{Value, json};

use crate::support::{chunk, contents, fixture, highstate, of};

const TARGETS: [&str; 2] = ["bootstrap", "worker"];

fn with(target: &str, family: &str, change: impl FnOnce(&mut Value)) -> Compiled {
    let (mut pillar, mut grains) = fixture(target);
    grains["os_family"] = json!(family);
    pillar["halite"]["rpms"] = json!({});
    change(&mut pillar);
    highstate(&pillar, &grains)
}

/// A directory that a command sees in place of the host's root.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn put(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    fn shell(&self, line: &str) -> bool {
        let here = self.0.path().to_str().unwrap();
        let line = line
            .replace("/etc/", &format!("{here}/etc/"))
            .replace("/usr/local/", &format!("{here}/usr/local/"));
        Command::new("/bin/sh")
            .args(["-c", &line])
            .status()
            .unwrap()
            .success()
    }
}

fn line(
    compiled: &Compiled,
    id: &str,
    control: impl Fn(&halite_states::low::Chunk) -> &[Value],
) -> String {
    let chunk = compiled
        .low
        .chunks
        .iter()
        .find(|chunk| chunk.id == id)
        .unwrap();
    control(chunk)[0].as_str().unwrap().to_owned()
}

fn certificate(body: &str) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{body}\n{body}\n-----END CERTIFICATE-----\n")
}

fn trust(pillar: &mut Value) {
    pillar["halite"]["trust"]["certificates"] =
        json!({"corp": certificate("one"), "lab.1": certificate("two")});
}

#[test]
fn certificates_are_where_the_distribution_reads_them() {
    for target in TARGETS {
        let debian = with(target, "Debian", trust);
        let place = "/usr/local/share/ca-certificates/halite";
        let directory = &chunk(&debian, "file.directory", place).args;
        assert_eq!(directory["clean"], true);
        assert_eq!(
            directory["exclude_pat"],
            json!(["halite-corp.crt", "halite-lab.1.crt"])
        );
        assert_eq!(
            contents(&debian, &format!("{place}/halite-corp.crt")),
            certificate("one")
        );
        assert_eq!(
            contents(&debian, &format!("{place}/halite-lab.1.crt")),
            certificate("two")
        );

        let red_hat = with(target, "RedHat", trust);
        let place = "/etc/pki/ca-trust/source/anchors/halite.pem";
        assert_eq!(
            contents(&red_hat, place),
            certificate("one") + &certificate("two")
        );

        for compiled in [&debian, &red_hat] {
            let position = |id: &str| {
                compiled
                    .low
                    .chunks
                    .iter()
                    .position(|chunk| chunk.id == id)
                    .unwrap()
            };
            let store = &compiled.low.chunks[position("trust-store")];
            let files = compiled.low.chunks.iter().enumerate();
            let files = files
                .filter(|(_, chunk)| chunk.state == "file" && chunk.sls == "halite.host.trust");
            for (at, chunk) in files {
                assert!(
                    store.requisites.onchanges.contains(&at),
                    "{} changes nothing",
                    chunk.name
                );
            }
            let containerd = chunk(compiled, "service.running", "containerd");
            for id in ["trust-store", "trust-store-whole"] {
                assert!(
                    containerd.requisites.watch.contains(&position(id)),
                    "containerd does not watch {id}"
                );
            }
        }
        // And removed again.
        chunk(
            &of(target),
            "file.absent",
            "/usr/local/share/ca-certificates/halite",
        );
        chunk(&with(target, "RedHat", |_| ()), "file.absent", place);
    }
}

/// A run may be interrupted between the change of the files and the update of the store.
#[test]
fn a_trust_store_that_lags_behind_is_seen() {
    let whole = |family: &str| {
        line(
            &with("worker", family, trust),
            "trust-store-whole",
            |chunk| &chunk.controls.unless,
        )
    };
    let distributions = |more: &str| format!("# one of many\n{}{more}", certificate("other"));

    let debian = whole("Debian");
    let scratch = Scratch::new();
    assert!(
        scratch.shell(&debian),
        "a host without any store needs no repair"
    );
    let (bundle, place) = (
        "/etc/ssl/certs/ca-certificates.crt",
        "/usr/local/share/ca-certificates/halite",
    );
    scratch.put(bundle, &distributions(""));
    assert!(scratch.shell(&debian));
    scratch.put(&format!("{place}/halite-corp.crt"), &certificate("one"));
    assert!(
        !scratch.shell(&debian),
        "a certificate that is not in the store"
    );
    scratch.put(bundle, &distributions(&certificate("one")));
    assert!(scratch.shell(&debian));
    scratch.put(
        &format!("{place}/halite-corp.crt"),
        &certificate("another one"),
    );
    assert!(!scratch.shell(&debian), "a certificate that was replaced");
    scratch.put(&format!("{place}/halite-corp.crt"), &certificate("one"));
    std::os::unix::fs::symlink(
        scratch.path(place).join("halite-old.crt"),
        scratch.path("/etc/ssl/certs/halite-old.pem"),
    )
    .unwrap();
    assert!(!scratch.shell(&debian), "a link to a removed certificate");

    let red_hat = whole("RedHat");
    let scratch = Scratch::new();
    assert!(scratch.shell(&red_hat));
    let (bundle, place) = (
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/pki/ca-trust/source/anchors/halite.pem",
    );
    let both = certificate("one") + &certificate("two");
    scratch.put(place, &both);
    scratch.put(bundle, &distributions(&certificate("two")));
    let time = |path: &Path, seconds: u64| {
        let file = fs::File::open(path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
            .unwrap();
    };
    let anchors = scratch.path("/etc/pki/ca-trust/source/anchors");
    time(&anchors, 1_000_000);
    assert!(!scratch.shell(&red_hat), "one of two");
    // In another order, with other words between them.
    scratch.put(
        bundle,
        &distributions(&format!(
            "{}# one\n{}",
            certificate("two"),
            certificate("one")
        )),
    );
    assert!(scratch.shell(&red_hat));
    fs::remove_file(scratch.path(place)).unwrap();
    time(&scratch.path(bundle), 1_000_000);
    assert!(
        !scratch.shell(&red_hat),
        "the removal has not been noticed yet"
    );
}

fn registries(pillar: &mut Value) {
    pillar["halite"]["bundle"]["servers"] = json!([
        "https://10.10.0.11:4551/bundles/0.1.0",
        "https://10.10.0.13:4551/bundles/0.1.0"
    ]);
    pillar["halite"]["containerd"]["registries"] = json!({
        "docker.io": {"mirrors": ["https://mirror.corp/hub", "https://harbor.corp/v2/hub"], "ca": "PEM\n"},
        "registry.corp:5000": {"mirrors": ["https://registry.corp:5000"], "ca": null},
    });
}

#[test]
fn the_bundle_comes_before_every_mirror() {
    let certs_d = "/etc/containerd/certs.d";
    let settings = "  capabilities = [\"pull\", \"resolve\"]\n  ca = \"/etc/halite/pki/site-ca.crt\"\n  \
                    override_path = true\n  dial_timeout = \"2s\"\n";
    for target in TARGETS {
        let compiled = with(target, "Debian", registries);
        let docker = contents(&compiled, &format!("{certs_d}/docker.io/hosts.toml"));
        let head = "# Written by Halite for containerd.registries.\n# ";
        assert!(docker.starts_with(head), "{docker}");
        let hosts = docker.split_once("server = ").unwrap().1;
        let bundle =
            |host: &str| format!("[host.\"https://{host}:4551/bundles/0.1.0/v2\"]\n{settings}");
        let ca = "ca = \"/etc/containerd/certs.d/docker.io/ca.crt\"\n";
        assert_eq!(
            hosts,
            format!(
                "\"https://harbor.corp/v2/hub\"\ncapabilities = [\"pull\", \"resolve\"]\n{ca}override_path = true\n\n{}\n{}\n\
                 [host.\"https://mirror.corp/hub\"]\n  capabilities = [\"pull\", \"resolve\"]\n  {}",
                bundle("10.10.0.11"),
                bundle("10.10.0.13"),
                ca.trim_end(),
            )
        );
        assert_eq!(
            contents(&compiled, &format!("{certs_d}/docker.io/ca.crt")),
            "PEM\n"
        );
        let corp = contents(
            &compiled,
            &format!("{certs_d}/registry.corp:5000/hosts.toml"),
        );
        assert!(corp.contains("\nserver = \"https://registry.corp:5000\"\ncapabilities = [\"pull\", \"resolve\"]\n\n[host.\"https://10.10.0.11"), "{corp}");
        chunk(
            &compiled,
            "file.absent",
            &format!("{certs_d}/registry.corp:5000/ca.crt"),
        );
        // All other registries are still served by the bundle only.
        let all = contents(&compiled, &format!("{certs_d}/_default/hosts.toml"));
        assert!(!all.contains("corp"), "{all}");
    }
}

#[test]
fn a_registry_that_is_no_longer_declared_is_removed_and_foreign_ones_stay() {
    let compiled = with("worker", "Debian", registries);
    let onlyif = line(&compiled, "containerd-registries-absent", |chunk| {
        &chunk.controls.onlyif
    });
    let gone = &compiled
        .low
        .chunks
        .iter()
        .find(|chunk| chunk.id == "containerd-registries-absent")
        .unwrap()
        .name;
    let scratch = Scratch::new();
    let place = |name: &str| format!("/etc/containerd/certs.d/{name}/hosts.toml");
    assert!(!scratch.shell(&onlyif));
    let ours = contents(&compiled, &place("docker.io"));
    for (name, text) in [
        ("_default", contents(&compiled, &place("_default"))),
        ("docker.io", ours),
        ("registry.corp:5000", ours),
        ("foreign", "server = \"https://foreign\"\n"),
        (
            "registry.prod.internal:4552",
            "# Written by Halite: the registry that the site's own images are pushed to.\n",
        ),
    ] {
        scratch.put(&place(name), text);
    }
    assert!(!scratch.shell(&onlyif), "nothing is to be removed");
    for name in ["ghcr.io", "registry.corp:50001"] {
        scratch.put(&place(name), ours);
        scratch.put(&place(name).replace("hosts.toml", "ca.crt"), "PEM\n");
    }
    assert!(scratch.shell(&onlyif));
    assert!(scratch.shell(gone));
    assert!(!scratch.shell(&onlyif));
    let mut left: Vec<String> = fs::read_dir(scratch.path("/etc/containerd/certs.d"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(
        left,
        [
            "_default",
            "docker.io",
            "foreign",
            "registry.corp:5000",
            "registry.prod.internal:4552"
        ]
    );
}

#[test]
fn containers_inherit_the_declared_limit_of_open_files() {
    let drop_in = "/etc/systemd/system/containerd.service.d/halite-limits.conf";
    for target in TARGETS {
        let compiled = with(target, "Debian", |pillar| {
            pillar["halite"]["containerd"]["limits"] = json!({"nofile": 65536});
        });
        let text = contents(&compiled, drop_in);
        assert!(text.contains("[Service]\nLimitNOFILE=65536"), "{text}");
        let service = chunk(&compiled, "service.running", "containerd");
        let both = json!(["halite-proxy.conf", "halite-limits.conf"]);
        assert_eq!(service.args["only_drop_ins"], both);
        let mut chunks = compiled.low.chunks.iter();
        let at = chunks.position(|chunk| chunk.name == drop_in).unwrap();
        assert!(service.requisites.watch.contains(&at), "{service:?}");
        // Without it, the state of the service removes the file.
        let without = of(target);
        let service = chunk(&without, "service.running", "containerd");
        assert_eq!(service.args["only_drop_ins"], json!(["halite-proxy.conf"]));
        assert!(without.low.chunks.iter().all(|chunk| chunk.name != drop_in));
    }
}

#[test]
fn containerd_alone_has_the_proxy() {
    let drop_in = "/etc/systemd/system/containerd.service.d/halite-proxy.conf";
    for target in TARGETS {
        let compiled = with(target, "Debian", |pillar| {
            pillar["halite"]["proxy"]["https"] = json!("http://proxy.corp:3128");
        });
        assert_eq!(
            contents(&compiled, drop_in),
            "# Written by Halite.\n[Service]\nEnvironment=\"HTTPS_PROXY=http://proxy.corp:3128\"\n\
             Environment=\"NO_PROXY=localhost,127.0.0.0/8,10.10.0.0/24,10.10.1.0/24\""
        );
        let without = of(target);
        chunk(&without, "file.absent", drop_in);
        for compiled in [&compiled, &without] {
            let at = compiled
                .low
                .chunks
                .iter()
                .position(|chunk| chunk.name == drop_in)
                .unwrap();
            assert!(
                chunk(compiled, "service.running", "containerd")
                    .requisites
                    .watch
                    .contains(&at)
            );
            let others = compiled
                .low
                .chunks
                .iter()
                .filter(|chunk| chunk.name != drop_in);
            for other in others.filter(|chunk| chunk.function() == "file.managed") {
                let text = other
                    .args
                    .get("contents")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                assert!(
                    !text.contains("HTTPS_PROXY") && !text.contains("proxy.corp"),
                    "{}",
                    other.name
                );
            }
        }
    }
}

fn time(pillar: &mut Value) {
    pillar["halite"]["host"]["manageTime"] = json!(true);
    pillar["halite"]["time"]["servers"] = json!(["10.0.0.1", "ntp.corp"]);
}

#[test]
fn chrony_asks_only_the_declared_servers() {
    for (family, unit, options) in [
        ("Debian", "chrony", "!/usr/sbin/chronyd $DAEMON_OPTS"),
        ("RedHat", "chronyd", "/usr/sbin/chronyd $OPTIONS"),
    ] {
        let compiled = with("worker", family, time);
        let configuration = contents(&compiled, "/etc/chrony/halite.conf");
        let servers: Vec<&str> = configuration
            .lines()
            .filter(|line| !line.starts_with('#'))
            .take(3)
            .collect();
        assert_eq!(
            servers,
            [
                "server 10.0.0.1 iburst",
                "server ntp.corp iburst",
                "driftfile /var/lib/chrony/chrony.drift"
            ]
        );
        let drop_in = format!("/etc/systemd/system/{unit}.service.d/halite.conf");
        let wanted = format!(
            "# Written by Halite.\n[Service]\nExecStart=\nExecStart={options} -f /etc/chrony/halite.conf\n"
        );
        assert_eq!(contents(&compiled, &drop_in), wanted);
        let watched = &chunk(&compiled, "service.running", unit).requisites.watch;
        assert_eq!(watched.len(), 2);
        let packages = &chunk(&compiled, "pkg.installed", "host-packages").args["pkgs"];
        assert!(
            packages.as_array().unwrap().contains(&json!("chrony")),
            "{packages}"
        );

        let off = with("worker", family, |_| ());
        for path in ["/etc/chrony/halite.conf", &drop_in] {
            chunk(&off, "file.absent", path);
        }
        assert_eq!(chunk(&off, "service.dead", unit).args["enable"], false);
        let packages = &chunk(&off, "pkg.installed", "host-packages").args["pkgs"];
        assert!(!packages.to_string().contains("chrony"), "{packages}");
    }
}
