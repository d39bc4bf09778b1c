//! Packages through the host's own manager: dpkg and apt, or rpm and dnf.

mod answers;
mod apt;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use self::answers::{
    is_cut_off, of_architecture, parse_dpkg, parse_held, parse_policy, parse_provides, parse_rpm,
};
use self::apt::{APT_ENVIRONMENT, apt};
use super::command::{command, failure, run, run_checked, run_until};
use crate::host::effect::{Command, Output, PackageOptions};
use crate::host::{HostError, HostResult, PackageManager, Stop};

const QUESTION: Duration = Duration::from_secs(60);
const REFRESH: Duration = Duration::from_secs(1800);
/// The limit of a transaction, which ends by itself: the master reports it at the time limit of its
/// job, and the operator can force its end.
const ANY: Duration = Duration::MAX;
/// dnf's option that ignores repositories which it cannot reach: they are none of Halite's
/// business, and a package that is then missing is an error.
const SKIPS_UNREACHABLE: &str = "--setopt=*.skip_if_unavailable=True";
const DPKG_STATUS: &str = "/var/lib/dpkg/status";

/// Installed packages, remembered until the package database changes.
#[derive(Debug, Default)]
pub struct Installed(Mutex<Option<Known>>);

/// Packages, and the last change of the package database.
#[derive(Debug, Clone)]
struct Known {
    changed: Option<SystemTime>,
    packages: Arc<BTreeMap<String, String>>,
}

/// The host's package manager; apt if both exist (Debian with rpm tools on it).
///
/// # Errors
/// Neither exists.
pub fn manager() -> HostResult<PackageManager> {
    if Path::new("/usr/bin/apt-get").exists() {
        return Ok(PackageManager::Apt);
    }
    if Path::new("/usr/bin/dnf").exists() {
        return Ok(PackageManager::Dnf);
    }
    Err(HostError::refused(
        "this host has neither apt-get nor dnf: packages cannot be managed on it",
    ))
}

impl Installed {
    /// Forgets the remembered packages.
    pub fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Name to version of all installed packages; several versions are separated by commas.
    ///
    /// # Errors
    /// The manager cannot be asked.
    pub async fn get(&self) -> HostResult<Arc<BTreeMap<String, String>>> {
        let changed = std::fs::metadata(DPKG_STATUS)
            .and_then(|m| m.modified())
            .ok();
        let known = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(known) = known.filter(|k| k.changed == changed) {
            return Ok(known.packages);
        }
        let packages = match manager()? {
            // Half-installed and unpacked ones do not count, so that they are repaired.
            PackageManager::Apt => parse_dpkg(&ask_dpkg("Version").await?, |state| state == "i"),
            PackageManager::Dnf => {
                let format = "%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n";
                parse_rpm(&run_checked(&["rpm", "-qa", "--qf", format], &[], QUESTION).await?)
            }
        };
        let packages = Arc::new(packages);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Known {
            changed,
            packages: Arc::clone(&packages),
        });
        Ok(packages)
    }
}

/// Packages whose installation or removal was cut off: name to version, which may be empty. rpm has
/// no state for them.
///
/// # Errors
/// The manager cannot be asked.
pub async fn cut_off() -> HostResult<BTreeMap<String, String>> {
    match manager()? {
        PackageManager::Apt => Ok(parse_dpkg(&ask_dpkg("Version").await?, is_cut_off)),
        PackageManager::Dnf => Ok(BTreeMap::new()),
    }
}

/// Installed packages that an installation would remove. Always empty with dnf, and empty if the
/// package manager finds no solution: the installation then reports that.
///
/// # Errors
/// The manager cannot be asked.
pub async fn removed_by(
    install: &BTreeMap<String, Option<String>>,
    options: PackageOptions,
) -> HostResult<BTreeSet<String>> {
    match manager()? {
        PackageManager::Apt if options.erasing => apt::removed_by(install, options).await,
        PackageManager::Apt | PackageManager::Dnf => Ok(BTreeSet::new()),
    }
}

/// Packages that the operator has put on hold. dnf has none: its locks are a plugin's.
///
/// # Errors
/// The manager cannot be asked.
pub async fn held() -> HostResult<BTreeSet<String>> {
    match manager()? {
        PackageManager::Apt => Ok(parse_held(&ask_dpkg("Version").await?)),
        PackageManager::Dnf => Ok(BTreeSet::new()),
    }
}

/// State, name and a field of the packages of the host's own architecture: a name alone means
/// those, also for apt.
async fn ask_dpkg(field: &str) -> HostResult<String> {
    let format =
        format!("-f=${{Architecture}}\t${{db:Status-Abbrev}}\t${{Package}}\t${{{field}}}\n");
    let native = run_checked(&["dpkg", "--print-architecture"], &[], QUESTION).await?;
    let text = run_checked(&["dpkg-query", "-W", &format], &[], QUESTION).await?;
    Ok(of_architecture(&text, native.trim()))
}

/// The installed package that provides a virtual one.
///
/// # Errors
/// The manager cannot be asked.
pub async fn provider(name: &str) -> HostResult<Option<String>> {
    match manager()? {
        PackageManager::Apt => {
            let text = ask_dpkg("Provides").await?;
            Ok(parse_provides(&text, name))
        }
        PackageManager::Dnf => {
            let argv = [
                "rpm",
                "-q",
                "--whatprovides",
                "--qf",
                "%{NAME}\n",
                "--",
                name,
            ];
            let command = Command {
                argv: argv.map(str::to_owned).to_vec(),
                ..Command::default()
            };
            let output = run(&command, Some(QUESTION)).await?;
            // Its only other answer is that no package provides it.
            let first = output.stdout.lines().next().map(str::to_owned);
            Ok(first.filter(|_| output.code == 0))
        }
    }
}

/// The version that an installation would choose now.
///
/// # Errors
/// The manager cannot be asked.
pub async fn candidate(name: &str, prefers_bundle: bool) -> HostResult<Option<String>> {
    Ok(match manager()? {
        PackageManager::Apt => {
            let mut argv = vec!["apt-cache"];
            argv.extend(apt::preferences(prefers_bundle));
            argv.extend(["policy", "--", name]);
            parse_policy(&run_checked(&argv, &[], QUESTION).await?)
        }
        PackageManager::Dnf => {
            let argv = [
                "dnf",
                "-q",
                "repoquery",
                "--latest-limit=1",
                "--qf",
                "%{evr}\n",
                "--",
                name,
            ];
            let text = run_checked(&argv, &[], QUESTION).await?;
            text.lines()
                .map(str::trim)
                .rfind(|l| !l.is_empty())
                .map(|v| v.strip_prefix("0:").unwrap_or(v).to_owned())
        }
    })
}

/// Reads the indexes of repositories again. The only one must be readable. Of all repositories,
/// some may be unreachable, as in Salt: what is missing fails in the installation that needs it.
///
/// # Errors
/// The only repository cannot be read, another program does not release its lock in time, or the
/// package manager is ended by `stop`.
pub async fn refresh(only: Option<&str>, stop: &Stop) -> HostResult<()> {
    let argv = match manager()? {
        PackageManager::Apt => apt::update(only),
        PackageManager::Dnf => makecache(only),
    };
    let argv: Vec<&str> = texts(&argv).collect();
    let command = command(&argv, APT_ENVIRONMENT);
    let output = apt::unlocked(|| run_until(&command, Some(REFRESH), stop)).await?;
    if is_refreshed(&output, only) {
        Ok(())
    } else {
        Err(failure(&argv, &output))
    }
}

fn is_refreshed(output: &Output, only: Option<&str>) -> bool {
    let is_bearable = only.is_none() && !apt::is_locked(output);
    output.code == 0 || is_bearable
}

/// dnf's command that reads the indexes of one repository, or of all that can be reached.
fn makecache(only: Option<&str>) -> Vec<String> {
    let mut argv = vec!["dnf".to_owned(), "-q".to_owned()];
    argv.extend(match only {
        Some(name) => vec!["--repo".to_owned(), name.to_owned()],
        None => vec![SKIPS_UNREACHABLE.to_owned()],
    });
    argv.extend(["makecache", "--refresh"].map(str::to_owned));
    argv
}

/// Installs and removes in one transaction, which is not cut off: half a transaction would be worse
/// than a late one. Only a forced `stop` ends it; the next transaction finishes it first.
///
/// # Errors
/// The package manager fails, for example because no repository offers a version, or is ended.
pub async fn change(
    install: &BTreeMap<String, Option<String>>,
    remove: &[String],
    options: PackageOptions,
    stop: &Stop,
) -> HostResult<()> {
    tokio::select! {
        biased;
        done = transaction(install, remove, options) => done,
        reason = stop.forced() => Err(HostError::Stopped {
            program: "the package transaction".into(),
            reason,
        }),
    }
}

async fn transaction(
    install: &BTreeMap<String, Option<String>>,
    remove: &[String],
    options: PackageOptions,
) -> HostResult<()> {
    match manager()? {
        PackageManager::Apt => apt(install, remove, options).await,
        PackageManager::Dnf => {
            let install: Vec<String> = install
                .iter()
                .map(|(n, v)| pinned(n, v.as_deref(), "-"))
                .collect();
            if !remove.is_empty() {
                let argv: Vec<&str> = ["dnf", "-y", "-q", "remove", "--"]
                    .into_iter()
                    .chain(texts(remove))
                    .collect();
                run_checked(&argv, &[], ANY).await?;
            }
            if install.is_empty() {
                return Ok(());
            }
            let argv: Vec<&str> = ["dnf", "-y", "-q"]
                .into_iter()
                .chain([SKIPS_UNREACHABLE])
                .chain(dnf_options(options))
                .chain(["install", "--"])
                .chain(texts(&install))
                .collect();
            run_checked(&argv, &[], ANY).await.map(drop)
        }
    }
}

fn texts(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter().map(String::as_str)
}

fn pinned(name: &str, version: Option<&str>, separator: &str) -> String {
    version.map_or_else(|| name.to_owned(), |v| format!("{name}{separator}{v}"))
}

fn dnf_options(options: PackageOptions) -> Vec<&'static str> {
    let mut words = Vec::new();
    match options.recommends {
        Some(true) => words.push("--setopt=install_weak_deps=True"),
        Some(false) => words.push("--setopt=install_weak_deps=False"),
        None => {}
    }
    if options.erasing {
        words.push("--allowerasing");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn states_share_one_table_of_packages_until_the_database_changes() {
        let changed = std::fs::metadata(DPKG_STATUS)
            .and_then(|data| data.modified())
            .ok();
        let packages = Arc::new(BTreeMap::from([("kubelet".to_owned(), "1".to_owned())]));
        let known = Known {
            changed,
            packages: Arc::clone(&packages),
        };
        let installed = Installed(Mutex::new(Some(known)));
        for _ in 0..2 {
            assert!(Arc::ptr_eq(&installed.get().await.unwrap(), &packages));
        }
    }

    #[test]
    fn what_an_installation_may_do_is_declared() {
        let nothing = PackageOptions::default();
        assert!(dnf_options(nothing).is_empty());
        let all = PackageOptions {
            recommends: Some(false),
            erasing: true,
            downgrades: true,
            prefers_bundle: false,
        };
        assert_eq!(
            dnf_options(all),
            ["--setopt=install_weak_deps=False", "--allowerasing"]
        );
    }

    #[test]
    fn a_repository_is_read_without_the_others() {
        let words = |argv: Vec<String>| argv.join(" ");
        assert_eq!(
            words(makecache(Some("halite"))),
            "dnf -q --repo halite makecache --refresh"
        );
        assert!(words(makecache(None)).contains("skip_if_unavailable"));
    }

    #[test]
    fn a_refresh_fails_for_a_lock_and_for_the_only_repository() {
        let ended = |code, stderr: &str| Output {
            code,
            stderr: stderr.to_owned(),
            ..Output::default()
        };
        let unreachable = ended(
            100,
            "E: Failed to fetch http://a.example/debian/dists/stable",
        );
        let locked = ended(100, "E: Could not get lock /var/lib/apt/lists/lock.");
        assert!(is_refreshed(&unreachable, None));
        assert!(!is_refreshed(&unreachable, Some("halite")));
        assert!(!is_refreshed(&locked, None) && !is_refreshed(&locked, Some("halite")));
        assert!(is_refreshed(&ended(0, ""), Some("halite")));
    }
}
