//! `ctl support`: collects diagnostics in one archive. The minions collect them; the master hides
//! the secrets that it knows in their returns, and this program hides secrets in the usual forms.

mod redact;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use halite_api::{ClusterStatus, JobList, MinionAnswer, SupportArchive, to_value};
use halite_proto::ids::MinionId;
use halite_proto::v1;
use jiff::Timestamp;
use serde_json::{Value, json};

use self::redact::redacted;
use crate::cli::{Global, Support};
use crate::client;
use crate::client::document;
use crate::job_watch::{FinishedJob, run_job};
use crate::output::{Screen, count, path_text};

/// The program that the minions run.
const PROGRAM: &str = include_str!("host.sh");
/// The time that a minion has for the program, in seconds.
const LIMIT: u32 = 180;
/// The number of the newest jobs.
const JOBS: u32 = 50;

/// Runs `ctl support`.
///
/// # Errors
/// The master does not answer or refuses, or the archive cannot be written.
pub async fn run(global: &Global, args: &Support, screen: &mut Screen) -> anyhow::Result<u8> {
    let now = Timestamp::now();
    let path = args.out.clone().unwrap_or_else(|| default_file(now));
    let file = create(&path)?;
    let mut files = BTreeMap::new();
    let mut operator = client::operator(global).await?;
    let status: ClusterStatus = document(operator.status(v1::StatusRequest {}).await)?;
    files.insert("status.json".to_owned(), pretty(&to_value(&status)));
    let names: Vec<String> = status
        .nodes
        .into_iter()
        .map(|node| node.name.into())
        .collect();
    let jobs = operator
        .list_jobs(v1::ListJobsRequest { limit: JOBS })
        .await;
    let jobs: JobList = document(jobs)?;
    files.insert("jobs.json".to_owned(), pretty(&to_value(&jobs)));
    let grains = job(global, "grains.items", &json!({}), screen).await?;
    let grains: BTreeMap<&MinionId, &Option<MinionAnswer>> = (grains.returns.iter())
        .map(|(minion, returned)| (minion, &returned.answer))
        .collect();
    files.insert("grains.json".to_owned(), pretty(&json!(grains)));
    let done = job(global, "cmd.run", &json!({"cmd": PROGRAM}), screen).await?;
    let silent = hosts(&done, &names, &mut files);
    pack(file, now, &files).with_context(|| format!("cannot write {}", path.display()))?;
    let document = SupportArchive {
        file: path_text(&path),
        hosts: names.len() - silent.len(),
        missing: silent.clone(),
    };
    screen.answer(&to_value(&document), |paint| {
        let mut text = String::new();
        for (host, reason) in &silent {
            text.push_str(&format!("{} {host}: {reason}\n", paint.notable("!")));
        }
        let hosts = count(names.len() - silent.len(), "host");
        format!(
            "{text}{} has what {hosts} said. Read it before you pass it on.\n",
            path.display()
        )
    })?;
    Ok(0)
}

/// Runs a function on all minions. The answer includes minions that are not connected.
async fn job(
    global: &Global,
    function: &str,
    arguments: &Value,
    screen: &mut Screen,
) -> anyhow::Result<FinishedJob> {
    let request = v1::RunRequest {
        target: "* and not L@master".to_owned(),
        target_kind: "compound".to_owned(),
        function: function.to_owned(),
        args_json: arguments.to_string(),
        timeout_seconds: LIMIT,
        ..v1::RunRequest::default()
    };
    run_job(global, request, screen).await
}

/// Adds the files of the hosts; returns the hosts without an answer, each with the reason.
fn hosts(
    done: &FinishedJob,
    names: &[String],
    files: &mut BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut silent = BTreeMap::new();
    for name in names {
        let returned = done.returns.get(name.as_str());
        let answer = returned.and_then(|returned| returned.answer.as_ref());
        match answer.and_then(MinionAnswer::stdout) {
            Some(text) => {
                files.insert(format!("hosts/{name}.txt"), text);
            }
            None => {
                let reason = returned.and_then(|returned| returned.error.as_deref());
                let reason = reason.unwrap_or("it has not enrolled, or is not connected");
                silent.insert(name.clone(), reason.to_owned());
            }
        }
    }
    let missing: String = silent
        .iter()
        .map(|(name, why)| format!("{name}: {why}\n"))
        .collect();
    files.insert("missing.txt".to_owned(), missing);
    silent
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn default_file(now: Timestamp) -> PathBuf {
    let time = now.strftime("%Y%m%dT%H%M%SZ");
    PathBuf::from(format!("halite-support-{time}.tar.gz"))
}

/// Creates a file that only its owner can read, before anything is collected: an obstacle is
/// reported immediately.
fn create(path: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    file.with_context(|| {
        format!(
            "cannot make {}; name another file with --file",
            path.display()
        )
    })
}

/// Writes the archive, without secrets in the usual forms.
fn pack(file: File, now: Timestamp, files: &BTreeMap<String, String>) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    for (name, text) in files {
        let text = redacted(text);
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(now.as_second()).unwrap_or_default());
        archive.append_data(
            &mut header,
            format!("halite-support/{name}"),
            text.as_bytes(),
        )?;
    }
    archive.into_inner()?.finish()?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::job_watch::MinionReturn;

    #[test]
    fn the_archive_has_each_host_that_answered_and_names_the_others() {
        let returned = |name: &str, answer: Option<Value>, error: Option<&str>| {
            let returned = MinionReturn {
                success: error.is_none(),
                answer: answer.map(MinionAnswer),
                run: None,
                error: error.map(str::to_owned),
            };
            (name.parse().unwrap(), returned)
        };
        let done = FinishedJob {
            returns: BTreeMap::from([
                returned("a", Some(json!("up\ntoken=x y")), None),
                returned("b", Some(json!({"stdout": "well"})), None),
                returned("c", None, Some("c is not connected")),
            ]),
            ..FinishedJob::default()
        };
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let mut files = BTreeMap::new();
        let silent = hosts(&done, &names, &mut files);
        assert_eq!(silent.keys().collect::<Vec<_>>(), ["c", "d"]);

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("all.tar.gz");
        pack(create(&path).unwrap(), Timestamp::UNIX_EPOCH, &files).unwrap();
        assert!(create(&path).unwrap_err().to_string().contains("--file"));
        let mut archive = tar::Archive::new(GzDecoder::new(File::open(&path).unwrap()));
        let mut found = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.insert(name, text);
        }
        let file = |name: &str| found.get(&format!("halite-support/{name}")).unwrap();
        assert_eq!(file("hosts/a.txt"), "up\ntoken=[redacted] y\n");
        assert_eq!(file("hosts/b.txt"), "well\n");
        let missing = file("missing.txt");
        assert!(
            missing.contains("c: c is not connected\nd: it has not"),
            "{missing}"
        );
        assert_eq!(found.len(), 3);
    }

    /// A shell can at least parse the program.
    #[test]
    fn the_program_of_the_hosts_is_shell() {
        let status = std::process::Command::new("/bin/sh")
            .args(["-n", "-c", PROGRAM])
            .status();
        assert!(status.unwrap().success());
    }
}
