//! The command that a new host runs: printed by a master, run by real shells, with a real nginx
//! that has the configuration of the shipped tree.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use halite_core::ca::{HALITE, Profile, SITE};
use halite_core::clock::{Clock as _, SystemClock};
use halite_proto::pki::{PrivateKey, sha256_hex};
use halite_proto::tonic::Code;
use halite_proto::v1;
use halite_proto::v1::enrol_reply::State;
use halite_proto::v1::operator_client::OperatorClient;
use halite_states::compile;
use halite_states::compile::{Compiled, Input};
use halite_states::tree::DirTree;
use halite_testkit::process::make_program;
use halite_testkit::{Authority, Nginx};
use serde_json::{Value, json};

use super::site::{Site, start};
use super::streams::enrol;

const NAME: &str = "worker-9";
const SHELLS: [&str; 2] = ["dash", "bash"];
const MINION: &str = "usr/local/bin/halite-minion";

/// A master, its web server, and a directory in place of the new host's root.
struct Joining {
    site: Site,
    /// Before the directory with its configuration, which it needs to stop.
    nginx: Nginx,
    root: tempfile::TempDir,
    added: v1::AddedNode,
}

impl Joining {
    /// `impostor`: the web server has the right CA as a file, and a certificate of another CA.
    async fn new(impostor: bool) -> Self {
        let site = start().await;
        let mut operator = OperatorClient::new(site.channel(Some(&site.root())).await);
        let request = v1::AddNodeRequest {
            nodes: vec![v1::NewNode {
                name: NAME.to_owned(),
                address: "192.0.2.19".to_owned(),
                ..v1::NewNode::default()
            }],
            roles: vec!["worker".to_owned()],
            ..Default::default()
        };
        let reply = operator.add_node(request).await.unwrap().into_inner();
        let root = tempfile::tempdir().unwrap();
        for directory in ["run/systemd/system", "etc/systemd/system", "srv", "tmp"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let compiled = compiled(&site, &programs(root.path()));
        put_script(&compiled, root.path());
        put_certificate(&site, root.path(), impostor);
        let conf = contents(&compiled, "/etc/nginx/conf.d/halite.conf");
        let nginx = Nginx::start(&root.path().join("nginx"), |port| {
            served(&conf, root.path(), port)
        });
        Self {
            site,
            nginx,
            root,
            added: reply.nodes.into_iter().next().unwrap(),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Pastes the command into a shell of the new host.
    fn paste(&self, shell: &str, command: &str) -> Output {
        let address = format!("127.0.0.1:{}", self.nginx.port);
        let command = command.replace("192.0.2.11:4551", &address);
        let path = std::env::var("PATH").unwrap();
        let mut child = Command::new(shell)
            .env_clear()
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("HOME", self.root.path())
            .env("TMPDIR", self.path("tmp"))
            // A proxy that does not exist, as /etc/environment of a site may name one.
            .env("https_proxy", "http://127.0.0.1:1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{command}").unwrap();
        drop(input);
        child.wait_with_output().unwrap()
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// Fails unless the command ended before the host changed.
    fn assert_untouched(&self, output: &Output, requests: usize) {
        assert!(!output.status.success(), "{output:?}");
        assert_eq!(self.read("calls"), "", "{output:?}");
        assert!(!self.path("etc/halite").exists(), "{output:?}");
        assert_eq!(self.nginx.answered(requests).len(), requests);
    }
}

/// The programs of the new host that would change the machine of this test. Returns the text of
/// its minion's program.
fn programs(root: &Path) -> String {
    let here = root.display();
    let minion = format!(
        "#!/bin/sh\nfor process in /proc/[0-9]*; do tr '\\0' ' ' < $process/cmdline; echo; done >> {here}/processes 2>&-\n\
         echo \"$* token=$HALITE_TOKEN\" >> {here}/calls\n"
    );
    make_program(&root.join(MINION), &minion);
    make_program(&root.join("bin/id"), "#!/bin/sh\necho 0\n");
    make_program(&root.join("bin/systemctl"), "#!/bin/sh\n");
    minion
}

/// The states of the first host, with the CAs of this master.
fn compiled(site: &Site, minion: &str) -> Compiled {
    let states = Path::new(env!("CARGO_MANIFEST_DIR")).join("../states");
    let text = fs::read_to_string(states.join("tests/tree/bootstrap.json")).unwrap();
    let mut fixture: Value = serde_json::from_str(&text).unwrap();
    let halite = &mut fixture["pillar"]["halite"];
    for ca in [HALITE, SITE] {
        halite["pki"][ca]["cert"] = json!(site.app.cas.certificate_pem(ca).unwrap());
    }
    halite["bundle"]["programs"]["halite-minion"] = json!(sha256_hex(minion.as_bytes()));
    let input = Input {
        tree: &DirTree::new().root(states.join("tree")),
        minion: fixture["grains"]["id"].as_str().unwrap(),
        pillar: &fixture["pillar"],
        grains: &fixture["grains"],
        bundle: &|path: &str| Some(sha256_hex(path.as_bytes())),
    };
    compile::highstate(&input).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn contents(compiled: &Compiled, name: &str) -> String {
    let mut chunks = compiled.low.chunks.iter();
    let chunk = chunks.find(|chunk| chunk.function() == "file.managed" && chunk.name == name);
    let text = chunk.unwrap().args["contents"].as_str().unwrap();
    text.to_owned()
}

fn put_script(compiled: &Compiled, root: &Path) {
    let mut script = contents(compiled, "/srv/halite/enrol.sh");
    for place in ["/etc/", "/var/lib/", "/usr/local/bin/", "/run/"] {
        script = script.replace(place, &format!("{}{place}", root.display()));
    }
    fs::write(root.join("srv/enrol.sh"), script).unwrap();
}

fn put_certificate(site: &Site, root: &Path, impostor: bool) {
    let ca = site.app.cas.certificate_pem(SITE).unwrap();
    fs::write(root.join("srv/ca"), ca).unwrap();
    if impostor {
        let _ = Authority::new(root).files(&root.join("srv"));
        return;
    }
    let key = PrivateKey::generate().unwrap();
    let profile = Profile {
        common_name: "bootstrap-1".to_owned(),
        addresses: vec!["127.0.0.1".parse().unwrap()],
        server_auth: true,
        days: 30,
        ..Profile::default()
    };
    let request = key.request("bootstrap-1").unwrap();
    let now = SystemClock.now();
    let issued = site.app.cas.sign(SITE, &request, &profile, now).unwrap();
    fs::write(root.join("srv/server.pem"), issued.certificate_pem).unwrap();
    fs::write(root.join("srv/server.key"), key.to_pem().as_bytes()).unwrap();
}

/// The shipped configuration of nginx with the files of this test, on a port of loopback.
fn served(conf: &str, root: &Path, port: u16) -> String {
    let srv = root.join("srv");
    let srv = srv.display();
    let mut conf = conf.to_owned();
    for (shipped, ours) in [
        ("listen 10.10.0.11:4551 ssl;", String::new()),
        ("127.0.0.1:4551", format!("127.0.0.1:{port}")),
        ("/etc/halite/pki/server.crt", format!("{srv}/server.pem")),
        ("/etc/halite/pki/server.key", format!("{srv}/server.key")),
        ("/etc/halite/pki/site-ca.crt", format!("{srv}/ca")),
        ("/srv/halite/enrol.sh", format!("{srv}/enrol.sh")),
        ("include /etc/halite/nginx/registry.conf;", String::new()),
        ("access_log off;", String::new()),
    ] {
        assert!(conf.contains(shipped), "{shipped}: {conf}");
        conf = conf.replace(shipped, &ours);
    }
    conf
}

#[tokio::test]
async fn the_printed_command_is_short_and_enrols_a_bare_host() {
    let joining = Joining::new(false).await;
    let v1::AddedNode { token, command, .. } = &joining.added;
    assert!(command.len() < 350, "{}: {command}", command.len());
    // `--cacert` alone would leave the host's own CAs in use.
    assert!(
        command.contains(" --cacert ca --capath . $U/join"),
        "{command}"
    );
    let secret = token.split('.').nth(1).unwrap();
    for shell in SHELLS {
        for file in ["calls", "processes"] {
            fs::write(joining.path(file), "").unwrap();
        }
        let output = joining.paste(shell, command);
        assert!(output.status.success(), "{shell}: {output:?}");
        // The script has completed the token with the digest of the master's CA.
        // The script names another master, as it does during a promotion.
        let call = format!("enrol --force --master 192.0.2.11:4550 --id {NAME} token={token}\n");
        assert_eq!(joining.read("calls"), call, "{shell}");
        let processes = joining.read("processes");
        assert!(processes.contains("halite-minion enrol"), "{processes}");
        assert!(!processes.contains(secret), "{shell}: {processes}");
        assert!(!joining.read("nginx/access.log").contains(secret));
        assert_eq!(
            joining.read("etc/halite/pki/site-ca.crt"),
            joining.read("srv/ca")
        );
    }
    let key = PrivateKey::generate().unwrap();
    let mut wrong = token.clone().into_bytes();
    wrong[20] = if wrong[20] == b'0' { b'1' } else { b'0' };
    let wrong = String::from_utf8(wrong).unwrap();
    let refused = enrol(&joining.site, NAME, &key, &wrong).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let reply = enrol(&joining.site, NAME, &key, token).await.unwrap();
    assert_eq!(reply.state(), State::Accepted);
}

#[tokio::test]
async fn a_changed_byte_of_the_ca_ends_the_command_before_anything_runs() {
    let joining = Joining::new(false).await;
    let mut ca = fs::read(joining.path("srv/ca")).unwrap();
    ca[100] ^= 1;
    fs::write(joining.path("srv/ca"), ca).unwrap();
    for (run, shell) in SHELLS.iter().enumerate() {
        let output = joining.paste(shell, &joining.added.command);
        joining.assert_untouched(&output, run + 1);
    }
    // A shell ignores `set -e` in the condition of another command.
    let condition = format!("if {}\nthen :; else exit 7; fi", joining.added.command);
    let output = joining.paste("dash", &condition);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    joining.assert_untouched(&output, 3);
}

#[tokio::test]
async fn a_server_without_a_certificate_of_the_ca_gives_no_script() {
    let joining = Joining::new(true).await;
    for (run, shell) in SHELLS.iter().enumerate() {
        let output = joining.paste(shell, &joining.added.command);
        joining.assert_untouched(&output, run + 1);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("certificate"), "{said}");
    }
}

#[tokio::test]
async fn nothing_is_fetched_without_a_directory_for_it() {
    let joining = Joining::new(false).await;
    fs::remove_dir_all(joining.path("tmp")).unwrap();
    for shell in SHELLS {
        let output = joining.paste(shell, &joining.added.command);
        joining.assert_untouched(&output, 0);
        assert!(!joining.path("ca").exists(), "{output:?}");
    }
}

#[tokio::test]
async fn a_missing_token_is_named_before_the_host_changes() {
    let joining = Joining::new(false).await;
    let (line, _) = joining.added.command.split_once('\n').unwrap();
    let output = joining.paste("dash", &format!("{line}\n\nE"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("enrol: standard input has no token for worker-9"),
        "{said}"
    );
    joining.assert_untouched(&output, 2);
}
