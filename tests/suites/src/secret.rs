//! A secret of the site that a chart needs: created by a manifest as the guide describes, and
//! stored in no other place.

mod encrypted;

use std::fs;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_api::JobList;
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, DOCUMENT};
use halite_lab::host::Host;

use super::guide;
use super::repair::{highstate, quiet};
use crate::ctl_answer;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "operator: a secret for a chart is created as the guide says",
        run: for_a_chart,
    },
    Test {
        name: "operator: an encrypted secret is applied and is in no file of any host",
        run: encrypted::encrypted,
    },
];

const PAGE: &str = "own-states.md";
const HEADING: &str = "### A secret in a manifest";
/// Names from the guide: the file, the namespace, and the object.
const FILE: &str = "app-login.yaml.j2";
const NAMESPACE: &str = "app";
const NAME: &str = "app-login";
/// The state that makes the object.
const STATE: &str = "kubernetes.manifest manifest-app-login [manifest-app-login]";
const VALUE: &str = "another-word-of-no-dictionary";
/// The copy of the last valid documents, which only root can read.
const LAST_VALID: &str = "/var/lib/halite/master/last-valid/documents.json";

/// The files on a host that contain a text, and the lines of its journal that do.
pub(super) fn holders(host: &Host, text: &str) -> Result<Vec<String>> {
    // Command lines of the lab itself may contain the password.
    let found = host.sh(&format!(
        "grep -rlF -e '{text}' /etc /var/lib/halite /var/log /run/systemd /tmp /usr/local 2>/dev/null; \
         journalctl --no-pager | grep -F '{text}' | grep -vF 'ctr -n' ; true"
    ))?;
    Ok(found.lines().map(str::to_owned).collect())
}

/// The files that contain the declaration: on the master's host the document, and the copy of the
/// last valid ones.
pub(super) fn declared(host: &Host) -> &'static [&'static str] {
    if host.spec.name == BOOTSTRAP {
        &[DOCUMENT, LAST_VALID]
    } else {
        &[]
    }
}

fn for_a_chart(cluster: &Cluster) -> Result<Counts> {
    let file = cluster.bootstrap.file(DOCUMENT);
    let before = fs::read_to_string(&file)?;
    let secrets = guide::block(PAGE, HEADING, "\nsecrets:")?;
    ensure!(
        !before.contains("\nsecrets:") && secrets.contains('…'),
        "the guide declares {secrets}"
    );
    guide::own_manifest(
        cluster,
        FILE,
        &guide::block(
            PAGE,
            HEADING,
            &format!("/etc/halite/custom/manifests/{FILE}"),
        )?,
    )?;
    fs::write(&file, format!("{before}{}", secrets.replace('…', VALUE)))?;
    let result = made(cluster);
    fs::write(&file, before)?;
    guide::no_own_states(cluster)?;
    // The objects of a file that is gone are removed.
    let removed = highstate(cluster, &[]);
    result?;
    removed?;
    let namespace = [
        "get",
        "namespace",
        NAMESPACE,
        "--ignore-not-found",
        "-o",
        "name",
    ];
    let left = cluster.kubectl(&namespace)?;
    ensure!(left.trim().is_empty(), "{left} is left");
    quiet(cluster)?;
    Ok(Counts {
        passed: 3,
        failed: 0,
    })
}

fn made(cluster: &Cluster) -> Result<()> {
    let changed = highstate(cluster, &[])?.changed;
    let only = |tag: &String| tag.ends_with(STATE);
    ensure!(
        changed.len() == 1 && changed.iter().all(only),
        "{changed:#?}"
    );
    let template = "-o=go-template={{.data.password | base64decode}}";
    let held = cluster.kubectl(&["-n", NAMESPACE, "get", "secret", NAME, template])?;
    ensure!(held == VALUE, "the secret holds {held:?}");
    quiet(cluster)?;

    let ctl = |args: &[&str]| cluster.bootstrap.run(&[&[CTL], args].concat());
    let words = ["job", "list", "--limit", "10"];
    let jobs: JobList = ctl_answer::of(&cluster.bootstrap, &words)?;
    // `stringData` is applied as `data`, so objects in memory have this form.
    let encoded = STANDARD.encode(VALUE);
    let mut mentioned = false;
    for job in jobs.jobs {
        let job = job.job.as_str();
        let shown = ctl(&["job", "show", job, "-o", "json"])?;
        ensure!(
            !shown.contains(VALUE) && !shown.contains(&encoded),
            "the job {job} holds the secret: {shown}"
        );
        mentioned |= shown.contains(NAME);
    }
    ensure!(
        mentioned,
        "no job mentions the state {NAME}, so this test proves nothing"
    );
    for host in cluster.hosts() {
        let found = holders(host, VALUE)?;
        ensure!(found == declared(host), "on {}: {found:?}", host.spec.name);
        let found = holders(host, &encoded)?;
        ensure!(found.is_empty(), "on {}: {found:?}", host.spec.name);
    }
    Ok(())
}
