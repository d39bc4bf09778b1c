//! The registry of the site's own images: people push with a name and a password, pods pull; it is
//! backed up, restored, and disabled without a loss.

mod backup;

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow, bail, ensure};
use halite_lab::cluster::{BOOTSTRAP, Cluster, WORKER};
use halite_lab::host::Host;
use halite_lab::wait;
use halite_upstream::versions::BUSYBOX;
use serde_json::{Value, json};

use super::declare::declare;
use super::registry::{CA, curl};
use super::repair::{highstate, quiet};
use super::secret::{declared, holders};
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "site registry: enabled, images are pushed only with a password, and pods pull",
        run: on,
    },
    Test {
        name: "site registry: the password is only in the document",
        run: secret,
    },
    Test {
        name: "site registry: killed in the middle of a push it comes back, and the push completes",
        run: killed,
    },
    Test {
        name: "site registry: backed up, lost, restored",
        run: backup::restored,
    },
    Test {
        name: "site registry: a backup that fails is a problem of the status until one succeeds",
        run: backup::reported,
    },
    Test {
        name: "site registry: without a user for all hosts, pods bring their own",
        run: own_login,
    },
    Test {
        name: "site registry: disabled, it is removed, and images and backups stay",
        run: off,
    },
];

/// Registry part of its images' references.
const NAME: &str = "registry.demo.internal:4552";
/// The password of its user `ci`.
pub(super) const PASSWORD: &str = "not-a-word-of-any-dictionary";
/// Directory of its backups.
pub(super) const BACKUPS: &str = "/srv/registry-backups";
const DATA: &str = "/var/lib/halite/registry";
const READY: Duration = Duration::from_secs(180);

/// The reference of an image of the bundle on the bootstrap host.
fn busybox() -> String {
    format!("docker.io/library/busybox:{BUSYBOX}")
}

fn document(further: &str) -> String {
    format!(
        "{{enabled: true, node: {WORKER}, users: {{ci: ci, dev: dev}}, backup: {{directory: {BACKUPS}, keep: 2}}{further}}}"
    )
}

/// Sends a request to the registry; returns status and body.
fn asked(from: &Host, options: &str, path: &str) -> Result<(String, String)> {
    let options = format!("-w '\\n%{{http_code}}' {options}");
    let answer = curl(from, &options, &format!("https://{NAME}{path}"))?;
    let (body, code) = answer.trim_end().rsplit_once('\n').context("no status")?;
    Ok((code.to_owned(), body.to_owned()))
}

/// Pushes an image of the bundle under another name, as people would from any machine, with ctr,
/// the one client that every host has.
fn push(host: &Host, image: &str, login: &str) -> Result<String> {
    let source = busybox();
    host.sh(&format!(
        "ctr -n k8s.io images tag --force {source} {image} >/dev/null && \
         ctr -n k8s.io images push --local --tlscacert {CA} {login} {image} 2>&1"
    ))
}

/// Removes an image from a host, so that it must be pulled.
pub(super) fn forget(host: &Host, image: &str) -> Result<()> {
    host.sh(&format!(
        "ctr -n k8s.io images rm --sync {image} >/dev/null 2>&1; true"
    ))
    .map(drop)
}

/// Runs a pod on a node to its end and returns its log.
pub(super) fn run_pod(
    cluster: &Cluster,
    name: &str,
    node: &str,
    image: &str,
    login: Option<&str>,
) -> Result<String> {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": node, "restartPolicy": "Never", "containers": [{
            "name": "it", "image": image, "imagePullPolicy": "Always", "command": ["sh", "-c", "echo it runs"],
        }]},
    });
    if let Some(login) = login {
        pod["spec"]["imagePullSecrets"] = json!([{"name": login}]);
    }
    fs::write(
        cluster.bootstrap.root().join("root/pod.json"),
        pod.to_string(),
    )?;
    cluster.kubectl(&["delete", "pod", name, "--ignore-not-found", "--wait=true"])?;
    cluster.kubectl(&["apply", "-f", "/root/pod.json"])?;
    let ended = wait::until("the pod to have run", READY, || {
        let answer = cluster.kubectl(&["get", "pod", name, "-o", "json"])?;
        let pod: Value = serde_json::from_str(&answer)?;
        match pod["status"]["phase"].as_str() {
            Some("Succeeded") => Ok(()),
            _ => Err(Error::msg(pod["status"]["containerStatuses"].to_string())),
        }
    });
    let said = ended.and_then(|()| cluster.kubectl(&["logs", name]));
    cluster.kubectl(&["delete", "pod", name, "--wait=true"])?;
    said
}

fn on(cluster: &Cluster) -> Result<Counts> {
    let secrets = format!("{{ci: {{value: {PASSWORD}}}, dev: {{value: another-one-of-these}}}}");
    declare(cluster, "secrets", &secrets)?;
    declare(cluster, "siteRegistry", &document(", pullAs: ci"))?;
    highstate(cluster, &[])?;
    quiet(cluster)?;
    for host in cluster.hosts() {
        for login in ["", "-u ci:wrong", "-u absent:", "-X POST"] {
            let (code, _) = asked(host, login, "/v2/_catalog")?;
            ensure!(code == "401", "{login:?} from {}: {code}", host.spec.name);
        }
        let (code, body) = asked(host, &format!("-u ci:{PASSWORD}"), "/v2/_catalog")?;
        ensure!(code == "200", "{code} {body}");
    }
    pulled_by_pods(cluster)?;
    // The push must not go into the bundle, and the bundle's servers must not list it.
    let (_, catalog) = asked(
        &cluster.bootstrap,
        "-u dev:another-one-of-these",
        "/v2/_catalog",
    )?;
    ensure!(catalog.contains("team/app"), "{catalog}");
    let first = cluster.bootstrap.control_plane_address();
    let bundles = cluster.bootstrap.sh(&format!(
        "curl -sS --noproxy '*' --cacert {CA} https://{first}:4551/v2/_catalog"
    ))?;
    ensure!(!bundles.contains("team/app"), "{bundles}");
    Ok(Counts {
        passed: 3,
        failed: 0,
    })
}

/// Checks that only a user with the password can push an image, and that pods of every host pull
/// it.
pub(super) fn pulled_by_pods(cluster: &Cluster) -> Result<()> {
    let image = format!("{NAME}/team/app:1");
    forget(&cluster.bootstrap, &image)?;
    cluster.bootstrap.sh(&format!(
        "ctr -n k8s.io images pull --hosts-dir /etc/containerd/certs.d {} >/dev/null",
        busybox()
    ))?;
    for login in ["", "--user ci:wrong"] {
        match push(&cluster.bootstrap, &image, login) {
            Ok(said) => bail!("pushed with {login:?}: {said}"),
            Err(error) => {
                let message = format!("{error:#}");
                ensure!(
                    message.contains("401") || message.contains("authorization"),
                    "{message}"
                );
            }
        }
    }
    push(&cluster.bootstrap, &image, &format!("--user ci:{PASSWORD}"))?;
    for node in [BOOTSTRAP, WORKER] {
        forget(
            if node == BOOTSTRAP {
                &cluster.bootstrap
            } else {
                &cluster.worker
            },
            &image,
        )?;
        let said = run_pod(cluster, "own-image", node, &image, None)?;
        ensure!(said.trim() == "it runs", "on {node}: {said:?}");
    }
    Ok(())
}

/// Checks that only the document contains the password, and, if hosts pull with it, only
/// containerd's file contains it as a header.
fn nowhere_else(cluster: &Cluster, pulled_as: bool) -> Result<()> {
    for host in cluster.hosts() {
        // The form in which containerd sends it; only containerd's own file may contain it.
        let basic = host.sh(&format!("printf 'ci:{PASSWORD}' | base64 -w0"))?;
        let found = host.sh(&format!(
            "grep -rlF -e '{basic}' /etc /var/lib/halite /var/log 2>/dev/null; true"
        ))?;
        let own = format!("/etc/containerd/certs.d/{NAME}/hosts.toml");
        let found: Vec<&str> = found.lines().collect();
        ensure!(
            found
                == if pulled_as {
                    vec![own.as_str()]
                } else {
                    Vec::new()
                },
            "{found:?}"
        );
        let found = holders(host, PASSWORD)?;
        ensure!(found == declared(host), "on {}: {found:?}", host.spec.name);
    }
    Ok(())
}

fn secret(cluster: &Cluster) -> Result<Counts> {
    nowhere_else(cluster, true)?;
    let modes = cluster.worker.sh(&format!(
        "stat -c '%n %a %U' /etc/halite/registry/htpasswd /etc/halite/registry/server.key \
         '/etc/containerd/certs.d/{NAME}/hosts.toml' {DATA}"
    ))?;
    for line in modes.lines() {
        ensure!(
            line.contains(" 640 root")
                || line.contains(" 600 ")
                || line.contains(" 750 halite-registry"),
            "{modes}"
        );
    }
    let shown = cluster
        .bootstrap
        .run(&["ctl", "pillar", WORKER, "-o", "json"])?;
    ensure!(
        !shown.contains(PASSWORD) && !shown.contains("$2y$"),
        "{shown}"
    );
    Ok(Counts::ONE)
}

fn killed(cluster: &Cluster) -> Result<Counts> {
    let (host, login) = (&cluster.bootstrap, format!("-u ci:{PASSWORD}"));
    let digest = host.sh(
        "cd /root && head -c 200000 /dev/urandom > blob && head -c 80000 blob > half && tail -c 120000 blob > rest && \
         sha256sum < blob | cut -d' ' -f1",
    )?;
    let digest = digest.trim();
    // Each answer has the URL at which the upload continues.
    let step = |options: &str, path: &str| -> Result<String> {
        let (code, _) = asked(
            host,
            &format!("{login} -D /root/upload.txt {options}"),
            path,
        )?;
        ensure!(code == "202", "{options}: {code}");
        let place = host.sh("tr -d '\\r' < /root/upload.txt | sed -n 's/^location: //Ip'")?;
        Ok(place.trim().to_owned())
    };
    let octets = "-H 'Content-Type: application/octet-stream'";
    let begun = step("-X POST", "/v2/team/cut/blobs/uploads/")?;
    let half = format!("-X PATCH {octets} -H 'Content-Range: 0-79999' --data-binary @/root/half");
    let place = step(&half, &begun)?;
    // The registry has half a blob when it is killed.
    cluster
        .worker
        .sh("systemctl kill --signal=KILL halite-registry.service")?;
    wait::until("the registry to be back", READY, || {
        match asked(host, &login, "/v2/") {
            Ok((code, _)) if code == "200" => Ok(()),
            other => Err(anyhow!("{other:?}")),
        }
    })?;
    let rest = format!(
        "{login} -X PUT {octets} -H 'Content-Range: 80000-199999' --data-binary @/root/rest"
    );
    let (code, body) = asked(host, &rest, &format!("{place}&digest=sha256:{digest}"))?;
    ensure!(code == "201", "{code} {body}");
    let got = host.sh(&format!(
        "curl -sS --noproxy '*' --cacert {CA} {login} https://{NAME}/v2/team/cut/blobs/sha256:{digest} | cmp - /root/blob"
    ));
    host.sh("cd /root && rm blob half rest upload.txt")?;
    got.context("another blob came back")?;
    // Push another image.
    let image = format!("{NAME}/team/cut:1");
    push(&cluster.bootstrap, &image, &format!("--user ci:{PASSWORD}"))?;
    let said = run_pod(cluster, "after-a-kill", WORKER, &image, None)?;
    ensure!(said.trim() == "it runs", "{said:?}");
    Ok(Counts::ONE)
}

fn own_login(cluster: &Cluster) -> Result<Counts> {
    declare(cluster, "siteRegistry", &document(""))?;
    highstate(cluster, &[])?;
    let image = format!("{NAME}/team/app:1");
    for host in cluster.hosts() {
        let file = host.sh(&format!("cat '/etc/containerd/certs.d/{NAME}/hosts.toml'"))?;
        ensure!(!file.contains("Authorization"), "{file}");
    }
    nowhere_else(cluster, false)?;
    forget(&cluster.worker, &image)?;
    let refused = cluster.worker.sh(&format!(
        "ctr -n k8s.io images pull --hosts-dir /etc/containerd/certs.d {image} 2>&1"
    ));
    ensure!(refused.is_err(), "pulled without a login: {refused:?}");
    let server = format!("--docker-server={NAME}");
    let password = format!("--docker-password={PASSWORD}");
    let login = [
        "create",
        "secret",
        "docker-registry",
        "own-login",
        &server,
        "--docker-username=ci",
        &password,
    ];
    cluster.kubectl(&login)?;
    let said = run_pod(cluster, "with-a-login", WORKER, &image, Some("own-login"));
    cluster.kubectl(&["delete", "secret", "own-login"])?;
    ensure!(said?.trim() == "it runs", "it did not run");
    Ok(Counts::ONE)
}

fn off(cluster: &Cluster) -> Result<Counts> {
    declare(cluster, "siteRegistry", "")?;
    declare(cluster, "secrets", "")?;
    highstate(cluster, &[])?;
    quiet(cluster)?;
    let worker = &cluster.worker;
    let listening = worker.sh("ss -Hltn 'sport = :4552'")?;
    ensure!(listening.trim().is_empty(), "it still listens: {listening}");
    for path in [
        "/etc/halite/registry",
        "/etc/systemd/system/halite-registry.service",
        "/etc/systemd/system/halite-registry-verify.timer",
        "/var/lib/halite/reports/registry-backup.json",
        "/etc/containerd/certs.d/registry.demo.internal:4552",
    ] {
        ensure!(
            !worker.root().join(path.trim_start_matches('/')).exists(),
            "{path} is still there"
        );
    }
    let rules = worker.sh("firewall-cmd --info-policy=halite-host")?;
    ensure!(!rules.contains("4552"), "{rules}");
    for host in cluster.hosts() {
        host.sh("! grep -F registry.demo.internal /etc/hosts")?;
    }
    let kept = worker.sh(&format!(
        "find {DATA} -path '*team/app/_manifests/tags/1/current/link' && ls {BACKUPS}"
    ))?;
    ensure!(
        kept.contains("/team/app/") && kept.lines().count() == 3,
        "{kept}"
    );
    worker.sh(&format!("rm -rf {DATA} {BACKUPS} /usr/local/bin/ctl"))?;
    for host in [&cluster.bootstrap, worker] {
        host.sh(&format!(
            "ctr -n k8s.io images ls -q | grep {NAME} | xargs -r ctr -n k8s.io images rm --sync"
        ))?;
    }
    Ok(Counts::ONE)
}
