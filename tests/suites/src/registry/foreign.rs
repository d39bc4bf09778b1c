//! A server that serves its own image under the names of another one.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, BUNDLE, CTL, Cluster};
use halite_lab::host::Host;
use halite_lab::wait;

use super::failures::Dead;
use super::{RELOADED, version};
use crate::images;
use crate::test::Counts;

/// The component whose image is exchanged.
const COMPONENT: &str = "kube-scheduler";
/// The operator's own state, which requests the image.
const STATE: &str = "/etc/halite/custom/foreign.sls";
const APPLY: [&str; 4] = [CTL, "apply", BOOTSTRAP, "custom.foreign"];
/// A namespace of containerd in which nothing runs.
const APART: &str = "halite-test";

/// A server that has the image of `pause` under all names of the component; undone on drop.
struct Foreign<'a> {
    host: &'a Host,
    map: PathBuf,
    text: String,
}

impl<'a> Foreign<'a> {
    fn new(host: &'a Host) -> Result<Self> {
        let map = host.file(&format!("{BUNDLE}/nginx/manifests.map"));
        let text = fs::read_to_string(&map)?;
        let target = text
            .lines()
            .find(|line| line.contains("/registry.k8s.io/pause/manifests/"))
            .and_then(|line| line.split('\'').nth(1));
        let target = target.context("no image of pause")?;
        let names = format!("/{COMPONENT}/manifests/");
        let exchanged = text.lines().map(|line| match line.split_once(" '") {
            Some((key, _)) if key.contains(&names) => format!("{key} '{target}';\n"),
            _ => format!("{line}\n"),
        });
        let exchanged: String = exchanged.collect();
        ensure!(exchanged != text, "{text}");
        let foreign = Self { host, map, text };
        foreign.serve(&exchanged)?;
        Ok(foreign)
    }

    fn serve(&self, text: &str) -> Result<()> {
        // A new inode: the file may be a link to that of another bundle.
        fs::remove_file(&self.map)?;
        fs::write(&self.map, text)?;
        self.host.sh("systemctl reload nginx").map(drop)
    }
}

impl Drop for Foreign<'_> {
    fn drop(&mut self) {
        let _ = self.serve(&self.text);
    }
}

/// The digest of an image that a host has in the namespace, by its name there.
fn digest(host: &Host, name: &str) -> Result<String> {
    let line = format!("ctr -n {APART} images ls | awk '$1 == \"{name}\" {{print $3}}'");
    Ok(host.sh(&line)?.trim().to_owned())
}

/// Pulls by the tag, as hosts did before they knew digests.
fn pull_by_tag(host: &Host, tagged: &str) -> Result<String> {
    let hosts = "--hosts-dir=/etc/containerd/certs.d";
    host.run(&["ctr", "-n", APART, "images", "pull", hosts, tagged])?;
    digest(host, tagged)
}

/// The worker serves the image of `pause` under the tag and the digest of the scheduler, and the
/// control plane must use it, because its own server is dead. By the tag it gets the foreign image.
/// The state does not: it fails, and the scheduler keeps running. With its own server the same
/// command succeeds.
pub(super) fn refused(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let image = images::of_bundle(host, version(), COMPONENT)?;
    let (tagged, own) = image.split_once('@').context("no digest")?;
    let pause = images::of_bundle(host, version(), "pause")?;
    let (_, foreign) = pause.split_once('@').context("no digest")?;
    let state = host.file(STATE);
    let directory = state.parent().context("no directory")?;
    ensure!(
        !directory.exists(),
        "the operator's own states already exist"
    );
    fs::create_dir_all(directory)?;
    fs::write(
        &state,
        format!("it:\n  image.present:\n    - name: {image}\n"),
    )?;
    let outcome = (|| {
        {
            let _dead = Dead::new(host)?;
            let _foreign = Foreign::new(&cluster.worker)?;
            wait::until("the worker to serve the foreign image", RELOADED, || {
                let got = pull_by_tag(host, tagged)?;
                ensure!(got == foreign, "the tag is {got}, not {foreign}");
                Ok(())
            })?;
            images::remove(host, &image)?;
            let output = host.output(&APPLY)?;
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            println!("  {}", said.trim().replace('\n', "\n  "));
            ensure!(!output.status.success(), "the foreign image was accepted");
            ensure!(
                images::is_there(host, &image).is_err(),
                "{BOOTSTRAP} has an image under the name {image}"
            );
            runs_on(cluster, &image)?;
        }
        host.run(&APPLY)?;
        images::is_there(host, &image)?;
        ensure!(
            pull_by_tag(host, tagged)? == own,
            "the tag is still the foreign image"
        );
        runs_on(cluster, &image)
    })();
    // Also after a failure: later tests have own states, and need the image.
    let _ = fs::remove_dir_all(directory);
    let _ = host.run(&["ctr", "-n", APART, "images", "rm", "--sync", tagged]);
    outcome?;
    Ok(Counts::ONE)
}

/// Checks that the API and the scheduler serve, with the image of the bundle.
fn runs_on(cluster: &Cluster, image: &str) -> Result<()> {
    cluster.kubectl(&["get", "--raw", "/readyz"])?;
    let pod = format!("{COMPONENT}-{BOOTSTRAP}");
    let template = "{.spec.containers[0].image} {.status.containerStatuses[0].ready}";
    let template = format!("jsonpath={template}");
    let found = cluster.kubectl(&["-n", "kube-system", "get", "pod", &pod, "-o", &template])?;
    ensure!(found == format!("{image} true"), "{pod}: {found}");
    Ok(())
}
