//! Completion of the command line in a shell: commands and options from their definition, and
//! existing names: hosts and jobs of the master, SLS files of this host, contexts of this user. If
//! the master does not answer soon, its names are not completed.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use clap::{Arg, Command};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use clap_complete::{ArgValueCompleter, CompletionCandidate};
use halite_api::{Job, JobList, KeyList, RunList};
use halite_proto::v1;
use halite_states::tree::{DirTree, Tree as _};

use crate::cli::{Global, GlobalArgs, Shell};
use crate::client::{Operator, document};
use crate::context::Contexts;
use crate::output::Format;
use crate::paths::CONFIG;
use crate::site::Site;
use crate::{client, context};

/// The time that a person waits after pressing the tab key.
const PATIENCE: Duration = Duration::from_millis(1500);
/// The number of the newest jobs.
const JOBS: u32 = 20;

/// The variable by which a shell asks this program for completions.
pub const COMPLETE: &str = "COMPLETE";

/// The script with which a shell asks `ctl` for completions.
///
/// # Errors
/// It is not text.
pub fn script(shell: Shell) -> anyhow::Result<String> {
    let shell: &dyn EnvCompleter = match shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    shell.write_registration(COMPLETE, "ctl", "ctl", "ctl", &mut script)?;
    Ok(String::from_utf8(script)?)
}

/// Adds the completion of existing names to the definition of the command line.
pub fn with_words(command: Command) -> Command {
    with_words_of(command, "")
}

/// As [`with_words`], for a command below `group`.
fn with_words_of(command: Command, group: &str) -> Command {
    let group = group.to_owned();
    let words = |arg: Arg| match words(&group, arg.get_id().as_str()) {
        Some(words) => arg.add(ArgValueCompleter::new(words)),
        None => arg,
    };
    let name = command.get_name().to_owned();
    let command = command.mut_args(words);
    command.mut_subcommands(move |below| with_words_of(below, &name))
}

/// The completion of an argument of a command in a group.
fn words(group: &str, id: &str) -> Option<fn(&OsStr) -> Vec<CompletionCandidate>> {
    match (group, id) {
        (_, "host" | "minion" | "target") | ("node", "name") | ("key", "id") => Some(hosts),
        (_, "job") => Some(jobs),
        (_, "run") => Some(runs),
        (_, "sls") => Some(sls),
        (_, "context") | ("context", "name") => Some(contexts),
        _ => None,
    }
}

/// Completes the name of a host.
fn hosts(current: &OsStr) -> Vec<CompletionCandidate> {
    let keys = async |mut operator: Operator| {
        let answer = operator.list_keys(v1::ListKeysRequest {}).await;
        document::<KeyList>(answer).ok()
    };
    let keys = ask(keys).unwrap_or_default().keys.into_iter();
    let all = keys.map(|key| (key.minion.to_string(), key.state.to_string()));
    candidates(current, all)
}

/// Completes the id of a job, the newest first.
fn jobs(current: &OsStr) -> Vec<CompletionCandidate> {
    let jobs = async |mut operator: Operator| {
        let request = v1::ListJobsRequest { limit: JOBS };
        document::<JobList>(operator.list_jobs(request).await).ok()
    };
    let jobs = ask(jobs).unwrap_or_default().jobs.into_iter();
    let remark = |job: &Job| format!("{} {}", job.function, job.target);
    candidates(current, jobs.map(|job| (job.job.to_string(), remark(&job))))
}

/// Completes the id of a run, the newest first.
fn runs(current: &OsStr) -> Vec<CompletionCandidate> {
    let runs = async |mut operator: Operator| {
        let request = v1::ShowRequest {
            what: "runs".to_owned(),
            ..v1::ShowRequest::default()
        };
        document::<RunList>(operator.show(request).await).ok()
    };
    let runs = ask(runs).unwrap_or_default().runs.into_iter();
    candidates(current, runs.map(|run| (run.run.to_string(), run.sls)))
}

/// Completes the name of an SLS file: of the bundle in use, and of the operator's own.
fn sls(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut tree = DirTree::new().mount("custom", Path::new(CONFIG).join("custom"));
    if let Ok(directory) = Site::here().bundle_directory(None) {
        tree = tree.bundle(&directory);
    }
    let files = tree.list();
    let names = files.iter().filter_map(|file| name(file));
    candidates(current, names.map(|name| (name, String::new())))
}

/// Completes the name of a context.
fn contexts(current: &OsStr) -> Vec<CompletionCandidate> {
    let found = Contexts::read(context::file().as_deref()).unwrap_or_default();
    let all = found.contexts.into_iter();
    candidates(
        current,
        all.map(|(name, access)| (name, access.masters.join(","))),
    )
}

/// The candidates that start with the current word, each with a remark.
fn candidates(
    current: &OsStr,
    all: impl IntoIterator<Item = (String, String)>,
) -> Vec<CompletionCandidate> {
    let begin = current.to_string_lossy();
    all.into_iter()
        .filter(|(name, _)| name.starts_with(&*begin))
        .map(|(name, remark)| {
            let remark = (!remark.is_empty()).then(|| remark.into());
            CompletionCandidate::new(name).help(remark)
        })
        .collect()
}

/// The SLS name of a file of the tree: `base/kubelet.sls` and `base/kubelet/init.sls` are
/// `base.kubelet`.
fn name(file: &str) -> Option<String> {
    let path = file.strip_suffix(".sls").filter(|path| *path != "top")?;
    let path = path.strip_suffix("/init").unwrap_or(path);
    Some(path.replace('/', "."))
}

/// Asks the master of the incomplete command line.
fn ask<T>(question: impl AsyncFnOnce(Operator) -> Option<T>) -> Option<T> {
    halite_proto::transport::install_crypto();
    let global = global();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let answer = async {
        let operator = client::operator(&global).await.ok()?;
        question(operator).await
    };
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, answer).await })
        .ok()?
}

/// The options of every command, from the words typed so far.
fn global() -> Global {
    let words: Vec<String> = std::env::args().collect();
    let value = |option: &str| option_value(&words, option);
    let args = GlobalArgs {
        output: Format::Table,
        context: value("--context"),
        master: value("--master"),
        identity: value("--identity").map(Into::into),
    };
    context::resolve(&args)
}

/// The value of an option, as `--option value` or `--option=value`.
fn option_value(words: &[String], option: &str) -> Option<String> {
    words.iter().enumerate().find_map(|(at, word)| {
        let rest = word.strip_prefix(option)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value.to_owned()),
            None if rest.is_empty() => words.get(at + 1).cloned(),
            None => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_has_its_value_in_the_next_word_or_after_an_equals_sign() {
        let value = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            option_value(&words, "--context")
        };
        assert_eq!(value("ctl --context lab ping").as_deref(), Some("lab"));
        assert_eq!(value("ctl --context=lab ping").as_deref(), Some("lab"));
        assert_eq!(value("ctl --contexts lab ping"), None);
        assert_eq!(value("ctl ping --context"), None);
    }

    #[test]
    fn arguments_that_name_something_complete_it() {
        let root = with_words(crate::cli::command());
        let completes = |path: &[&str], id: &str| {
            let command = path
                .iter()
                .fold(&root, |at, name| at.find_subcommand(name).unwrap());
            let mut args = command.get_arguments();
            let arg = args.find(|arg| arg.get_id() == id).unwrap();
            arg.get::<ArgValueCompleter>().is_some()
        };
        for (path, id) in [
            (&["node", "show"][..], "name"),
            (&["node", "drain"], "name"),
            (&["highstate"], "target"),
            (&["apply"], "sls"),
            (&["logs"], "host"),
            (&["key", "accept"], "id"),
            (&["job", "show"], "job"),
            (&["job", "follow"], "job"),
            (&["orchestrate", "follow"], "run"),
            (&["context", "use"], "name"),
            (&[], "context"),
        ] {
            assert!(completes(path, id), "{path:?} {id}");
        }
        assert!(!completes(&["operator", "create"], "name"));
    }

    #[test]
    fn files_of_the_tree_are_sls_names() {
        for (file, expected) in [
            ("halite/base/kubelet/init.sls", Some("halite.base.kubelet")),
            ("halite/services/ctl.sls", Some("halite.services.ctl")),
            ("custom/init.sls", Some("custom")),
            ("halite/base/kubelet/config.yaml.j2", None),
            ("top.sls", None),
        ] {
            assert_eq!(name(file).as_deref(), expected, "{file}");
        }
        let all = ["a1", "a2", "b"].map(|name| (name.to_owned(), String::new()));
        let names = candidates(OsStr::new("a"), all);
        let names: Vec<&OsStr> = names.iter().map(CompletionCandidate::get_value).collect();
        assert_eq!(names, ["a1", "a2"]);
    }
}
