//! An etcd outside the cluster: a plain process on the lab's second host, which is not part of the
//! cluster here.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CTL, Cluster, install};
use halite_lab::host::Host;
use halite_lab::wait;

use super::{BACK, cluster_configuration, destroy, serves, with};
use crate::checks::refused;
use crate::test::Counts;

/// The directory of that etcd's program, certificates and data.
const PLACE: &str = "/srv/lab-etcd";
const UNIT: &str = "lab-etcd.service";
/// Makes a CA, and certificates of the server at an address and of a client.
const CERTIFICATES: &str = r#"set -e
cd "$0"
new() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key" 2>/dev/null; }
new ca
openssl req -x509 -new -key ca.key -subj '/CN=the site' -days 30 -out ca.crt
for name in server client; do
  new "$name"
  openssl req -new -key "$name.key" -subj "/CN=$name" -out "$name.csr"
  printf 'subjectAltName=IP:%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$1" > "$name.ext"
  openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile "$name.ext" -out "$name.crt" 2>/dev/null
done
"#;

pub(super) fn holds(cluster: &Cluster) -> Result<Counts> {
    destroy(cluster)?;
    let outcome = made_with_it(cluster);
    // The host may be part of a cluster again later.
    let stopped = stop(&cluster.worker);
    outcome?;
    stopped?;
    Ok(Counts::ONE)
}

fn made_with_it(cluster: &Cluster) -> Result<()> {
    let (host, elsewhere) = (&cluster.bootstrap, &cluster.worker);
    start(elsewhere)?;
    let address = elsewhere.control_plane_address();
    let endpoint = format!("https://{address}:2379");

    // Nothing listens there: refused before the host has anything of Kubernetes.
    let wrong = format!("https://{address}:2378");
    fs::write(
        host.root().join("root/cluster.yaml"),
        document(elsewhere, &wrong)?,
    )?;
    refused(host, &install(), &["cannot use the external etcd", &wrong])?;
    host.sh("! test -e /etc/kubernetes/manifests && ! pgrep -x kubelet")?;

    cluster.bootstrap(&document(elsewhere, &endpoint)?)?;
    serves(cluster)?;
    let key = "/registry/namespaces/kube-system";
    ensure!(
        count(elsewhere, &endpoint, key)? == "1",
        "{key} is not in it"
    );
    host.sh("! pgrep -x etcd && ! test -e /etc/kubernetes/manifests/etcd.yaml && ! test -e /var/lib/etcd/member")?;
    host.sh(&format!(
        "grep -q -e '--etcd-servers={endpoint}' /etc/kubernetes/manifests/kube-apiserver.yaml"
    ))?;
    let rules = host.run(&["firewall-cmd", "--info-policy=halite-host"])?;
    ensure!(
        !rules.contains("2379") && !rules.contains("2380"),
        "{rules}"
    );
    let configuration = cluster_configuration(cluster)?;
    ensure!(
        configuration.contains("external:") && configuration.contains(&endpoint),
        "{configuration}"
    );

    let status = host.run(&[CTL, "etcd", "status"])?;
    ensure!(
        status.contains("external: not this cluster's to change") && status.contains("elsewhere"),
        "{status}"
    );
    refused(host, &[CTL, "etcd", "defrag"], &["etcd is external"])?;
    host.run(&[CTL, "backup", "create"]).context("a backup")?;
    host.run(&[CTL, "backup", "verify"]).context("the backup")?;

    // While it is away no host changes, and once it is back so is the API.
    elsewhere.run(&["systemctl", "stop", UNIT])?;
    refused(host, &[CTL, "health"], &["etcd is external"])?;
    launch(elsewhere)?;
    serves(cluster)
}

/// The cluster document with the external etcd at an endpoint.
fn document(elsewhere: &Host, endpoint: &str) -> Result<String> {
    let read = |name: &str| fs::read_to_string(elsewhere.file(&format!("{PLACE}/{name}")));
    let block = |text: &str| {
        text.lines()
            .map(|line| format!("      {line}\n"))
            .collect::<String>()
    };
    let (ca, client) = (read("ca.crt")?, read("client.crt")? + &read("client.key")?);
    Ok(with(&format!(
        "etcd:\n  placement: external\n  external:\n    endpoints: [\"{endpoint}\"]\n    clientSecret: etcd-client\n    ca: |\n{}\
         secrets:\n  etcd-client:\n    value: |\n{}",
        block(&ca),
        block(&client)
    )))
}

/// Puts program and certificates on a host, opens its port, and starts it.
fn start(host: &Host) -> Result<()> {
    let place = host.file(PLACE);
    if place.exists() {
        stop(host)?;
    }
    fs::create_dir_all(&place)?;
    let program = halite_upstream::etcd(&halite_lab::cache(), &mut |_| {})?;
    fs::copy(program, place.join("etcd"))?;
    let address = host.control_plane_address();
    host.run(&["/bin/sh", "-c", CERTIFICATES, PLACE, &address])?;
    host.sh("! systemctl --quiet is-active firewalld || firewall-cmd --quiet --add-port=2379/tcp")?;
    launch(host)?;
    wait::until("the external etcd", BACK, || {
        count(host, &format!("https://{address}:2379"), "none").map(drop)
    })
}

fn launch(host: &Host) -> Result<()> {
    let address = host.control_plane_address();
    let url = format!("https://{address}:2379");
    let file = |name: &str| format!("{PLACE}/{name}");
    let peer = "http://127.0.0.1:2390".to_owned();
    let flags = [
        ("name", "elsewhere".to_owned()),
        ("data-dir", file("data")),
        ("listen-client-urls", url.clone()),
        ("advertise-client-urls", url),
        ("listen-peer-urls", peer.clone()),
        ("initial-advertise-peer-urls", peer.clone()),
        ("initial-cluster", format!("elsewhere={peer}")),
        ("cert-file", file("server.crt")),
        ("key-file", file("server.key")),
        ("trusted-ca-file", file("ca.crt")),
        ("client-cert-auth", "true".to_owned()),
    ];
    let run = ["systemd-run", "--quiet", "--collect", "--unit", UNIT];
    let run = run.map(str::to_owned).into_iter();
    let flags = flags.map(|(flag, value)| format!("--{flag}={value}"));
    let line: Vec<String> = run.chain([file("etcd")]).chain(flags).collect();
    host.run(&line).map(drop)
}

fn stop(host: &Host) -> Result<()> {
    host.sh(&format!(
        "systemctl stop {UNIT} 2>/dev/null; systemctl reset-failed {UNIT} 2>/dev/null; \
         firewall-cmd --quiet --remove-port=2379/tcp 2>/dev/null; rm -rf {PLACE}"
    ))
    .map(drop)
}

/// The number of keys with a name that it has, by the gateway of its API.
fn count(host: &Host, endpoint: &str, key: &str) -> Result<String> {
    let answer = host.sh(&format!(
        "curl -sSf --max-time 5 --cacert {PLACE}/ca.crt --cert {PLACE}/client.crt --key {PLACE}/client.key \
         -d \"{{\\\"key\\\": \\\"$(printf %s {key} | base64 -w 0)\\\"}}\" {endpoint}/v3/kv/range"
    ))?;
    let answer: serde_json::Value = serde_json::from_str(&answer).context("its answer")?;
    Ok(answer["count"].as_str().unwrap_or("0").to_owned())
}
