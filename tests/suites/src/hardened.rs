//! A cluster with the profile `hardened`: what it promises is measured at the API, in etcd and on
//! the hosts.

mod benchmark;
mod issuer;
mod page;
mod patches;
mod upgraded;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_lab::cluster::{BOOTSTRAP, CLUSTER, Cluster, DOCUMENT, WORKER};
use halite_lab::host::Host;
use halite_lab::layout::{Layout, TWO};
use halite_lab::progress::Board;
use halite_lab::wait;
use halite_upstream::prepare;
use halite_upstream::versions::{FULL, NEWEST, Release};
use serde::Deserialize;
use serde_json::{Value, json};

use super::cluster::{PODS, nothing_left};
use super::encrypted::{
    ENCRYPTED, SECRET, VALUE, has_only, is_encrypted_with, make_secret, master_keys, range, record,
    stored, writer,
};
use super::repair::quiet;
use super::secret::holders;
use crate::site::Site;
use crate::test::{Counts, Test, cases, sequence};

/// Name of its own lab: its pods have other rights than those of the other suites.
const LAB: &str = "hardened";
const AUDIT_LOG: &str = "/var/log/kubernetes/audit/audit.log";
/// The namespace of the tests' pods.
const NAMESPACE: &str = "new";
/// The Pod Security Standard of the profile.
const PROFILE: &str = "restricted";
/// The key from before the rotation, outside the directories that [`holders`] searches.
const OLDER_KEY: &str = "/root/key-before-rotation";

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "hardened: the commands of the guide show the profile, the audit log and ciphertext",
        run: page::is_followed,
    },
    Test {
        name: "hardened: a Secret is ciphertext in etcd",
        run: encrypted,
    },
    Test {
        name: "hardened: the audit log has each write, and no content of a Secret",
        run: audited,
    },
    Test {
        name: "hardened: a privileged pod is refused in a new namespace, and a restricted one runs",
        run: restricted,
    },
    Test {
        name: "hardened: kubelets are verified, and keep the kernel's protection",
        run: kubelets,
    },
    Test {
        name: "hardened: the API server has the declared flags, volumes, patches and files",
        run: declared,
    },
    Test {
        name: "hardened: a token of a declared issuer is accepted, and one for another audience is refused",
        run: issuer::is_trusted,
    },
    Test {
        name: "hardened: kube-bench fails the checks that the guide lists, and no others",
        run: benchmark::fails_as_listed,
    },
    Test {
        name: "hardened: another highstate changes nothing",
        run: settled,
    },
    Test {
        name: "hardened: a rotated key rewrites each Secret, and the older key leaves",
        run: rotated,
    },
    Test {
        name: "hardened: no key is outside the master's directory and the control planes",
        run: keys_are_kept,
    },
    Test {
        name: "hardened: an upgrade keeps the profile, the audit log and the ciphertext",
        run: upgraded::keeps_all,
    },
    Test {
        name: "hardened: nothing tried to leave",
        run: nothing_left,
    },
];

/// Further settings of the API server, each of a kind that the profile does not set.
const API_SERVER: &str = r#"apiServer:
  authentication:
    anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}, {path: /healthz}]}
  featureGates: {AllAlpha: false}
  extraArgs: {vmodule: [httplog=3, cacher=2]}
  extraVolumes: [{name: machine, hostPath: /etc/machine-id, mountPath: /etc/machine-id, readOnly: true, pathType: File}]
  patches: [{spec: {containers: [{name: kube-apiserver, resources: {requests: {cpu: 200m}}}]}}]
"#;

/// The cluster document, with the profile as the guide declares it.
fn document() -> Result<String> {
    let document = CLUSTER.replacen("apiServer:\n", API_SERVER, 1);
    Ok(document + patches::DECLARED + &page::profile()?)
}

/// The site of the profile.
pub(super) fn site() -> Site {
    Site {
        lab: LAB.to_owned(),
        made: "hardened: bootstrap and node add with the profile",
        layout: &TWO,
        // The bundle to which it is upgraded is made of this one.
        release: FULL,
        make,
        tests: sequence(cases(TESTS)),
    }
}

fn make(lab: &str, layout: &Layout, release: &Release) -> Result<Cluster> {
    let (releases, board) = ((release, None), Board::plain());
    prepare::cluster_declared(lab, layout, releases, &document()?, &board)
}

/// An event of the audit log.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditEvent {
    level: String,
    verb: String,
    user: AuditUser,
    object_ref: Option<AuditObject>,
}

#[derive(Debug, Deserialize)]
struct AuditUser {
    username: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AuditObject {
    resource: String,
    name: String,
}

fn encrypted(cluster: &Cluster) -> Result<Counts> {
    make_secret(cluster)?;
    is_encrypted_with(cluster, &writer(&cluster.bootstrap)?)?;
    // Other objects are not, so that they cost nothing.
    let map = stored(cluster, "/registry/configmaps/kube-system/kubeadm-config")?;
    ensure!(!map.starts_with("k8s:enc:"), "{map:.40}");
    Ok(Counts::ONE)
}

/// The events of the audit log.
fn events(host: &Host) -> Result<Vec<AuditEvent>> {
    let text = host.run(&["cat", AUDIT_LOG])?;
    // The last line may be half written.
    let events = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    Ok(events.collect())
}

/// Fails unless the audit log has the creation of an object.
///
/// # Errors
/// It has none, or cannot be read.
pub(super) fn is_audited(host: &Host, resource: &str, name: &str) -> Result<()> {
    creation(host, resource, name).map(drop)
}

/// The event of the creation of an object in the audit log.
fn creation(host: &Host, resource: &str, name: &str) -> Result<AuditEvent> {
    let found = events(host)?.into_iter().find(|event| {
        let object = event.object_ref.as_ref();
        let is_it = object.is_some_and(|own| own.resource == resource && own.name == name);
        event.verb == "create" && is_it
    });
    found.with_context(|| format!("the audit log has no creation of {resource}/{name}"))
}

fn audited(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    cluster.kubectl(&["create", "configmap", "audited", "--from-literal=x=y"])?;
    let event = creation(host, "secrets", SECRET)?;
    ensure!(
        event.user.username == "kubernetes-admin" && event.level == "Metadata",
        "{event:?}"
    );
    creation(host, "configmaps", "audited")?;
    let log = host.run(&["cat", AUDIT_LOG])?;
    ensure!(
        !log.contains(VALUE) && !log.contains(&STANDARD.encode(VALUE)),
        "the audit log has the content of a Secret"
    );
    let mode = host.run(&["stat", "-c", "%a %U", "/var/log/kubernetes/audit"])?;
    ensure!(mode.trim() == "700 root", "{mode}");
    Ok(Counts::ONE)
}

/// A pod of that name in the namespace of the tests.
fn pod(name: &str, node: &str, security: &Value) -> Value {
    let image = format!("registry.k8s.io/pause:{}", NEWEST.pause);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "nodeName": node,
            "containers": [{"name": "it", "image": image, "securityContext": security}],
        },
    })
}

fn apply(cluster: &Cluster, pod: &Value) -> Result<String> {
    let file = "/root/pod.json";
    std::fs::write(cluster.bootstrap.file(file), pod.to_string())?;
    cluster.kubectl(&["apply", "-f", file])
}

/// Makes the namespace of the tests' pods, and fails unless a privileged pod is refused in it
/// because of this Pod Security Standard.
///
/// # Errors
/// The namespace exists, or the pod is admitted or refused for another reason.
pub(super) fn refuses_privileged_pods(cluster: &Cluster, standard: &str) -> Result<()> {
    cluster.kubectl(&["create", "namespace", NAMESPACE])?;
    wait::until("the namespace's ServiceAccount", PODS, || {
        let account = ["-n", NAMESPACE, "get", "serviceaccount", "default"];
        cluster.kubectl(&account).map(drop)
    })?;
    let privileged = pod("privileged", WORKER, &json!({"privileged": true}));
    match apply(cluster, &privileged) {
        Ok(said) => bail!("a privileged pod was admitted: {said}"),
        Err(error) => {
            let said = format!("{error:#}");
            let reason = format!("violates PodSecurity \"{standard}:");
            ensure!(said.contains(&reason), "{said}");
            Ok(())
        }
    }
}

fn restricted(cluster: &Cluster) -> Result<Counts> {
    refuses_privileged_pods(cluster, PROFILE)?;
    let allowed = json!({
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
        "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"},
    });
    wait::until("the pod to run", PODS, || {
        apply(cluster, &pod("restricted", WORKER, &allowed))?;
        let path = "jsonpath={.status.phase}";
        let phase = ["-n", NAMESPACE, "get", "pod", "restricted", "-o", path];
        let phase = cluster.kubectl(&phase)?;
        ensure!(phase == "Running", "{phase}");
        Ok(())
    })?;
    Ok(Counts::ONE)
}

/// Fails unless each kubelet protects the kernel's parameters, and is verified by the API server.
fn are_protected(cluster: &Cluster) -> Result<()> {
    for host in cluster.hosts() {
        let node = &host.spec.name;
        let path = format!("/api/v1/nodes/{node}/proxy/configz");
        // Through the API server, which verifies the kubelet's certificate.
        let config = cluster.kubectl(&["get", "--raw", &path])?;
        ensure!(
            config.contains("\"protectKernelDefaults\":true"),
            "{node}: {config}"
        );
        let mode = host.run(&["stat", "-c", "%a", "/var/lib/kubelet/config.yaml"])?;
        ensure!(mode.trim() == "600", "{node}: {mode}");
    }
    Ok(())
}

fn kubelets(cluster: &Cluster) -> Result<Counts> {
    are_protected(cluster)?;
    // A kubelet with a certificate of another authority is not spoken to.
    let worker = &cluster.worker;
    let certificate = "/var/lib/kubelet/pki/kubelet";
    worker.sh(&format!(
        "cd /tmp && openssl req -x509 -newkey rsa:2048 -nodes -subj /CN={WORKER} -days 1 -keyout k -out c 2>/dev/null && \
         cp -p {certificate}.crt c.kept && cp -p {certificate}.key k.kept && cat c > {certificate}.crt && cat k > {certificate}.key && \
         systemctl restart kubelet"
    ))?;
    let path = format!("/api/v1/nodes/{WORKER}/proxy/healthz");
    let refused = wait::until(
        "the API server to refuse the kubelet",
        PODS,
        || match cluster.kubectl(&["get", "--raw", &path]) {
            Ok(said) => bail!("the kubelet answers: {said}"),
            Err(error) => {
                let said = format!("{error:#}");
                ensure!(said.contains("x509"), "{said}");
                Ok(())
            }
        },
    );
    worker.sh(&format!(
        "cd /tmp && cat c.kept > {certificate}.crt && cat k.kept > {certificate}.key && rm -f c k c.kept k.kept && \
         systemctl restart kubelet"
    ))?;
    refused?;
    wait::until("the kubelet to answer", PODS, || {
        cluster.kubectl(&["get", "--raw", &path]).map(drop)
    })?;
    Ok(Counts::ONE)
}

fn declared(cluster: &Cluster) -> Result<Counts> {
    let name = format!("kube-apiserver-{BOOTSTRAP}");
    let field = |path: &str| {
        let path = format!("jsonpath={{.spec.containers[0].{path}}}");
        cluster.kubectl(&["-n", "kube-system", "get", "pod", &name, "-o", &path])
    };
    let command = field("command")?;
    for flag in [
        "--profiling=false",
        "--service-account-extend-token-expiration=false",
        "--vmodule=cacher=2",
        "--vmodule=httplog=3",
        "--feature-gates=AllAlpha=false",
        "--kubelet-certificate-authority=",
        "--audit-policy-file=",
        "--encryption-provider-config=",
        "--authentication-config=",
        "--admission-control-config-file=",
    ] {
        ensure!(command.contains(flag), "no {flag} in {command}");
    }
    patches::are_applied(cluster)?;
    let mounts = field("volumeMounts")?;
    ensure!(mounts.contains("/etc/machine-id"), "{mounts}");
    // An anonymous client gets the health, and nothing else.
    let host = &cluster.bootstrap;
    let url = format!("https://{}:6443", host.control_plane_address());
    let code = |path: &str| {
        let line = format!(
            "curl --silent --insecure --noproxy '*' --output /dev/null --write-out '%{{http_code}}' {url}{path}"
        );
        host.sh(&line)
    };
    ensure!(code("/readyz")? == "200", "/readyz: {}", code("/readyz")?);
    ensure!(
        code("/version")? == "401",
        "/version: {}",
        code("/version")?
    );
    for (path, wanted) in [
        ("/etc/kubernetes/apiserver", "700 root"),
        ("/etc/kubernetes/apiserver/encryption.yaml", "600 root"),
    ] {
        let found = host.run(&["stat", "-c", "%a %U", path])?;
        ensure!(found.trim() == wanted, "{path}: {found}");
    }
    Ok(Counts::ONE)
}

fn settled(cluster: &Cluster) -> Result<Counts> {
    quiet(cluster)?;
    Ok(Counts::ONE)
}

fn rotated(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let older = writer(host)?;
    std::fs::write(host.file(OLDER_KEY), master_key(host)?)?;
    page::rotates_the_key(host)?;
    let newer = writer(host)?;
    ensure!(newer != older, "{older} still encrypts");
    is_encrypted_with(cluster, &newer)?;
    has_only(host, &newer, &older)?;
    // Each Secret of the cluster has the new key, not only that of the test.
    for entry in range(cluster, &["get", "--prefix", "/registry/secrets/"])? {
        let value = STANDARD.decode(&entry.value)?;
        let begin = format!("{ENCRYPTED}{newer}:");
        let key = STANDARD.decode(&entry.key)?;
        ensure!(
            value.starts_with(begin.as_bytes()),
            "{} is not encrypted with the new key",
            String::from_utf8_lossy(&key)
        );
    }
    // The scheduler starts again if it loses its lease while the API server restarts.
    cluster.wait_for_pods(PODS)?;
    settled(cluster)
}

/// The master's oldest key.
fn master_key(host: &Host) -> Result<String> {
    let keys = master_keys(host)?;
    let path = keys.paths().next().context("the master has no key")?;
    let secret = keys
        .secret(&path)
        .context("the master's key has no secret")?;
    Ok(secret.to_owned())
}

fn keys_are_kept(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let secret = master_key(host)?;
    let older = std::fs::read_to_string(host.file(OLDER_KEY))?;
    ensure!(
        secret != older,
        "the key is the one from before the rotation"
    );
    let found = holders(host, &secret)?;
    let record = record();
    let wanted = ["/etc/kubernetes/apiserver/encryption.yaml", &record];
    ensure!(found == wanted, "the key is in {found:?}");
    let found = holders(host, &older)?;
    ensure!(found.is_empty(), "the older key is in {found:?}");
    let document = host.run(&["cat", DOCUMENT])?;
    for key in [&secret, &older] {
        let found = holders(&cluster.worker, key)?;
        ensure!(found.is_empty(), "{WORKER} has a key in {found:?}");
        ensure!(!document.contains(key.as_str()), "the document has a key");
    }
    Ok(Counts::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped_tree::declaration;

    #[test]
    fn the_document_is_valid_and_hardened() {
        let declared = declaration(&document().unwrap(), &TWO).unwrap();
        assert!(declared.cluster.is_hardened());
        assert!(declared.cluster.encryption().is_some());
    }
}
