//! Completions of names of the cluster, and manual pages, as states install them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_api::JobList;
use halite_lab::cluster::{Cluster, WORKER};
use halite_lab::wait;

use crate::ctl_answer;

/// The script, where bash looks for it.
const SCRIPT: &str = "/usr/local/share/bash-completion/completions/ctl";
/// Manual pages on a host with `ctl`: of the program, of a command, of the daemons, and of a file.
const PAGES: &[&str] = &[
    "man1/ctl.1",
    "man1/ctl-node-show.1",
    "man5/halite-minion.yaml.5",
    "man8/halite-master.8",
    "man8/halite-minion.8",
];
/// Limit for names to be completed: a master that does not answer within 1.5 s is not asked again
/// for the same key press.
const SOON: Duration = Duration::from_secs(60);

/// The completions of the last of these words.
fn completed(cluster: &Cluster, words: &[&str]) -> Result<Vec<String>> {
    let last = words.last().context("no word")?;
    let line = format!(
        ". {SCRIPT}; COMP_WORDS=({}); COMP_CWORD={}; _clap_complete_ctl ctl {last} ''; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        words.len() - 1
    );
    let said = cluster.bootstrap.run(&["bash", "-c", &line])?;
    Ok(said.lines().map(str::to_owned).collect())
}

/// Checks the manual pages, and completes a host, an SLS file and a job.
pub(super) fn is_installed(cluster: &Cluster) -> Result<()> {
    for page in PAGES {
        let path = format!("/usr/local/share/man/{page}");
        ensure!(cluster.bootstrap.file(&path).is_file(), "{path} is missing");
        // The worker has only its minion.
        ensure!(
            cluster.worker.file(&path).is_file() == page.contains("minion"),
            "{path} of {WORKER}"
        );
    }
    wait::until("the completion of names", SOON, || {
        let hosts = completed(cluster, &["ctl", "node", "show", "wor"])?;
        ensure!(hosts == [WORKER], "hosts: {hosts:?}");
        let sls = completed(cluster, &["ctl", "apply", WORKER, "halite.services.ct"])?;
        ensure!(sls == ["halite.services.ctl"], "SLS files: {sls:?}");
        let list: JobList = ctl_answer::of(&cluster.bootstrap, &["job", "list", "--limit", "1"])?;
        let job = list.jobs.first().context("there is no job")?;
        let job = job.job.to_string();
        let start = job.get(..12).context("a short id")?;
        let jobs = completed(cluster, &["ctl", "job", "show", start])?;
        ensure!(jobs.contains(&job), "jobs: {jobs:?}, without {job}");
        Ok(())
    })
}
