//! Servers of bundles and images, and the order in which hosts use them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use halite_states::compile;
use serde_json::{Value, json};

use crate::support::{chunk, contents, fixture, golden, highstate, listing, of, with};

/// The pillar of a site with a second server and two bundles, as `target` sees it.
fn two_servers(target: &str) -> (Value, Value) {
    let (mut pillar, mut grains) = fixture(if target == "bootstrap-1" {
        "bootstrap"
    } else {
        "worker"
    });
    let url = |host: &str| format!("https://{host}:4551/bundles/0.1.0");
    pillar["halite"]["bundle"]["servers"] = json!([url("10.10.0.11"), url("10.10.0.13")]);
    let further =
        json!({"version": "0.2.0", "kubernetes": "v1.37.0", "path": "/mnt/next", "manifest": "ee"});
    pillar["halite"]["bundles"]
        .as_array_mut()
        .unwrap()
        .push(further);
    let mut second = pillar["halite"]["nodes"]["worker-1"].clone();
    second["roles"] = json!(["registry"]);
    second["runs"] = json!({"containers": false, "master": false, "standby": false});
    second["controlPlane"] = json!("10.10.0.13");
    pillar["halite"]["nodes"]["registry-2"] = second.clone();
    if target == "registry-2" {
        second["name"] = json!(target);
        pillar["halite"]["node"] = second;
        grains["id"] = json!(target);
    }
    (pillar, grains)
}

#[test]
fn a_second_server_copies_the_bundles_of_the_first() {
    let (pillar, grains) = two_servers("registry-2");
    let compiled = highstate(&pillar, &grains);
    golden("registry.txt", &listing(&compiled));
    let nginx = contents(&compiled, "/etc/nginx/conf.d/halite.conf");
    for part in [
        "listen 10.10.0.13:4551 ssl;",
        "\"0.1.0\" \"/var/lib/halite/bundles/0.1.0\";",
        "\"0.2.0\" \"/var/lib/halite/bundles/0.2.0\";",
        "include /var/lib/halite/bundles/0.2.0/nginx/manifests.map*;",
        "include /etc/halite/nginx/registry.conf;",
        "rewrite ^ /bundles/0.1.0$uri last;",
    ] {
        assert!(nginx.contains(part), "{part} in {nginx}");
    }
    assert!(
        !nginx.contains("/media/halite") && !nginx.contains("/mnt/next"),
        "{nginx}"
    );
    let packages = &chunk(&compiled, "pkg.installed", "host-packages").args["pkgs"];
    assert!(
        packages.as_array().unwrap().contains(&json!("nginx-light")),
        "{packages}"
    );
    let rules = chunk(&compiled, "firewalld.policy", "halite-host").args["rich_rules"].to_string();
    assert!(rules.contains("4551") && !rules.contains("4550"), "{rules}");
    let certificate = chunk(&compiled, "x509.certificate", "/etc/halite/pki/server.crt");
    assert_eq!(
        certificate.args["sans_ip"],
        json!(["10.10.0.13", "127.0.0.1"])
    );
    // The bootstrap host serves each bundle from its own directory.
    let (pillar, grains) = two_servers("bootstrap-1");
    let first = highstate(&pillar, &grains);
    let nginx = contents(&first, "/etc/nginx/conf.d/halite.conf");
    assert!(
        nginx.contains("include /etc/halite/nginx/registry.conf;"),
        "{nginx}"
    );
    assert!(nginx.contains("\"0.2.0\" \"/mnt/next\";"), "{nginx}");
    assert!(
        !first
            .low
            .chunks
            .iter()
            .any(|chunk| chunk.name.contains("bundle copy"))
    );
}

/// nginx starts as root. It reads only pairs of values from a map; everything else comes from
/// states.
#[test]
fn no_configuration_of_the_web_server_comes_from_a_bundle() {
    for (pillar, grains) in [two_servers("bootstrap-1"), two_servers("registry-2")] {
        let compiled = highstate(&pillar, &grains);
        let nginx = contents(&compiled, "/etc/nginx/conf.d/halite.conf");
        let mut in_map = false;
        for line in nginx.lines() {
            in_map = (in_map || line.starts_with("map ")) && line != "}";
            let Some(path) = line.trim().strip_prefix("include ") else {
                continue;
            };
            let path = path.trim_end_matches(';');
            if in_map {
                assert!(path.ends_with(".map*"), "{path}");
            } else {
                let source = &chunk(&compiled, "file.managed", path).args["source"];
                let digest = crate::support::bundle("nginx/registry.conf").unwrap();
                assert_eq!(*source, json!(format!("blob:{digest}")));
            }
        }
    }
}

#[test]
fn every_client_tries_one_server_after_the_other_itself_first() {
    let first = "https://10.10.0.11:4551/bundles/0.1.0";
    let second = "https://10.10.0.13:4551/bundles/0.1.0";
    let hosts = "/etc/containerd/certs.d/_default/hosts.toml";
    let mirrors = "/etc/apt/halite/0.1.0.mirrors";
    let (mut pillar, grains) = two_servers("worker-1");
    let worker = highstate(&pillar, &grains);
    assert_eq!(
        contents(&worker, hosts),
        format!(
            "# Written by Halite. Images of all registries come from the bundle only. A server that does not\n\
             # answer within `dial_timeout` is skipped, and an interrupted pull continues at the next server.\n\
             server = \"{second}/v2\"\ncapabilities = [\"pull\", \"resolve\"]\n\
             ca = \"/etc/halite/pki/site-ca.crt\"\noverride_path = true\ndial_timeout = \"2s\"\n\n\
             [host.\"{first}/v2\"]\n  capabilities = [\"pull\", \"resolve\"]\n  \
             ca = \"/etc/halite/pki/site-ca.crt\"\n  override_path = true\n  dial_timeout = \"2s\"\n"
        )
    );
    assert_eq!(
        contents(&worker, mirrors),
        format!("{first}/apt\tpriority:1\n{second}/apt\tpriority:2\n")
    );
    let apt = contents(&worker, "/etc/apt/apt.conf.d/60halite");
    for host in ["10.10.0.11", "10.10.0.13"] {
        assert!(
            apt.contains(&format!(
                "Acquire::https::{host}::CaInfo \"/etc/halite/pki/site-ca.crt\";"
            )),
            "{apt}"
        );
    }
    // A host that serves bundles and runs pods uses itself first.
    pillar["halite"]["node"]["controlPlane"] = json!("10.10.0.13");
    pillar["halite"]["node"]["roles"] = json!(["worker", "registry"]);
    let both = highstate(&pillar, &grains);
    assert!(contents(&both, hosts).contains(&format!("server = \"{first}/v2\"")));
    assert!(contents(&both, hosts).contains(&format!("[host.\"{second}/v2\"]")));
    assert!(contents(&both, mirrors).starts_with(second));
}

#[test]
fn hosts_of_another_debian_release_use_its_own_repository() {
    let (pillar, mut grains) = two_servers("worker-1");
    grains["oscodename"] = json!("trixie");
    let worker = highstate(&pillar, &grains);
    let mirrors = contents(&worker, "/etc/apt/halite/0.1.0.mirrors");
    assert!(
        mirrors.starts_with("https://10.10.0.11:4551/bundles/0.1.0/apt-trixie\t"),
        "{mirrors}"
    );
    let key = chunk(&worker, "file.managed", "/etc/apt/keyrings/halite.gpg");
    let digest = halite_states::tree::sha256(b"apt-trixie/halite.gpg");
    assert_eq!(key.args["source"], format!("blob:{digest}"));
    // A bundle without such a repository.
    grains["oscodename"] = json!("forky");
    let problems = with(&pillar, &grains, compile::highstate).unwrap_err();
    let problems = problems.iter().map(ToString::to_string);
    let problems = problems.collect::<Vec<_>>().join("\n");
    assert!(problems.contains("apt-forky/halite.gpg"), "{problems}");
}

#[test]
fn red_hat_hosts_use_the_yum_repository_and_their_own_package_names() {
    let (mut pillar, mut grains) = two_servers("worker-1");
    grains["os_family"] = json!("RedHat");
    pillar["halite"]["rpms"] = json!({"kubelet": "1.36.3-2"});
    let worker = highstate(&pillar, &grains);
    let repository = &chunk(&worker, "pkgrepo.managed", "halite").args;
    let servers = ["10.10.0.11", "10.10.0.13"];
    let servers = servers.map(|host| format!("https://{host}:4551/bundles/0.1.0/rpm"));
    assert_eq!(repository["uris"], json!(servers));
    assert_eq!(
        repository["signed_by"],
        "/etc/pki/rpm-gpg/RPM-GPG-KEY-halite"
    );
    assert_eq!(
        (&repository["signed_index"], &repository["proxy"]),
        (&json!(true), &json!("_none_"))
    );
    assert_eq!(repository["sslcacert"], "/etc/halite/pki/site-ca.crt");
    chunk(
        &worker,
        "file.managed",
        "/etc/pki/rpm-gpg/RPM-GPG-KEY-halite",
    );
    assert!(
        !worker
            .low
            .chunks
            .iter()
            .any(|chunk| chunk.name.starts_with("/etc/apt"))
    );
    let packages = &chunk(&worker, "pkg.installed", "host-packages").args["pkgs"];
    for wanted in [
        json!("conntrack-tools"),
        json!("iptables-nft"),
        json!({"kubelet": "1.36.3-2"}),
    ] {
        assert!(
            packages.as_array().unwrap().contains(&wanted),
            "{wanted}: {packages}"
        );
    }
    // The first host reads the bundle's directory.
    let (mut pillar, mut grains) = fixture("bootstrap");
    grains["os_family"] = json!("RedHat");
    pillar["halite"]["rpms"] = json!({});
    let first = highstate(&pillar, &grains);
    let path = pillar["halite"]["bundle"]["path"].as_str().unwrap();
    let uris = &chunk(&first, "pkgrepo.managed", "halite").args["uris"];
    assert_eq!(uris, &json!([format!("file://{path}/rpm")]));
}

/// The pillar of a site with a site registry, as seen by its host or another host.
pub fn site_registry(target: &str, host: &str) -> (Value, Value) {
    let (mut pillar, grains) = fixture(target);
    let registry = &mut pillar["halite"]["siteRegistry"];
    registry["enabled"] = json!(true);
    registry["node"] = json!(host);
    registry["address"] = json!("10.10.0.11");
    registry["pull"] = json!("halite-secret::siteRegistry.pull::");
    if grains["id"] == host {
        registry["htpasswd"] = json!("halite-secret::siteRegistry.htpasswd::");
    }
    (pillar, grains)
}

#[test]
fn a_registry_of_the_sites_own_runs_on_its_host_and_is_known_to_all() {
    let (pillar, grains) = site_registry("bootstrap", "bootstrap-1");
    let here = highstate(&pillar, &grains);
    golden("site-registry.txt", &listing(&here));
    let users = chunk(&here, "file.managed", "/etc/halite/registry/htpasswd");
    assert_eq!(users.args["mode"], 0o640);
    let unit = contents(&here, "/etc/systemd/system/halite-registry-backup.service");
    assert!(
        unit.contains(
            "backup --data /var/lib/halite/registry --out /var/backups/halite/registry --keep 7"
        ),
        "{unit}"
    );
    let unit = contents(&here, "/etc/systemd/system/halite-registry.service");
    assert!(
        unit.contains("\nEnvironmentFile=/etc/halite/registry/uploads.env\n"),
        "{unit}"
    );
    let timer = contents(&here, "/etc/systemd/system/halite-registry-backup.timer");
    assert!(timer.contains("OnCalendar=*-*-* 02:30:00"), "{timer}");
    for work in ["registry-backup", "registry-verify"] {
        let unit = contents(&here, &format!("/etc/systemd/system/halite-{work}.service"));
        assert!(
            unit.contains(&format!("--report /var/lib/halite/reports/{work}.json\n")),
            "{unit}"
        );
        assert!(
            unit.contains(&format!("OnFailure=halite-failed@{work}.service\n")),
            "{unit}"
        );
    }
    let noted = contents(&here, "/etc/systemd/system/halite-failed@.service");
    assert!(
        noted.contains("touch /var/lib/halite/reports/%i.failed\n"),
        "{noted}"
    );
    let rules = chunk(&here, "firewalld.policy", "halite-host").args["rich_rules"].to_string();
    assert!(rules.contains("port=\\\"4552\\\""), "{rules}");
    let packages = &chunk(&here, "pkg.installed", "host-packages").args["pkgs"];
    assert!(
        packages.to_string().contains("distribution-registry"),
        "{packages}"
    );

    let (pillar, grains) = site_registry("worker", "bootstrap-1");
    let other = highstate(&pillar, &grains);
    for compiled in [&here, &other] {
        let place = "/etc/containerd/certs.d/registry.prod.internal:4552/hosts.toml";
        let pulls = chunk(compiled, "file.managed", place);
        assert_eq!(pulls.args["mode"], 0o600);
        let text = pulls.args["contents"].as_str().unwrap();
        assert!(
            text.contains("Authorization = \"Basic halite-secret::siteRegistry.pull::\""),
            "{text}"
        );
        assert!(
            text.starts_with("# Written") && text.contains("server = \"https://10.10.0.11:4552\""),
            "{text}"
        );
        chunk(compiled, "host.present", "registry.prod.internal");
    }
    let rules = chunk(&other, "firewalld.policy", "halite-host").args["rich_rules"].to_string();
    assert!(!rules.contains("4552"), "{rules}");
    assert!(!listing(&other).contains("/etc/halite/registry/htpasswd"));
    // Images stay on a host when the registry moves to another one.
    for compiled in [&other, &of("bootstrap")] {
        for chunk in compiled
            .low
            .chunks
            .iter()
            .filter(|chunk| chunk.function() == "file.absent")
        {
            assert!(
                !chunk.name.starts_with("/var/")
                    || !chunk.name.contains("registry")
                    || chunk.name.starts_with("/var/lib/halite/reports/"),
                "{}",
                chunk.name
            );
        }
        chunk(compiled, "service.dead", "halite-registry");
    }
}

#[test]
fn backups_are_read_when_the_document_says_so() {
    let (mut pillar, grains) = site_registry("bootstrap", "bootstrap-1");
    for (day, wanted) in [
        ("Sun", "OnCalendar=Sun *-*-* 02:30:00\n"),
        ("daily", "OnCalendar=*-*-* 02:30:00\n"),
    ] {
        pillar["halite"]["siteRegistry"]["backup"]["verify"] = json!(day);
        let compiled = highstate(&pillar, &grains);
        let timer = contents(
            &compiled,
            "/etc/systemd/system/halite-registry-verify.timer",
        );
        assert!(
            timer.starts_with("[Unit]\n") && timer.contains(wanted),
            "{timer}"
        );
        chunk(&compiled, "service.running", "halite-registry-verify.timer");
    }
    pillar["halite"]["siteRegistry"]["backup"]["verify"] = json!("never");
    let compiled = highstate(&pillar, &grains);
    chunk(&compiled, "service.dead", "halite-registry-verify.timer");
    for kind in ["timer", "service"] {
        chunk(
            &compiled,
            "file.absent",
            &format!("/etc/systemd/system/halite-registry-verify.{kind}"),
        );
    }
    // Old ones would be an alert.
    for kind in ["json", "failed"] {
        let report = format!("/var/lib/halite/reports/registry-verify.{kind}");
        chunk(&compiled, "file.absent", &report);
    }
    chunk(&compiled, "service.running", "halite-registry-backup.timer");
}

/// Runs the command itself, in a scratch directory.
#[test]
fn the_key_of_the_registrys_uploads_is_made_once_and_only_for_root() {
    let (pillar, grains) = site_registry("bootstrap", "bootstrap-1");
    let here = highstate(&pillar, &grains);
    let make = here
        .low
        .chunks
        .iter()
        .find(|chunk| chunk.id == "site-registry-uploads")
        .unwrap();
    assert_eq!(make.controls.creates, ["/etc/halite/registry/uploads.env"]);
    let made = |place: &str| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(place);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        let command = make
            .name
            .replace("/etc/halite/registry", dir.to_str().unwrap());
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(
            (output.stdout.len(), output.stderr.len()),
            (0, 0),
            "{output:?}"
        );
        let names: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["uploads.env"]);
        let path = dir.join("uploads.env");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::read_to_string(path).unwrap()
    };
    let (one, other) = (made("uploads-one"), made("uploads-other"));
    let key = one
        .strip_prefix("REGISTRY_HTTP_SECRET=")
        .and_then(|text| text.strip_suffix('\n'));
    let key = key.unwrap_or_else(|| panic!("{one:?}"));
    assert!(
        key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{one:?}"
    );
    assert_ne!(one, other);
}
