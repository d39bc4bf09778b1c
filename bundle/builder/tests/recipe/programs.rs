//! Programs from a web server, as single files and in archives.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use halite_builder::{Error, Options};
use halite_bundle::verify;
use halite_errors::chain;
use halite_testkit::{Authority, CannedAnswer, Server, Site, files, hex, put, run};
use serde_json::json;

/// A site whose kubelet, containerd and ctl come from a server that sometimes breaks off.
fn world() -> (Site, Server) {
    let mut site = Site::new();
    let authority = Authority::new(site.dir.path());
    for name in ["containerd", "containerd-shim-runc-v2", "ctr"] {
        fs::create_dir_all(site.path("archive/bin")).unwrap();
        fs::copy(
            site.path("bin").join(name),
            site.path("archive/bin").join(name),
        )
        .unwrap();
    }
    fs::create_dir_all(site.path("www")).unwrap();
    run(
        "tar",
        site.dir.path(),
        "tar",
        &["-C", "archive", "-czf", "www/containerd.tar.gz", "./bin"],
    );
    for name in ["kubelet", "ctl"] {
        fs::rename(site.path("bin").join(name), site.path("www").join(name)).unwrap();
    }
    let root = site.path("www");
    let server = Server::tls(&authority, move |seen| {
        match fs::read(root.join(&seen.path[1..])) {
            Ok(bytes) => CannedAnswer::new(200).body(bytes),
            Err(_) => CannedAnswer::new(404),
        }
    });
    site.recipe["registries"] = json!({});
    site.recipe["registries"][server.host()] = json!({"ca": "authority.pem"});
    site.recipe["no-proxy"] = json!("*");
    let url = |name: &str| format!("https://{}/{name}", server.host());
    site.recipe["packages"]["made"][0]["programs"]["kubelet"] =
        json!({"url": url("kubelet"), "licence": "Apache-2.0"});
    for name in ["containerd", "containerd-shim-runc-v2", "ctr"] {
        site.recipe["packages"]["made"][4]["programs"][name] =
            json!({"url": url("containerd.tar.gz"), "member": format!("bin/{name}")});
    }
    site.recipe["binaries"]["ctl"] =
        json!({"url": url("ctl"), "sha256": hex(&fs::read(site.path("www/ctl")).unwrap())});
    (site, server)
}

#[test]
fn programs_come_from_where_the_lock_says() {
    let (site, server) = world();
    let error = site.build("bundle").unwrap_err();
    assert!(
        matches!(&error, Error::Unrecorded { names, .. } if names.len() == 3),
        "{error}"
    );
    let resolved = site.lock().unwrap();
    assert_eq!(resolved.lock.files.len(), 3);
    let archive = &resolved.lock.files[&format!("https://{}/containerd.tar.gz", server.host())];
    assert_eq!(
        archive.why,
        "containerd of package containerd, containerd-shim-runc-v2 of package containerd, ctr of package containerd"
    );
    assert_eq!(
        resolved.lock.unlicensed().len(),
        2 + 9,
        "{:?}",
        resolved.lock.unlicensed()
    );
    let asked = server.seen().len();
    let first = site.build("bundle").unwrap();
    // The lock already fetched them into the cache.
    assert_eq!(server.seen().len(), asked);
    let install = std::process::Command::new(site.path("bundle/install"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&install.stdout), "ctl\n");
    assert!(
        verify(&site.path("bundle"), &mut |_| ())
            .unwrap()
            .is_sound()
    );
    run(
        "dpkg",
        site.dir.path(),
        "dpkg-deb",
        &["-x", "bundle/apt/pool/containerd_1.2.3-1_amd64.deb", "out"],
    );
    assert_eq!(
        fs::read_to_string(site.path("out/usr/bin/ctr")).unwrap(),
        "#!/bin/sh\necho ctr\n"
    );
    // A changed file on the server changes nothing until it is recorded.
    put(&site.path("www/kubelet"), b"#!/bin/sh\necho newer\n");
    assert!(site.lock().unwrap().changes.is_empty());
    assert_eq!(site.build("bundle").unwrap(), first);
    fs::remove_dir_all(site.path("cache/fetched")).unwrap();
    let error = site
        .build("bundle")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(error.contains("/kubelet: expected"), "{error}");
    let error = site
        .build_with(
            "bundle",
            &Options {
                offline: true,
                ..Options::default()
            },
        )
        .unwrap_err();
    assert!(chain(&error).contains("/kubelet (sha256:"), "{error}");
    let changes = site.update(true).unwrap().changes;
    assert!(
        matches!(&changes[..], [one] if one.name.ends_with("/kubelet")),
        "{changes:?}"
    );
    drop(server);
    site.build_with(
        "bundle",
        &Options {
            offline: true,
            ..Options::default()
        },
    )
    .unwrap();
}

#[test]
fn damage_in_the_cache_does_not_get_into_a_bundle() {
    let (site, server) = world();
    let lock = site.lock().unwrap().lock;
    let first = site.build("bundle").unwrap();
    let asked = server.seen().len();
    let damage = |path: PathBuf| {
        let bytes: Vec<u8> = fs::read(&path)
            .unwrap()
            .iter()
            .map(|byte| byte ^ 1)
            .collect();
        fs::write(&path, bytes).unwrap();
    };
    // Single files and archives.
    lock.files
        .values()
        .for_each(|item| damage(site.path("cache/fetched/sha256").join(&item.sha256)));
    assert_eq!(site.build("bundle").unwrap(), first);
    assert_eq!(server.seen().len(), asked + 3);
    // Extracted programs are restored, as files with one link.
    for entry in fs::read_dir(site.path("cache/programs")).unwrap() {
        damage(entry.unwrap().path());
    }
    assert_eq!(site.build("bundle").unwrap(), first);
    assert_eq!(server.seen().len(), asked + 3);
    // Offline, the missing item is named.
    lock.files
        .values()
        .for_each(|item| damage(site.path("cache/fetched/sha256").join(&item.sha256)));
    let error = site
        .build_with(
            "bundle",
            &Options {
                offline: true,
                ..Options::default()
            },
        )
        .unwrap_err();
    let error = chain(&error);
    assert!(
        error.contains("/kubelet (sha256:") && error.contains("was damaged in the cache"),
        "{error}"
    );
}

#[test]
fn a_login_is_nowhere_but_in_its_file() {
    let mut site = Site::new();
    let authority = Authority::new(site.dir.path());
    let count = AtomicUsize::new(0);
    let server = Server::tls(&authority, move |seen| match seen.header("Authorization") {
        Some("Basic bWU6aHVudGVyMg==") if count.fetch_add(1, Ordering::SeqCst) == 0 => {
            CannedAnswer::new(200)
                .header("ETag", "\"1\"")
                .body("#!/bin/sh\n")
                .saying(99)
                .cut(5)
        }
        Some("Basic bWU6aHVudGVyMg==") if seen.path == "/kubelet" => {
            CannedAnswer::file(seen, b"#!/bin/sh\n", "\"2\"")
        }
        Some(_) => CannedAnswer::new(403).body("not you"),
        None => CannedAnswer::new(401),
    });
    let netrc = site.path("logins/netrc");
    let login = |password: &str| {
        let text = format!("machine {} login me password {password}\n", server.host());
        put(&netrc, text.as_bytes());
        fs::set_permissions(&netrc, fs::Permissions::from_mode(0o600)).unwrap();
    };
    let nowhere = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        ["hunter", "aHVudGVy"]
            .iter()
            .all(|part| !text.contains(part))
    };
    login("hunter3");
    site.recipe["registries"] = json!({});
    site.recipe["registries"][server.host()] =
        json!({"ca": "authority.pem", "login": "logins/netrc"});
    site.recipe["no-proxy"] = json!("*");
    site.recipe["packages"]["made"][0]["programs"]["kubelet"] =
        json!({"url": format!("https://{}/kubelet", server.host())});
    let error = site.lock().map_err(|error| chain(&error)).unwrap_err();
    assert!(
        error.contains("403") && nowhere(error.as_bytes()),
        "{error}"
    );
    login("hunter2");
    site.lock().unwrap();
    site.build("bundle").unwrap();
    for name in files(site.dir.path())
        .iter()
        .filter(|name| !name.starts_with("logins/"))
    {
        assert!(
            nowhere(name.as_bytes()) && nowhere(&fs::read(site.path(name)).unwrap()),
            "{name}"
        );
    }
}

#[test]
fn what_cannot_be_a_program_or_a_chart_is_given_up_at_once() {
    let mut site = Site::new();
    let server = Server::start(|seen| {
        let said = if seen.path == "/kubelet" {
            17 << 30
        } else {
            257 << 20
        };
        CannedAnswer::new(200).body("begins").saying(said)
    });
    site.recipe["no-proxy"] = json!("*");
    site.recipe["packages"]["made"][0]["programs"]["kubelet"] =
        json!({"url": server.url("/kubelet")});
    site.recipe["charts"] = json!([{"name": "web", "source": server.url("/web.tgz"), "version": "1", "namespace": "web"}]);
    let error = site.lock().map_err(|error| chain(&error)).unwrap_err();
    for wanted in [
        "/kubelet: it is larger than 17179869184 bytes",
        "/web.tgz: it is larger than 268435456 bytes",
    ] {
        assert!(error.contains(wanted), "{error}");
    }
    assert_eq!(
        fs::read_dir(site.path("cache/fetched/partial"))
            .unwrap()
            .count(),
        0
    );
    assert_eq!(server.seen().len(), 2);
}

#[test]
fn what_is_not_there_or_not_as_said_is_told_at_once() {
    let (mut site, server) = world();
    site.recipe["packages"]["made"][0]["programs"]["kubelet"]["url"] =
        json!(format!("https://{}/gone", server.host()));
    site.recipe["binaries"]["ctl"]["sha256"] = json!(hex(b"other"));
    let error = site.lock().map_err(|error| chain(&error)).unwrap_err();
    assert!(
        error.contains("/gone: the server answers 404") && error.contains("/ctl: expected SHA-256"),
        "{error}"
    );
    let (mut site, _server) = world();
    site.recipe["packages"]["made"][4]["programs"]["ctr"]["member"] = json!("ctr");
    site.lock().unwrap();
    let error = site
        .build("bundle")
        .map_err(|error| chain(&error))
        .unwrap_err();
    let there = "it does not contain ctr; it contains bin/";
    assert!(
        error.contains(there) && error.contains("bin/containerd-shim-runc-v2"),
        "{error}"
    );
}
