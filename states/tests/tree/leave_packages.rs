//! The packages that `--packages` removes from a host that leaves.

use halite_states::compile;
use serde_json::{Value, json};

use crate::support::{fixture, highstate, make_program, sure, with};

/// Packages that `--packages` keeps: the operator may use them, or had them before.
const STAYS: &[&str] = &[
    "chrony",
    "conntrack",
    "conntrack-tools",
    "curl",
    "ethtool",
    "firewalld",
    "iptables",
    "iptables-nft",
    "netbase",
    "nftables",
    "socat",
];

/// The packages in the states with this function, on a host of this family with every part of
/// Halite that has packages.
fn packages(fixture_name: &str, family: &str, function: &str) -> Vec<String> {
    let (mut pillar, mut grains) = fixture(fixture_name);
    grains["os_family"] = json!(family);
    pillar["halite"]["rpms"] = json!({});
    pillar["halite"]["apiServer"]["localProxy"] = json!(true);
    let chunks = match function {
        "pkg.removed" => {
            let sls = ["halite.leave.packages".to_owned()];
            sure(with(&pillar, &grains, |i| compile::step(i, &sls)))
        }
        _ => highstate(&pillar, &grains),
    };
    let chunks = chunks.low.chunks.into_iter();
    let chunks = chunks.filter(|chunk| chunk.function() == function);
    let lists = chunks.filter_map(|chunk| chunk.args.get("pkgs")?.as_array().cloned());
    let name = |package: Value| match package {
        Value::Object(pinned) => pinned.keys().next().unwrap().clone(),
        name => name.as_str().unwrap().to_owned(),
    };
    lists.flatten().map(name).collect()
}

#[test]
fn each_package_that_halite_installs_goes_or_is_named_as_one_that_stays() {
    for family in ["Debian", "RedHat"] {
        for name in ["bootstrap", "worker"] {
            let removed = packages(name, family, "pkg.removed");
            // The worker may once have served bundles.
            assert!(removed.contains(&"nginx".to_owned()), "{family}, {name}");
            let installed = packages(name, family, "pkg.installed");
            assert!(installed.len() > 10, "{installed:?}");
            for package in installed {
                assert!(
                    removed.contains(&package) != STAYS.contains(&package.as_str()),
                    "{family}, {name}: {package} with {removed:?}"
                );
            }
        }
    }
}

/// The condition that keeps nginx, tested on directories of a host.
#[test]
fn a_bundle_server_is_removed_only_without_a_site_of_the_operator() {
    let (pillar, grains) = fixture("bootstrap");
    let sls = ["halite.leave.packages".to_owned()];
    let compiled = sure(with(&pillar, &grains, |i| compile::step(i, &sls)));
    let mut chunks = compiled.low.chunks.iter();
    let nginx = chunks.find(|chunk| chunk.id == "bundle-server-packages");
    let condition = nginx.unwrap().controls.unless[0].as_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let etc = root.join("nginx");
    for made in ["conf.d", "sites-enabled"] {
        std::fs::create_dir_all(etc.join(made)).unwrap();
    }
    // Programs of this test in place of the host's: no changed file, and the packages that apt
    // would remove.
    let bin = root.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let removes = |lines: &str| {
        for (program, said) in [("apt-get", lines), ("dpkg-query", ""), ("dpkg", "")] {
            let script = format!("#!/bin/sh\ncat <<'END'\n{said}\nEND\n");
            make_program(&bin.join(program), &script);
        }
    };
    let stays = || {
        let line = condition.replace("/etc/nginx", etc.to_str().unwrap());
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", &line]).env("PATH", path);
        shell.status().unwrap().success()
    };
    let own = "Remv nginx-light [1.22.1-9]\nRemv nginx [1.22.1-9]\nRemv nginx-common [1.22.1-9]";
    removes(own);
    assert!(!stays());
    // Another package needs it.
    removes(&format!("Remv site [1]\n{own}"));
    assert!(stays());
    removes(own);
    std::fs::write(etc.join("conf.d/mine.conf"), "server {}\n").unwrap();
    assert!(stays());
}
