//! Packages through the host's own manager: dpkg and apt, or rpm and dnf.

mod apt;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use self::apt::{APT_ENVIRONMENT, apt};
use super::command::{command, failure, run, run_checked, run_until};
use crate::host::effect::{Command, Output, PackageOptions};
use crate::host::{HostError, HostResult, PackageManager, Stop};

const QUESTION: Duration = Duration::from_secs(60);
const REFRESH: Duration = Duration::from_secs(1800);
/// The limit of a transaction, which ends by itself: the master reports it at the time limit of its
/// job, and the operator can force its end.
const ANY: Duration = Duration::MAX;
/// dnf's option that ignores repositories which it cannot reach: they are none of Halite's business,
/// and a package that is then missing is an error.
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

    /// Name to version of all installed packages.
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
            PackageManager::Apt => parse_dpkg(&ask_dpkg().await?, |state| state == "i"),
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
        PackageManager::Apt => Ok(parse_dpkg(&ask_dpkg().await?, is_cut_off)),
        PackageManager::Dnf => Ok(BTreeMap::new()),
    }
}

/// Not `i` (installed), `n` (not installed) or `c` (only its configuration).
fn is_cut_off(state: &str) -> bool {
    !matches!(state, "i" | "n" | "c")
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
        PackageManager::Apt => Ok(parse_held(&ask_dpkg().await?)),
        PackageManager::Dnf => Ok(BTreeSet::new()),
    }
}

/// The packages of `dpkg-query`'s answer whose wanted state, the first letter, is a hold.
fn parse_held(text: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let mut fields = line.split('\t');
        let is_held = fields.next()?.starts_with('h');
        let name = fields.next()?;
        is_held.then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

async fn ask_dpkg() -> HostResult<String> {
    let format = "-f=${db:Status-Abbrev}\t${Package}\t${Version}\n";
    run_checked(&["dpkg-query", "-W", format], &[], QUESTION).await
}

/// The packages of `dpkg-query`'s answer whose state counts: the second letter of its abbreviation.
fn parse_dpkg(text: &str, counts: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    let fields = text.lines().filter_map(|line| {
        let mut fields = line.split('\t');
        counts(fields.next()?.get(1..2)?)
            .then_some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    });
    fields.collect()
}

fn parse_rpm(text: &str) -> BTreeMap<String, String> {
    let fields = text.lines().filter_map(|line| {
        let (name, version) = line.split_once('\t')?;
        Some((
            name.to_owned(),
            version.strip_prefix("0:").unwrap_or(version).to_owned(),
        ))
    });
    fields.collect()
}

/// The installed package that provides a virtual one.
///
/// # Errors
/// The manager cannot be asked.
pub async fn provider(name: &str) -> HostResult<Option<String>> {
    match manager()? {
        PackageManager::Apt => {
            let format = "-f=${db:Status-Abbrev}\t${Package}\t${Provides}\n";
            let text = run_checked(&["dpkg-query", "-W", format], &[], QUESTION).await?;
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

/// The installed package of `dpkg-query`'s answer that provides `name`; its version does not
/// matter.
fn parse_provides(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut fields = line.split('\t');
        let is_installed = fields.next()?.get(1..2)? == "i";
        let (package, provides) = (fields.next()?, fields.next()?);
        let mut names = provides
            .split(',')
            .filter_map(|one| one.split_whitespace().next());
        (is_installed && names.any(|one| one == name)).then(|| package.to_owned())
    })
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

fn parse_policy(text: &str) -> Option<String> {
    let version = text
        .lines()
        .find_map(|l| l.trim().strip_prefix("Candidate:"))?
        .trim();
    (version != "(none)").then(|| version.to_owned())
}

/// Reads the indexes of repositories again. The only one must be readable. Of all repositories, some
/// may be unreachable, as in Salt: what is missing fails in the installation that needs it.
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
    fn only_installed_packages_count() {
        let text = "ii \tbash\t5.2.15-2+b2\nrc \tgone\t1\niU \tunpacked\t1\nhi \theld\t2\n";
        let packages = parse_dpkg(text, |state| state == "i");
        assert_eq!(packages.keys().collect::<Vec<_>>(), ["bash", "held"]);
        assert_eq!(packages["bash"], "5.2.15-2+b2");
    }

    #[test]
    fn packages_that_were_cut_off_are_on_the_host() {
        // A package whose first installation was cut off early has no version.
        let text = "ii \tbash\t5\nrc \tgone\t1\nun \tnever\t\niUR\tsocat\t1\niHR\tkubelet\t\n\
                    rH \trunc\t2\niF \tcontainerd\t3\n";
        let packages = parse_dpkg(text, is_cut_off);
        let names = ["containerd", "kubelet", "runc", "socat"];
        assert_eq!(packages.keys().collect::<Vec<_>>(), names);
        assert_eq!(packages["kubelet"], "");
    }

    #[test]
    fn a_virtual_package_has_an_installed_provider() {
        let text = "rc \tgone\tmail-transport-agent\nii \tmawk\tawk\n\
                    ii \tpostfix\tdefault-mta (= 1), mail-transport-agent\nii \tbash\t\n";
        for (name, provider) in [
            ("mail-transport-agent", Some("postfix")),
            ("default-mta", Some("postfix")),
            ("awk", Some("mawk")),
            ("bash", None),
            ("mail", None),
        ] {
            assert_eq!(parse_provides(text, name).as_deref(), provider, "{name}");
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
    fn rpm_epochs() {
        let packages = parse_rpm("bash\t0:5.1.8-6.el9\nnginx\t2:1.20.1-14.el9\n");
        assert_eq!(
            (packages["bash"].as_str(), packages["nginx"].as_str()),
            ("5.1.8-6.el9", "2:1.20.1-14.el9")
        );
    }

    #[test]
    fn held_packages_are_found_also_if_they_are_not_installed() {
        let text = "ii \tbash\t5\nhi \tkubelet\t1.36\nhc \tethtool\t6\nrc \told\t1\n";
        let held: Vec<String> = parse_held(text).into_iter().collect();
        assert_eq!(held, ["ethtool", "kubelet"]);
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

    #[test]
    fn candidates() {
        let text = "nginx:\n  Installed: (none)\n  Candidate: 1.22.1-9\n  Version table:\n";
        assert_eq!(parse_policy(text).as_deref(), Some("1.22.1-9"));
        assert_eq!(parse_policy("x:\n  Candidate: (none)\n"), None);
        assert_eq!(parse_policy(""), None);
    }
}
