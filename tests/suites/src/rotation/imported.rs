//! CAs of an operator that replace those of the cluster: intermediates that the operator's root has
//! signed, and a CA with its key.

use anyhow::{Result, ensure};
use halite_api::{CertificateList, PreparedState};
use halite_lab::cluster::{CTL, Cluster};
use halite_lab::host::Host;

use super::boundaries::{
    FRONT_PROXY, FRONT_PROXY_CA, KEPT, PKI, keep, query_etcd, status_of_front_proxy,
};
use super::three::{ETCD_CA, OF_ETCD, verify};
use super::{
    ADMINISTRATOR, CA, as_kubeadm_sees, note_certificates, page, rotate, under_writes, writing,
};
use crate::cluster::PODS;
use crate::ctl_answer;
use crate::test::Counts;

/// The directory of the operator's CAs and their keys.
const OWN: &str = "/root/rotation/own";

/// Makes two CAs outside of the cluster: a root, and one for the front proxy.
const MAKE_CAS: &str = r#"set -e
mkdir -p /root/rotation/own
cd /root/rotation/own
for name in root front-proxy; do
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj "/O=Example/CN=Example $name" \
    -addext keyUsage=critical,keyCertSign,cRLSign -keyout $name.key -out $name.crt 2>/dev/null
done
"#;

/// The path of an operator's certificate.
fn own(name: &str) -> String {
    format!("{OWN}/{name}.crt")
}

/// An intermediate becomes the CA of Kubernetes by the commands of the guide, while clients write.
pub(super) fn kubernetes(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let [ca, root] = ["kubernetes", "root"].map(own);
    note_certificates(host)?;
    host.sh(MAKE_CAS)?;
    let mut walk = page::OWN_CA.walk()?.inside(OWN);
    walk.run(host, page::REQUEST)?;
    let other = format!("{CTL} certs import kubernetes --cert {root} 2>&1 && exit 1 || true");
    let said = host.sh(&other)?;
    ensure!(said.contains("the key of the request"), "{said}");
    walk.run(host, page::SIGN)?;
    walk.run(host, page::IMPORT)?;
    let listed = page::list(&mut walk, host)?;
    let imported = PreparedState::Imported.to_string();
    ensure!(listed.contains(&imported), "no CA is {imported}: {listed}");
    let (_, notes) = under_writes(cluster, |host| {
        walk.run(host, page::WITH_RESTARTS).map(drop)
    })?;
    notes.check(cluster)?;
    none_is_prepared(host)?;
    // It is discarded at once.
    walk.run(host, page::WITH_KEY)?;
    walk.end()?;
    none_is_prepared(host)?;
    let own = host.run(&["cat", &ca])?;
    for host in cluster.hosts() {
        let found = host.run(&["cat", CA])?;
        ensure!(found.trim() == own.trim(), "{}: {found}", host.spec.name);
    }
    for trusted in [CA, &root] {
        host.sh(&format!(
            "kubectl --kubeconfig {ADMINISTRATOR} --certificate-authority {trusted} get --raw /api"
        ))?;
    }
    host.sh(&format!(
        "openssl verify -CAfile {root} -untrusted {ca} /etc/kubernetes/pki/apiserver.crt"
    ))?;
    cluster.wait_for_pods(PODS)?;
    as_kubeadm_sees(cluster)
}

/// An intermediate becomes the CA of etcd, and a CA that was imported with its key that of the
/// front proxy, while a client writes.
pub(super) fn others(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    note_certificates(host)?;
    host.sh(MAKE_CAS)?;
    // The commands of the guide, for the CA of etcd.
    for part in [page::REQUEST, page::SIGN, page::IMPORT] {
        let script = page::OWN_CA.script(part)?.replace("kubernetes", "etcd");
        host.sh(&format!("cd {OWN} && {script}"))?;
    }
    let key = format!("{OWN}/front-proxy.key");
    let proxy = own("front-proxy");
    let import = [CTL, "certs", "import", "front-proxy", "--cert", &proxy];
    host.run(&[&import[..], &["--key", &key]].concat())?;
    keep(host, &FRONT_PROXY)?;
    for (name, file) in [("etcd", ETCD_CA), ("front-proxy", FRONT_PROXY_CA)] {
        writing(cluster, name, || rotate(host, name, &[]))?;
        let (found, own) = (host.run(&["cat", file])?, host.run(&["cat", &own(name)])?);
        ensure!(found.trim() == own.trim(), "{file}: {found}");
    }
    none_is_prepared(host)?;
    let [ca, root] = ["etcd", "root"].map(own);
    let chain = ["openssl", "verify", "-CAfile", &root, "-untrusted", &ca];
    host.run(&[&chain[..], OF_ETCD].concat())?;
    query_etcd(host, PKI)?;
    verify(host, &proxy, &FRONT_PROXY[..1])?;
    for (directory, wanted) in [(PKI, "200"), (KEPT, "401")] {
        let status = status_of_front_proxy(host, directory)?;
        ensure!(
            status == wanted,
            "the API answers {directory} with {status}"
        );
    }
    cluster.wait_for_pods(PODS)?;
    as_kubeadm_sees(cluster)
}

/// Checks that no CA waits for its rotation.
fn none_is_prepared(host: &Host) -> Result<()> {
    // The exit code is 1 while a host does not answer.
    let words = ["certs", "list"];
    let (_, list) = ctl_answer::in_any_case::<CertificateList>(host, &words)?;
    ensure!(list.prepared.is_empty(), "{:?}", list.prepared);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_of_the_guide_are_those_for_etcd_with_another_name() {
        for (part, etcd) in [
            (page::REQUEST, "ctl certs csr etcd --out etcd.csr"),
            (page::SIGN, "openssl x509 -req -in etcd.csr"),
            (page::IMPORT, "ctl certs import etcd --cert etcd.crt"),
        ] {
            let script = page::OWN_CA.script(part).unwrap();
            assert!(script.replace("kubernetes", "etcd").contains(etcd));
        }
    }
}
