//! The packages of a minimal host: the content of rpm's database, as a list that `rpm` itself
//! writes (the guide has the command).
//!
//! ```text
//! P bash 0:5.1.8-9.el9 x86_64
//! p /bin/sh                        what it provides
//! p bash = 0:5.1.8-9.el9
//! r libc.so.6(GLIBC_2.34)(64bit)   what it requires
//! c bash-old < 5                   what it conflicts with
//! o bash2                          what it obsoletes
//! f /usr/bin/bash                  its files
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use halite_fetch::yum::{Need, Version};

use super::dependency;
use super::dependency::InvalidDependency;
use crate::error::Error;

/// The format for `rpm -qa --qf` that writes the list.
pub const FORMAT: &str = r"P %{NAME} %|EPOCH?{%{EPOCH}}:{0}|:%{VERSION}-%{RELEASE} %{ARCH}\n[p %{PROVIDENEVRS}\n][r %{REQUIRENEVRS}\n][c %{CONFLICTNEVRS}\n][o %{OBSOLETENEVRS}\n][f %{FILENAMES}\n]";

/// The name of keys that are packages in rpm's database.
const KEYS: &str = "gpg-pubkey";

/// The packages of a minimal host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Base {
    /// The packages in the order of the list.
    pub packages: Vec<Installed>,
}

/// An installed package.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installed {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// Its architecture.
    pub architecture: String,
    /// Its provides, including its own name.
    pub provides: Vec<Need>,
    /// Its requirements.
    pub requires: Vec<Need>,
    /// Its conflicts.
    pub conflicts: Vec<Need>,
    /// The packages that it obsoletes.
    pub obsoletes: Vec<Need>,
    /// Its files.
    pub files: Vec<String>,
}

/// An invalid line of a list of packages.
#[derive(Debug, thiserror::Error)]
enum InvalidLine {
    #[error("{0:?} names no package, version and architecture")]
    Package(String),
    #[error("{0:?} belongs to no package")]
    NoPackage(String),
    #[error("{0:?} begins with none of P, p, r, c, o, f")]
    Kind(String),
    #[error(transparent)]
    Dependency(#[from] InvalidDependency),
}

impl Base {
    /// Reads a list.
    ///
    /// # Errors
    /// It cannot be read, or has invalid lines; the error names every invalid line.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
        Self::parse(&text).map_err(|problems| {
            let shown: Vec<_> = problems.iter().take(10).cloned().collect();
            let more = problems.len() - shown.len();
            let rest = if more > 0 {
                format!("\nand {more} more lines")
            } else {
                String::new()
            };
            Error::content(
                path,
                format!("it is not a list of packages:\n{}{rest}", shown.join("\n")),
            )
        })
    }

    /// Parses a list.
    ///
    /// # Errors
    /// Every invalid line.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        let (mut base, mut problems) = (Self::default(), Vec::new());
        let lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        for (number, line) in lines {
            if let Err(why) = base.line(line) {
                problems.push(format!("line {}: {why}", number + 1));
            }
        }
        base.packages.retain(|package| package.name != KEYS);
        if problems.is_empty() && base.packages.is_empty() {
            problems.push("it names no package".to_owned());
        }
        if problems.is_empty() {
            Ok(base)
        } else {
            Err(problems)
        }
    }

    fn line(&mut self, line: &str) -> Result<(), InvalidLine> {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        if kind == "P" {
            let words: Vec<&str> = rest.split(' ').collect();
            let [name, version, architecture] = words[..] else {
                return Err(InvalidLine::Package(line.to_owned()));
            };
            let (name, architecture) = (name.to_owned(), architecture.to_owned());
            let version = dependency::version(version);
            self.packages.push(Installed {
                name,
                version,
                architecture,
                ..Installed::default()
            });
            return Ok(());
        }
        let package = self
            .packages
            .last_mut()
            .ok_or_else(|| InvalidLine::NoPackage(line.to_owned()))?;
        let list = match kind {
            "p" => &mut package.provides,
            "r" => &mut package.requires,
            "c" => &mut package.conflicts,
            "o" => &mut package.obsoletes,
            "f" if rest.starts_with('/') => {
                package.files.push(rest.to_owned());
                return Ok(());
            }
            _ => return Err(InvalidLine::Kind(line.to_owned())),
        };
        list.push(dependency::need(rest)?);
        Ok(())
    }

    /// Writes the list with only the files in `wanted`, sorted: the part of it on which
    /// dependencies depend.
    #[must_use]
    pub fn essence(&self, wanted: &BTreeSet<String>) -> String {
        let mut packages: Vec<_> = self
            .packages
            .iter()
            .map(|package| package.text(wanted))
            .collect();
        packages.sort_unstable();
        packages.concat()
    }
}

impl Installed {
    fn text(&self, wanted: &BTreeSet<String>) -> String {
        let Version {
            epoch,
            version,
            release,
        } = &self.version;
        let mut text = format!(
            "P {} {epoch}:{version}-{release} {}\n",
            self.name, self.architecture
        );
        for (kind, list) in [
            ("p", &self.provides),
            ("r", &self.requires),
            ("c", &self.conflicts),
            ("o", &self.obsoletes),
        ] {
            let mut lines: Vec<_> = list.iter().map(|need| format!("{kind} {need}\n")).collect();
            lines.sort_unstable();
            lines.dedup();
            text.extend(lines);
        }
        let files = self.files.iter().filter(|file| wanted.contains(*file));
        text.extend(files.map(|file| format!("f {file}\n")));
        text
    }
}

#[cfg(test)]
mod tests {
    use halite_fetch::yum::Flag;

    use super::*;

    #[test]
    fn a_list_is_read_and_written() {
        let text = "# of a host\nP bash 0:5.1.8-9.el9 x86_64\np bash = 0:5.1.8-9.el9\np /bin/sh\nr (a if b)\nc x < 1\n\
                    f /usr/bin/bash\nf /usr/share/doc/bash\n\nP gpg-pubkey 0:1-2 (none)\np gpg(x)\n\
                    P a 2:1-1 noarch\no b <= 3:2\n";
        let base = Base::parse(text).unwrap();
        assert_eq!(base.packages.len(), 2);
        let [bash, a] = &base.packages[..] else {
            panic!()
        };
        assert_eq!(
            (bash.version.to_string().as_str(), a.version.epoch),
            ("5.1.8-9.el9", 2)
        );
        assert_eq!(
            (bash.requires[0].name.as_str(), bash.files.len()),
            ("(a if b)", 2)
        );
        let (flag, version) = a.obsoletes[0].version.as_ref().unwrap();
        assert_eq!(
            (*flag, version.epoch, version.release.as_str()),
            (Flag::Le, 3, "")
        );
        let essence = base.essence(&BTreeSet::from(["/usr/bin/bash".to_owned()]));
        let expected = "P a 2:1-1 noarch\no b <= 3:2\nP bash 0:5.1.8-9.el9 x86_64\np /bin/sh\n\
                        p bash = 5.1.8-9.el9\nr (a if b)\nc x < 1\nf /usr/bin/bash\n";
        assert_eq!(essence, expected);
        assert_eq!(
            Base::parse(&essence)
                .unwrap()
                .essence(&BTreeSet::from(["/usr/bin/bash".to_owned()])),
            essence
        );
    }

    #[test]
    fn every_wrong_line_is_named() {
        let problems =
            Base::parse("p early\nP one two\nP a 1-1 x86_64\nq x\nr a >\nf not/absolute\n")
                .unwrap_err();
        let lines: Vec<_> = problems
            .iter()
            .map(|problem| problem.split(':').next().unwrap())
            .collect();
        assert_eq!(
            lines,
            ["line 1", "line 2", "line 4", "line 5", "line 6"],
            "{problems:?}"
        );
        assert_eq!(Base::parse("\n").unwrap_err(), ["it names no package"]);
    }
}
