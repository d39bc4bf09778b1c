//! A transaction of apt, and the completion of an earlier one that was cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::command::{command, failure, run, run_checked};
use super::{ANY, QUESTION, pinned, texts};
use crate::host::effect::{Output, PackageOptions};
use crate::host::{HostError, HostResult};

/// apt's environment. `SYSTEMD_OFFLINE` keeps maintainer scripts from starting the installed
/// services: a service runs when a state says so, with the configuration that a state wrote, as on
/// distributions with rpm.
pub(super) const APT_ENVIRONMENT: &[(&str, &str)] = &[
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("APT_LISTCHANGES_FRONTEND", "none"),
    ("NEEDRESTART_MODE", "l"),
    ("UCF_FORCE_CONFFOLD", "1"),
];
const OFFLINE: (&str, &str) = ("SYSTEMD_OFFLINE", "1");
const APT: &[&str] = &[
    "apt-get",
    "-y",
    "-q",
    "-o",
    "Dpkg::Options::=--force-confdef",
    "-o",
    "Dpkg::Options::=--force-confold",
    "-o",
    "DPkg::Lock::Timeout=300",
    "-o",
    "APT::Keep-Downloaded-Packages=false",
];

/// Preferences that put Halite's repository first; a state of every host writes them.
const PREFERENCES: &str = "Dir::Etc::Preferences=/etc/apt/halite.preferences";
/// Limit for another program to release a lock of apt, and the pause between two attempts. apt
/// itself waits for dpkg's lock only, and not for those of its lists and archives.
const LOCKED: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_secs(3);
/// Messages of apt and dpkg about a lock that another program holds.
const HELD: &[&str] = &[
    "Could not get lock /var/",
    "dpkg frontend lock was locked by another process",
];

/// apt's options for an installation that takes Halite's repository first.
pub(super) fn preferences(prefers_bundle: bool) -> &'static [&'static str] {
    if prefers_bundle {
        &["-o", PREFERENCES]
    } else {
        &[]
    }
}

/// apt's command that reads the indexes of one repository and keeps those of the others, or reads
/// those of all.
pub(super) fn update(only: Option<&str>) -> Vec<String> {
    let mut argv = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
        .map(str::to_owned)
        .to_vec();
    if let Some(name) = only {
        let list = format!("Dir::Etc::SourceList=/etc/apt/sources.list.d/{name}.list");
        for option in [
            list.as_str(),
            "Dir::Etc::SourceParts=-",
            "APT::Get::List-Cleanup=0",
            "APT::Update::Error-Mode=any",
        ] {
            argv.extend(["-o", option].map(str::to_owned));
        }
    }
    argv.push("update".to_owned());
    argv
}

/// Runs apt, and repeats it while another program holds one of its locks.
///
/// # Errors
/// Those of the run.
pub(super) async fn unlocked<R: Future<Output = HostResult<Output>>>(
    run: impl Fn() -> R,
) -> HostResult<Output> {
    repeated(run, PAUSE).await
}

async fn repeated<R: Future<Output = HostResult<Output>>>(
    run: impl Fn() -> R,
    pause: Duration,
) -> HostResult<Output> {
    let end = Instant::now() + LOCKED;
    loop {
        let output = run().await?;
        if !is_locked(&output) || Instant::now() >= end {
            return Ok(output);
        }
        sleep(pause).await;
    }
}

/// Returns whether a run failed because another program holds a lock of apt or dpkg.
pub(super) fn is_locked(output: &Output) -> bool {
    let is_held = |text: &&str| output.stderr.contains(*text);
    output.code != 0 && HELD.iter().any(is_held)
}

/// apt's options. apt removes packages that conflict, unless `--no-remove` is among them.
fn apt_options(options: PackageOptions, removes: bool) -> Vec<&'static str> {
    let mut words = Vec::new();
    match options.recommends {
        Some(true) => words.push("--install-recommends"),
        Some(false) => words.push("--no-install-recommends"),
        None => {}
    }
    if options.downgrades {
        words.push("--allow-downgrades");
    }
    words.extend(preferences(options.prefers_bundle));
    if !options.erasing && !removes {
        words.push("--no-remove");
    }
    words
}

/// Installs and removes in one transaction of apt, after completing an earlier unfinished one.
///
/// # Errors
/// apt or dpkg fails.
pub(super) async fn apt(
    install: &BTreeMap<String, Option<String>>,
    remove: &[String],
    options: PackageOptions,
) -> HostResult<()> {
    let verb = if install.is_empty() {
        "remove"
    } else {
        "install"
    };
    let mut words: Vec<String> = install
        .iter()
        .map(|(n, v)| pinned(n, v.as_deref(), "="))
        .collect();
    // apt's own notation for removing within an installation.
    words.extend(remove.iter().map(|n| {
        if install.is_empty() {
            n.clone()
        } else {
            format!("{n}-")
        }
    }));
    let argv: Vec<&str> = APT
        .iter()
        .copied()
        .chain(apt_options(options, !remove.is_empty()))
        .chain([verb, "--"])
        .chain(texts(&words))
        .collect();
    // The scripts of removed packages must stop their services.
    let environment: Vec<(&str, &str)> = APT_ENVIRONMENT
        .iter()
        .copied()
        .chain(remove.is_empty().then_some(OFFLINE))
        .collect();
    // While a package needs a reinstallation, apt does nothing else, and the repository may be gone
    // already. dpkg leaves packages that others need to apt.
    if install.is_empty()
        && !to_reinstall().await?.is_empty()
        && checked(&forced_removal(remove), &environment).await.is_ok()
    {
        return Ok(());
    }
    let output = run_apt(&argv, &environment).await?;
    if output.code == 0 {
        return Ok(());
    }
    let again = to_reinstall().await.unwrap_or_default();
    if !interrupted(&output.stderr) && again.is_empty() {
        return Err(failed(&argv, output));
    }
    finish(install, options).await?;
    checked(&argv, &environment).await
}

/// The packages that an installation would remove, by a simulation.
///
/// # Errors
/// apt cannot be started.
pub(super) async fn removed_by(
    install: &BTreeMap<String, Option<String>>,
    options: PackageOptions,
) -> HostResult<BTreeSet<String>> {
    let words = install
        .iter()
        .map(|(name, version)| pinned(name, version.as_deref(), "="));
    let words: Vec<String> = words.collect();
    let argv: Vec<&str> = ["apt-get", "-q", "-s"]
        .into_iter()
        .chain(apt_options(options, false))
        .chain(["install", "--"])
        .chain(texts(&words))
        .collect();
    let output = run(&command(&argv, APT_ENVIRONMENT), Some(QUESTION)).await?;
    Ok(match output.code {
        0 => parse_removed(&output.stdout),
        _ => BTreeSet::new(),
    })
}

/// The packages in the lines `Remv NAME [VERSION]` of a simulation.
fn parse_removed(text: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let rest = line.strip_prefix("Remv ")?;
        let name = rest.split([' ', ':']).next()?;
        Some(name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// dpkg's removal, which needs no repository, of packages in any state.
fn forced_removal(remove: &[String]) -> Vec<&str> {
    ["dpkg", "--remove", "--force-remove-reinstreq", "--"]
        .into_iter()
        .chain(texts(remove))
        .collect()
}

/// Finishes an earlier transaction that was cut off (power, kill). It starts no service, whatever
/// follows.
async fn finish(
    install: &BTreeMap<String, Option<String>>,
    options: PackageOptions,
) -> HostResult<()> {
    let environment: Vec<(&str, &str)> = APT_ENVIRONMENT.iter().copied().chain([OFFLINE]).collect();
    let environment = environment.as_slice();
    let argv = [
        "dpkg",
        "--configure",
        "-a",
        "--force-confdef",
        "--force-confold",
    ];
    let configured = run_apt(&argv, environment).await?;
    let again = to_reinstall().await?;
    if !again.is_empty() {
        // Cut off while it was being unpacked. dpkg no longer configures it, and apt considers it
        // up to date. Reinstalled in its own version, unless this transaction wants another one or
        // no repository has it any more.
        let own = words(&again, |name, version| {
            install.get(name).map_or(Some(version), Option::as_deref)
        });
        let any = words(&again, |name, _| {
            install.get(name).and_then(Option::as_deref)
        });
        let reinstall = |words| {
            let argv: Vec<&str> = APT
                .iter()
                .copied()
                .chain(apt_options(options, false))
                .chain(["--reinstall", "install", "--"])
                .chain(texts(words))
                .collect();
            async move { checked(&argv, environment).await }
        };
        if own == any || reinstall(&own).await.is_err() {
            reinstall(&any).await?;
        }
    } else if configured.code != 0 {
        return Err(failed(&argv, configured));
    }
    checked(&repair(options), environment).await
}

/// apt's command that repairs dependencies. It chooses packages too, so it has the options of the
/// transaction that it precedes.
fn repair(options: PackageOptions) -> Vec<&'static str> {
    APT.iter()
        .copied()
        .chain(apt_options(options, false))
        .chain(["-f", "install"])
        .collect()
}

/// apt's words for packages, each with the version that `pin` gives for its name and version.
fn words<'a>(
    packages: &'a BTreeMap<String, String>,
    pin: impl Fn(&'a str, &'a str) -> Option<&'a str>,
) -> Vec<String> {
    packages
        .iter()
        .map(|(name, version)| pinned(name, pin(name, version), "="))
        .collect()
}

/// The packages that dpkg wants reinstalled before anything else: name to version.
async fn to_reinstall() -> HostResult<BTreeMap<String, String>> {
    let format = "${db:Status-Eflag}\t${Package}\t${Version}\n";
    let text = run_checked(&["dpkg-query", "-W", "-f", format], &[], QUESTION).await?;
    Ok(parse_to_reinstall(&text))
}

fn parse_to_reinstall(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("reinstreq\t")?.split_once('\t'))
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .collect()
}

async fn run_apt(argv: &[&str], environment: &[(&str, &str)]) -> HostResult<Output> {
    let command = command(argv, environment);
    unlocked(|| run(&command, Some(ANY))).await
}

async fn checked(argv: &[&str], environment: &[(&str, &str)]) -> HostResult<()> {
    let output = run_apt(argv, environment).await?;
    if output.code == 0 {
        Ok(())
    } else {
        Err(failed(argv, output))
    }
}

/// The error of a transaction. apt runs dpkg in a pseudo-terminal, so dpkg's reasons are in the
/// standard output.
fn failed(argv: &[&str], mut output: Output) -> HostError {
    let reasons = reasons(&output.stdout);
    if !reasons.is_empty() {
        output.stderr = format!("{}\n{}", reasons.join("\n"), output.stderr.trim());
    }
    failure(argv, &output)
}

/// dpkg's errors, each with its continuation lines, which are indented.
fn reasons(stdout: &str) -> Vec<&str> {
    let mut within = false;
    stdout
        .lines()
        .map(str::trim_end)
        .filter(|line| {
            within = line.starts_with("dpkg: error") || (within && line.starts_with(' '));
            within
        })
        .collect()
}

fn interrupted(stderr: &str) -> bool {
    [
        "dpkg was interrupted",
        "unmet dependencies",
        "fix-broken",
        "reinstreq",
    ]
    .iter()
    .any(|s| stderr.contains(s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_installation_may_do_is_declared() {
        let nothing = PackageOptions::default();
        assert_eq!(apt_options(nothing, false), ["--no-remove"]);
        assert!(apt_options(nothing, true).is_empty());
        let all = PackageOptions {
            recommends: Some(false),
            erasing: true,
            downgrades: true,
            prefers_bundle: true,
        };
        assert_eq!(
            apt_options(all, false),
            [
                "--no-install-recommends",
                "--allow-downgrades",
                "-o",
                PREFERENCES
            ]
        );
    }

    #[test]
    fn a_repair_has_the_options_of_the_installation() {
        let bundle = PackageOptions {
            prefers_bundle: true,
            ..PackageOptions::default()
        };
        let end = ["-o", PREFERENCES, "--no-remove", "-f", "install"];
        assert!(repair(bundle).ends_with(&end), "{:?}", repair(bundle));
        let plain = repair(PackageOptions::default());
        assert!(plain.ends_with(&["--no-remove", "-f", "install"]));
        assert!(!plain.contains(&PREFERENCES), "{plain:?}");
    }

    #[test]
    fn the_packages_that_a_simulation_removes_are_known() {
        let text = "NOTE\nRemv docker-ce [5:28.0.4-1]\nRemv containerd.io:amd64 [1.7.27-1]\nInst containerd (2.3.7-1 Halite)\n";
        let removed: Vec<String> = parse_removed(text).into_iter().collect();
        assert_eq!(removed, ["containerd.io", "docker-ce"]);
    }

    #[test]
    fn a_repository_is_read_without_the_others() {
        let argv = update(Some("halite")).join(" ");
        assert!(argv.contains(
            "sources.list.d/halite.list -o Dir::Etc::SourceParts=- -o APT::Get::List-Cleanup=0"
        ));
        assert!(argv.ends_with("Error-Mode=any update"), "{argv}");
        assert!(!update(None).join(" ").contains("Error-Mode"));
    }

    #[tokio::test]
    async fn a_command_waits_for_the_lock_of_apt() {
        let tries = std::cell::Cell::new(0);
        let run = || async {
            tries.set(tries.get() + 1);
            let stderr = match tries.get() {
                1 => "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7",
                2 => "dpkg: error: dpkg frontend lock was locked by another process with pid 7",
                _ => return Ok(Output::default()),
            };
            Ok(Output {
                code: 100,
                stderr: stderr.into(),
                ..Output::default()
            })
        };
        assert_eq!(repeated(run, Duration::ZERO).await.unwrap().code, 0);
        assert_eq!(tries.get(), 3);
    }

    #[test]
    fn a_cut_off_transaction_is_recognised() {
        let text = "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem.";
        assert!(interrupted(text));
        assert!(!interrupted("E: Unable to locate package x"));
    }

    #[test]
    fn packages_that_were_cut_off_while_unpacked_are_reinstalled() {
        let text = "ok\tbash\t5\nreinstreq\tcontainerd\t2.3\n\tgone\t1\n";
        let again = parse_to_reinstall(text);
        assert_eq!(
            words(&again, |_, version| Some(version)),
            ["containerd=2.3"]
        );
        assert_eq!(words(&again, |_, _| None), ["containerd"]);
    }

    #[test]
    fn a_package_that_was_cut_off_is_removed_without_a_repository() {
        let names = ["kubelet".to_owned(), "containerd".to_owned()];
        assert_eq!(
            forced_removal(&names),
            [
                "dpkg",
                "--remove",
                "--force-remove-reinstreq",
                "--",
                "kubelet",
                "containerd"
            ]
        );
    }

    #[test]
    fn a_failure_has_the_reasons_of_dpkg() {
        let stdout = "Setting up socat ...\r\ndpkg: error processing package containerd (--configure):\r\n \
                      package is in a very bad inconsistent state; you should\r\n \
                      reinstall it before attempting configuration\r\nErrors were encountered while processing:\r\n";
        let output = Output {
            code: 100,
            stdout: stdout.into(),
            stderr: "E: Sub-process /usr/bin/dpkg returned an error code (1)\n".into(),
        };
        let error = failed(&["apt-get", "install"], output).to_string();
        assert!(
            error.contains("very bad inconsistent state") && error.contains("Sub-process"),
            "{error}"
        );
        assert!(!error.contains("socat"), "{error}");
    }
}
