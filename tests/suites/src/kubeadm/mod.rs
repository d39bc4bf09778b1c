//! Kubernetes as kubeadm makes it: the test compares Halite's cluster, by meaning, with the output
//! of kubeadm of the same version for the same inputs. `tests/suites/kubeadm-allowed.yaml` must
//! list every difference with its reason, and every entry there must match one.

mod allowed;
pub mod archive;
mod certificate;
pub(super) mod control_plane;
mod differ;
mod difference;
mod documents;
mod duration;
mod files;
pub mod inputs;
mod join;
mod kubeconfig;
mod live;
mod objects;
mod patches;
mod reference;
pub mod rendered;
pub(super) mod upgraded;
mod worker;

use std::fmt::Write as _;

use allowed::Allowed;
use anyhow::{Context as _, Result, bail};
use difference::Difference;
use documents::{INPUTS, Input};
use halite_lab::cluster;
use halite_lab::cluster::Cluster;
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::view::Pki;
use halite_upstream::versions::{NEWEST, Release};
use reference::{KUBEADM, Reference, Run};

use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[Test {
    name: "kubeadm: the same files, certificates and objects from three inputs, and the same worker",
    run: three_inputs,
}];

fn three_inputs(cluster: &Cluster) -> Result<Counts> {
    let bundle = bundle(cluster, &NEWEST)?;
    let mut found = of_release(cluster, &NEWEST, &bundle)?;
    found.extend(worker::compare(cluster, &bundle).context("a worker")?);
    let passed = found.len();
    let mut allowed = Allowed::load()?;
    let report = judge(found, &mut allowed) + &useless(&allowed);
    refuse(&report)?;
    Ok(Counts { passed, failed: 0 })
}

/// The same comparison for a cluster of another release, without the joined worker.
pub(super) fn compare(cluster: &Cluster, release: &Release) -> Result<Counts> {
    let found = of_release(cluster, release, &bundle(cluster, release)?)?;
    let passed = found.len();
    refuse(&judge(found, &mut Allowed::load()?))?;
    Ok(Counts { passed, failed: 0 })
}

/// Only the comparison of the running cluster.
pub(super) fn compare_running(cluster: &Cluster, release: &Release) -> Result<Counts> {
    let found = running(cluster, release)?;
    refuse(&judge(
        vec![("the running cluster", found)],
        &mut Allowed::load()?,
    ))?;
    Ok(Counts::ONE)
}

/// The bundle from which the cluster was made.
fn bundle(cluster: &Cluster, release: &Release) -> Result<BundleFacts> {
    let place = cluster::bundle_place(&release.bundle());
    let manifest = cluster
        .bootstrap
        .run(&["cat", &format!("{place}/manifest.json")])?;
    Ok(BundleFacts::from_manifest(&manifest, &place)?)
}

/// Compares the running cluster, and every input of its release.
fn of_release(
    cluster: &Cluster,
    release: &Release,
    bundle: &BundleFacts,
) -> Result<Vec<(&'static str, Vec<Difference>)>> {
    let run = |args: &[&str]| cluster.bootstrap.run(args);
    let mut found = vec![("the running cluster", running(cluster, release)?)];
    for input in INPUTS.into_iter().filter(|input| input.release == *release) {
        found.push((
            input.name,
            compiled(&run, KUBEADM, input, bundle).context(input.name)?,
        ));
    }
    Ok(found)
}

/// Compares the running cluster with kubeadm on the same host.
fn running(cluster: &Cluster, release: &Release) -> Result<Vec<Difference>> {
    let host = &cluster.bootstrap;
    let read = |file: &str| host.run(&["cat", &format!("/etc/halite/{file}")]);
    let node = read(&format!("nodes/{}.yaml", host.spec.name))?;
    let declaration = inputs::parse(&read("cluster.yaml")?, &[&node])?;
    let config = inputs::kubeadm(&declaration, release.kubernetes)?;
    let reference = reference::make(&|args| host.run(args), KUBEADM, &config, &[])?;
    let ours = live::files(host)?;
    let authorities = (
        files::authorities(&reference.files),
        files::authorities(&ours),
    );
    let mut pictures = (
        reference.picture(&authorities.0)?,
        files::picture(&ours, &authorities.1),
    );
    live::add_objects(
        cluster,
        &reference,
        (&mut pictures.0, &authorities.0),
        (&mut pictures.1, &authorities.1),
    )?;
    live::cut_digests(&mut pictures.1);
    Ok(differ::compare(&pictures.0, &pictures.1))
}

/// Compares the compiled state tree for an input with kubeadm.
fn compiled(
    run: &Run<'_>,
    kubeadm: &str,
    input: Input,
    bundle: &BundleFacts,
) -> Result<Vec<Difference>> {
    let mut declaration = inputs::declaration(input.document)?;
    if input.patched {
        patches::declare(&mut declaration)?;
    }
    let version = input.release.kubernetes;
    let (config, patches) = if input.patched {
        patches::patched(&declaration, version)?
    } else {
        (inputs::kubeadm(&declaration, version)?, Vec::new())
    };
    let reference = reference::make(run, kubeadm, &config, &patches)?;
    let mut bundle = bundle.clone();
    // The images that kubeadm uses.
    bundle
        .images
        .extend(reference::images(run, kubeadm, version)?);
    let authorities = files::authorities(&reference.files);
    let mut ours = rendered::picture(
        &declaration,
        &bundle,
        &public_halves(&reference)?,
        &authorities,
    )?;
    let mut theirs = reference.picture(&authorities)?;
    rendered::without_signing(&mut theirs);
    reference.add_objects(&mut theirs, halite_lab::cluster::BOOTSTRAP, &authorities)?;
    if input.patched {
        patches::without_records(&mut theirs);
        patches::without_records(&mut ours);
    }
    Ok(differ::compare(&theirs, &ours))
}

/// kubeadm's authorities in place of Halite's, so that files that embed them are the same.
fn public_halves(reference: &Reference) -> Result<Pki> {
    let mut pki = Pki::default();
    for (name, path) in [
        ("kubernetes", "pki/ca.crt"),
        ("etcd", "pki/etcd/ca.crt"),
        ("front-proxy", "pki/front-proxy-ca.crt"),
    ] {
        pki.certificates
            .insert(name.to_owned(), reference.file(path)?.to_owned());
    }
    pki.service_account = Some(reference.file("pki/sa.pub")?.to_owned());
    Ok(pki)
}

/// Reports every difference that the list does not allow.
fn judge(found: Vec<(&str, Vec<Difference>)>, allowed: &mut Allowed) -> String {
    let mut report = String::new();
    for (input, differences) in found {
        let wrong: Vec<Difference> = differences
            .into_iter()
            .filter(|d| !allowed.allows(d))
            .collect();
        if !wrong.is_empty() {
            let _ = writeln!(
                report,
                "{input}: differences from kubeadm that the list does not allow: {}",
                wrong.len()
            );
            for difference in wrong {
                let _ = writeln!(report, "  {difference}");
            }
        }
    }
    report
}

/// Reports every entry of the list that matches no difference.
fn useless(allowed: &Allowed) -> String {
    let mut report = String::new();
    let unused = allowed.unused();
    if !unused.is_empty() {
        let _ = writeln!(
            report,
            "entries of tests/suites/kubeadm-allowed.yaml that match no difference:"
        );
        unused.iter().for_each(|entry| {
            let _ = writeln!(report, "  {entry}");
        });
    }
    report
}

fn refuse(report: &str) -> Result<()> {
    if report.is_empty() {
        Ok(())
    } else {
        bail!("\n{}", report.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_that_the_list_lacks_and_entries_without_one_are_reported() {
        let mut allowed = Allowed::load().unwrap();
        let all = useless(&allowed);
        assert!(
            all.contains("match no difference") && all.contains("--node-ip"),
            "{all}"
        );
        let difference = |place: &str, path: &str| Difference {
            place: place.to_owned(),
            path: path.to_owned(),
            reference: None,
            ours: Some(json!(1)),
        };
        let found = vec![
            difference("static-pod/etcd", "spec.x"),
            difference("kubelet/kubeadm-flags.env", "[--node-ip]"),
        ];
        let report = judge(vec![("an input", found)], &mut allowed) + &useless(&allowed);
        assert!(
            report.contains("an input: differences from kubeadm that the list does not allow: 1"),
            "{report}"
        );
        assert!(report.contains("  static-pod/etcd: spec.x +1"), "{report}");
        assert!(!report.contains("--node-ip"), "{report}");
        refuse(&report).unwrap_err();
        refuse("").unwrap();
    }
}
