//! Rotations that are interrupted at the end of each step: the master, a minion or a host dies, in
//! turn. They end like those without an interruption.

use std::fs;

use anyhow::{Result, ensure};
use halite_lab::cluster::{CTL, Cluster, DOCUMENT};
use halite_lab::host::Host;
use halite_lab::layout::TWO;
use halite_states::shipped::{ROTATE_CA, ROTATE_ENCRYPTION};
use serde_json::json;

use super::own::{MINION_CA, ROOT, SITE_CA, identities_are_new, servers_are_new, with_identity};
use super::three::{ETCD_CA, OF_CONTROL_PLANES, OF_ETCD, OF_HOSTS, verify};
use super::{
    CA, OLD_CA, RESTART, are_ready, certificates, command, keep_old, leave_all_hosts, old_has_left,
    old_is_refused, own_line, rotate, settled,
};
use crate::checks::nothing_to_do;
use crate::cluster::PODS;
use crate::encrypted::{SECRET, has_only, is_encrypted_with, is_plain_text, make_secret, writer};
use crate::ha::ConfigMapWriter;
use crate::interrupted::steps;
use crate::kills::master_answers;
use crate::repair::answering;
use crate::struck::{StepBoundaries, StepVictim};
use crate::test::{Counts, Test};

/// Each of them leaves the cluster as it was, except for its keys.
pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "rotation: a rotation of the CA of Kubernetes that is interrupted at the end of each step ends the same",
        run: kubernetes,
    },
    Test {
        name: "rotation: a rotation of the CA of etcd that is interrupted at the end of each step ends the same",
        run: etcd,
    },
    Test {
        name: "rotation: a rotation of the CA of the front proxy that is interrupted at the end of each step ends the same",
        run: front_proxy,
    },
    Test {
        name: "rotation: a rotation of the key of service accounts that is interrupted at the end of each step ends the same",
        run: service_accounts,
    },
    Test {
        name: "rotation: a rotation of the key of Secrets that is interrupted at the end of each step ends the same",
        run: secrets,
    },
    Test {
        name: "rotation: a rotation of the CA of identities that is interrupted at the end of each step ends the same",
        run: identities,
    },
    Test {
        name: "rotation: a rotation of the CA of the site's servers that is interrupted at the end of each step ends the same",
        run: servers,
    },
];

/// The victims, in the order of the steps. The CAs of etcd and of the front proxy and the key of
/// service accounts have the same steps on a control plane: in each stage, each of them has another
/// victim.
fn victims(keys: &str) -> &'static [StepVictim] {
    use StepVictim::{Host, Master, Minion};
    match keys {
        "front-proxy" => &[Minion, Host, Master],
        // The third step is that of the pods.
        "sa" => &[Host, Master, Host, Minion],
        _ => &[Master, Minion, Host],
    }
}

/// The number of rotations after which the boundaries that are left have been missed.
const RUNS: usize = 4;

/// The CA of Kubernetes and the keys of Secrets, as the command names them.
const KUBERNETES: &str = "kubernetes";
const ENCRYPTION: &str = "encryption";

/// The certificates and keys of a control plane.
pub(super) const PKI: &str = "/etc/kubernetes/pki";
const ETCD_CLIENT: [&str; 2] = [
    "/etc/kubernetes/pki/apiserver-etcd-client.crt",
    "/etc/kubernetes/pki/apiserver-etcd-client.key",
];
pub(super) const FRONT_PROXY_CA: &str = "/etc/kubernetes/pki/front-proxy-ca.crt";
pub(super) const FRONT_PROXY: [&str; 2] = [
    "/etc/kubernetes/pki/front-proxy-client.crt",
    "/etc/kubernetes/pki/front-proxy-client.key",
];
const PUBLIC_KEY: &str = "/etc/kubernetes/pki/sa.pub";

/// The directory of copies from before a rotation.
pub(super) const KEPT: &str = "/root/rotation/kept";
/// A copy of root's identity from before a rotation.
const KEPT_IDENTITY: &str = "/root/rotation/kept/operator";

/// The section of the document without encryption, with encryption, and with encryption of no
/// resources, which decrypts them again.
const PLAIN: &str = "apiServer:\n";
const ENCRYPTED: &str = "apiServer:\n  encryption: {}\n";
const DECRYPTED: &str = "apiServer:\n  encryption: {resources: []}\n";

/// The steps of a rotation on the hosts of the site, which has no second control plane: the steps
/// that move the address have nothing to do.
fn steps_of(keys: &str) -> Result<Vec<String>> {
    let mut steps = match keys {
        ENCRYPTION => steps(ROTATE_ENCRYPTION, &json!({}), &TWO)?,
        ca => steps(ROTATE_CA, &json!({"ca": ca}), &TWO)?,
    };
    steps.retain(|step| !step.ends_with("-vip"));
    Ok(steps)
}

/// Rotates keys, and interrupts the command at the end of each step. If too many moments were
/// missed, they are among those of another rotation; `before` is called before each. A client
/// writes all the time and finds each acknowledged write. It still writes afterwards, unless the CA
/// of its certificate has left. Checks that the last rotation has ended, and that nothing is left
/// to do.
fn interrupted(
    cluster: &Cluster,
    keys: &str,
    further: &[&str],
    mut before: impl FnMut() -> Result<()>,
) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let words = command(keys, further);
    let known = certificates(host)?;
    let mut boundaries = StepBoundaries::new(cluster, steps_of(keys)?, victims(keys));
    for _ in 0..RUNS {
        before()?;
        let writer = ConfigMapWriter::at_the_router(cluster, host, keys)?;
        boundaries.run(&words)?;
        is_whole(cluster)?;
        // The API refuses the certificate of a CA that has left.
        if keys != KUBERNETES {
            writer.continues()?;
        }
        println!("  {}", writer.end()?.summary());
        if boundaries.are_enough() {
            break;
        }
    }
    is_settled(cluster)?;
    let now = certificates(host)?;
    ensure!(known == now, "before:\n{known}\nnow:\n{now}");
    boundaries.counts()
}

/// Waits until master and minions answer, all nodes are Ready, and all pods run.
fn is_whole(cluster: &Cluster) -> Result<()> {
    master_answers(&cluster.bootstrap)?;
    answering(cluster)?;
    are_ready(cluster)?;
    cluster.wait_for_pods(PODS)
}

/// Checks that no rotation is unfinished, that a highstate changes nothing, and that nothing tried
/// to leave the lab.
fn is_settled(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    is_whole(cluster)?;
    let findings = host.sh(&format!("{CTL} health -o json || true"))?;
    ensure!(!findings.contains("has not ended"), "{findings}");
    nothing_to_do(host)?;
    settled(cluster)?;
    cluster.nothing_tried_to_leave()
}

/// Copies files of the first host.
pub(super) fn keep(host: &Host, files: &[&str]) -> Result<()> {
    let files = files.join(" ");
    host.sh(&format!("mkdir -p {KEPT} && cp {files} {KEPT}"))?;
    Ok(())
}

/// Checks that the first host has one other certificate or key in this file, and that no host has
/// the one in its copy.
fn is_replaced(cluster: &Cluster, file: &str) -> Result<()> {
    let host = &cluster.bootstrap;
    let name = file.rsplit('/').next().unwrap_or(file);
    let before = host.run(&["cat", &format!("{KEPT}/{name}")])?;
    let now = host.run(&["cat", file])?;
    let number = now.matches("BEGIN").count();
    ensure!(before != now && number == 1, "{number} in {file}: {now}");
    leave_all_hosts(cluster, &[own_line(&before)?])
}

/// The HTTP status with which the API server of a host answers `curl` with these options.
fn status_of(host: &Host, options: &str) -> Result<String> {
    let url = format!("https://{}:6443/api", host.control_plane_address());
    host.sh(&format!(
        "curl --silent --insecure --max-time 10 --noproxy '*' --output /dev/null \
         --write-out '%{{http_code}}' {options} {url}"
    ))
}

fn kubernetes(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let counts = interrupted(cluster, KUBERNETES, RESTART, || keep_old(host))?;
    ensure!(
        host.run(&["cat", CA])? != host.run(&["cat", OLD_CA])?,
        "the CA is the old one"
    );
    old_is_refused(host)?;
    old_has_left(cluster)?;
    for host in cluster.hosts() {
        verify(host, CA, OF_HOSTS)?;
    }
    verify(host, CA, OF_CONTROL_PLANES)?;
    Ok(counts)
}

/// Queries etcd with the client certificate in this directory.
pub(super) fn query_etcd(host: &Host, directory: &str) -> Result<()> {
    let client = format!("{directory}/apiserver-etcd-client");
    host.sh(&format!(
        "curl --silent --show-error --fail --max-time 10 --noproxy '*' --cacert {ETCD_CA} \
         --cert {client}.crt --key {client}.key https://127.0.0.1:2379/health"
    ))?;
    Ok(())
}

fn etcd(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let files = [&[ETCD_CA], &ETCD_CLIENT[..]].concat();
    let counts = interrupted(cluster, "etcd", &[], || keep(host, &files))?;
    is_replaced(cluster, ETCD_CA)?;
    verify(host, ETCD_CA, OF_ETCD)?;
    query_etcd(host, PKI)?;
    ensure!(
        query_etcd(host, KEPT).is_err(),
        "etcd accepts the old certificate of a client"
    );
    Ok(counts)
}

/// The HTTP status with which the API server answers the front proxy with the certificate in this
/// directory.
pub(super) fn status_of_front_proxy(host: &Host, directory: &str) -> Result<String> {
    let client = format!("{directory}/front-proxy-client");
    let user = "--header 'X-Remote-User: test' --header 'X-Remote-Group: system:masters'";
    status_of(
        host,
        &format!("--cert {client}.crt --key {client}.key {user}"),
    )
}

fn front_proxy(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let files = [&[FRONT_PROXY_CA], &FRONT_PROXY[..]].concat();
    let counts = interrupted(cluster, "front-proxy", &[], || keep(host, &files))?;
    is_replaced(cluster, FRONT_PROXY_CA)?;
    verify(host, FRONT_PROXY_CA, &FRONT_PROXY[..1])?;
    for (directory, wanted) in [(PKI, "200"), (KEPT, "401")] {
        let status = status_of_front_proxy(host, directory)?;
        ensure!(
            status == wanted,
            "the API answers {directory} with {status}"
        );
    }
    Ok(counts)
}

fn service_accounts(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let mut old = String::new();
    let counts = interrupted(cluster, "sa", RESTART, || {
        keep(host, &[PUBLIC_KEY])?;
        old = token(cluster)?;
        let status = status_with_token(host, &old)?;
        ensure!(status == "200", "the API answers a new token with {status}");
        Ok(())
    })?;
    is_replaced(cluster, PUBLIC_KEY)?;
    for (token, wanted) in [(token(cluster)?, "200"), (old, "401")] {
        let status = status_with_token(host, &token)?;
        ensure!(status == wanted, "{status} instead of {wanted}");
    }
    Ok(counts)
}

/// A new token of a service account.
fn token(cluster: &Cluster) -> Result<String> {
    let token = cluster.kubectl(&["create", "token", "default"])?;
    Ok(token.trim().to_owned())
}

/// The HTTP status with which the API server answers a token.
fn status_with_token(host: &Host, token: &str) -> Result<String> {
    status_of(host, &format!("--header 'Authorization: Bearer {token}'"))
}

/// Secrets are encrypted for the time of the test.
fn secrets(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    make_secret(cluster)?;
    declare(cluster, PLAIN, ENCRYPTED)?;
    rotate(host, ENCRYPTION, &[])?;
    let mut older = String::new();
    let counts = interrupted(cluster, ENCRYPTION, &[], || {
        older = writer(host)?;
        is_encrypted_with(cluster, &older)
    })?;
    let newer = writer(host)?;
    ensure!(newer != older, "{older} still encrypts");
    is_encrypted_with(cluster, &newer)?;
    has_only(host, &newer, &older)?;
    // Plain text again, as the guide says.
    declare(cluster, ENCRYPTED, DECRYPTED)?;
    rotate(host, ENCRYPTION, &[])?;
    is_plain_text(cluster)?;
    declare(cluster, DECRYPTED, PLAIN)?;
    cluster.kubectl(&["delete", "secret", SECRET])?;
    is_settled(cluster)?;
    Ok(counts)
}

/// Replaces a text of the cluster document, and applies it.
fn declare(cluster: &Cluster, from: &str, to: &str) -> Result<()> {
    let file = cluster.bootstrap.file(DOCUMENT);
    let text = fs::read_to_string(&file)?;
    ensure!(text.contains(from), "the document has no {from:?}");
    fs::write(&file, text.replacen(from, to, 1))?;
    cluster.bootstrap.run(&[CTL, "highstate"])?;
    Ok(())
}

fn identities(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let mut old = String::new();
    let counts = interrupted(cluster, "halite", &[], || {
        old = host.run(&["cat", MINION_CA])?;
        host.sh(&format!(
            "mkdir -p {KEPT} && rm -rf {KEPT_IDENTITY} && cp -r {ROOT} {KEPT_IDENTITY}"
        ))?;
        with_identity(host, KEPT_IDENTITY)
    })?;
    identities_are_new(cluster, &old)?;
    with_identity(host, ROOT)?;
    ensure!(
        with_identity(host, KEPT_IDENTITY).is_err(),
        "the old certificate of an operator is accepted"
    );
    leave_all_hosts(cluster, &[own_line(&old)?])?;
    host.run(&[CTL, "cmd", "*", "--", "true"])?;
    Ok(counts)
}

fn servers(cluster: &Cluster) -> Result<Counts> {
    let mut old = String::new();
    let counts = interrupted(cluster, "site", &[], || {
        old = cluster.worker.run(&["cat", SITE_CA])?;
        Ok(())
    })?;
    servers_are_new(cluster, &old)?;
    leave_all_hosts(cluster, &[own_line(&old)?])?;
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::struck::boundaries;

    #[test]
    fn each_rotation_has_steps_and_ends_with_the_last_one() {
        for (keys, number, last) in [
            ("kubernetes", 18, "end"),
            ("etcd", 11, "end"),
            ("front-proxy", 11, "end"),
            ("sa", 12, "end"),
            ("halite", 15, "end"),
            ("site", 17, "end"),
            (ENCRYPTION, 12, "keys-end"),
        ] {
            let steps = steps_of(keys).unwrap();
            let different: BTreeSet<&String> = steps.iter().collect();
            assert_eq!(different.len(), steps.len(), "{keys}: {steps:?}");
            assert_eq!(steps.len(), number, "{keys}: {steps:?}");
            assert_eq!(steps.last().map(String::as_str), Some(last), "{keys}");
        }
    }

    #[test]
    fn each_stage_of_a_control_plane_has_each_victim() {
        for stage in ["trust", "sign", "only"] {
            let step = format!("bootstrap-1-{stage}");
            let found = ["etcd", "front-proxy", "sa"].map(|keys| {
                let steps = boundaries(&steps_of(keys).unwrap(), victims(keys));
                let own = steps.into_iter().find(|one| one.step == step);
                own.unwrap().victim
            });
            let all = victims("etcd");
            assert!(
                all.iter().all(|victim| found.contains(victim)),
                "{step}: {found:?}"
            );
        }
    }

    #[test]
    fn the_document_of_the_lab_is_valid_with_encryption() {
        for text in [ENCRYPTED, DECRYPTED] {
            let document = halite_lab::cluster::CLUSTER.replacen(PLAIN, text, 1);
            let declared = crate::shipped_tree::declaration(&document, &TWO).unwrap();
            assert!(declared.cluster.encryption().is_some(), "{text}");
        }
    }
}
