//! `Release`: the list of a suite's indexes, with its period of validity.

use std::collections::BTreeMap;

use halite_durable::Digest;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};

use crate::fetcher::Artifact;
use crate::unpack::Compression;

/// The largest difference between this machine's clock and the server's.
const SKEW: SignedDuration = SignedDuration::from_hours(1);

/// The fields of a `Release`.
#[derive(Debug)]
pub struct Release {
    fields: BTreeMap<String, String>,
    files: BTreeMap<String, (Digest, u64)>,
}

/// An index that can be fetched.
#[derive(Debug, PartialEq, Eq)]
pub struct Index {
    name: String,
    digest: Digest,
    size: u64,
    pub compression: Compression,
    /// Its size in bytes when unpacked, if the release lists it.
    pub unpacked: Option<u64>,
}

/// The reason why a release is not the current one of the requested suite.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("its {field} {text:?} is not a date")]
    Date { field: &'static str, text: String },
    #[error(
        "it was valid until {until}, and it is now {now}: its server or a mirror serves an old state (or this clock is \
         wrong)"
    )]
    Old { until: Timestamp, now: Timestamp },
    #[error("it is from {date}, and it is now {now}: is this clock wrong?")]
    Future { date: Timestamp, now: Timestamp },
    #[error("it is the release of {}, not of {suite}", names.join(" or "))]
    OtherSuite { names: Vec<String>, suite: String },
}

impl Release {
    pub fn parse(text: &str) -> Self {
        let (mut fields, mut files, mut key) = (BTreeMap::new(), BTreeMap::new(), String::new());
        for line in text.lines() {
            if let Some(more) = line.strip_prefix([' ', '\t']) {
                let parts: Vec<_> = more.split_whitespace().collect();
                if let ("sha256", [digest, size, name]) = (key.as_str(), &parts[..])
                    && let (Ok(digest), Ok(size)) = (digest.parse(), size.parse())
                {
                    files.insert((*name).to_owned(), (digest, size));
                }
            } else if let Some((name, value)) = line.split_once(':') {
                key = name.trim().to_ascii_lowercase();
                fields.insert(key.clone(), value.trim().to_owned());
            }
        }
        Self { fields, files }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns whether indexes can be fetched by digest, so that they match the release even while
    /// it is being replaced.
    pub fn by_hash(&self) -> bool {
        self.field("acquire-by-hash") == Some("yes")
    }

    /// Returns whether `binary-all` only repeats packages that the index of each architecture has.
    /// A client does not read it then, and a mirror may lack it.
    pub fn repeats_all(&self) -> bool {
        let indexes = self.field("no-support-for-architecture-all");
        indexes.is_some_and(|indexes| indexes.split_whitespace().any(|name| name == "Packages"))
    }

    /// Checks that the time is not after `Valid-Until` and not before `Date`.
    pub fn check_dates(&self, now: Timestamp) -> Result<(), Refused> {
        let date = |field: &'static str| match self.field(field) {
            Some(text) => parse_date(text).map(Some).ok_or_else(|| Refused::Date {
                field,
                text: text.to_owned(),
            }),
            None => Ok(None),
        };
        if let Some(until) = date("valid-until")?.filter(|until| *until < now) {
            return Err(Refused::Old { until, now });
        }
        match date("date")?.filter(|date| *date > now + SKEW) {
            Some(date) => Err(Refused::Future { date, now }),
            None => Ok(()),
        }
    }

    /// Checks that it is for the requested suite, not for another suite of the same owner.
    pub fn check_suite(&self, suite: &str) -> Result<(), Refused> {
        let names: Vec<_> = ["suite", "codename"]
            .into_iter()
            .filter_map(|name| self.field(name))
            .collect();
        // Some repositories call their `bookworm-updates` `bookworm/updates`.
        let same =
            |name: &&str| *name == suite || name.replace('/', "-") == suite.replace('/', "-");
        if names.is_empty() || names.iter().any(same) {
            return Ok(());
        }
        Err(Refused::OtherSuite {
            names: names.into_iter().map(str::to_owned).collect(),
            suite: suite.to_owned(),
        })
    }

    /// Finds an index in its smallest supported compression.
    pub fn find(&self, name: &str) -> Option<Index> {
        let unpacked = self.files.get(name).map(|(_, size)| *size);
        [".xz", ".zst", ".gz", ""].into_iter().find_map(|end| {
            let name = format!("{name}{end}");
            let (digest, size) = self.files.get(&name)?.clone();
            let compression = Compression::of(&name)?;
            Some(Index {
                name,
                digest,
                size,
                compression,
                unpacked,
            })
        })
    }
}

impl Index {
    /// The index's file as an artifact to fetch.
    pub fn artifact(&self, dir: &str, by_hash: bool) -> Artifact {
        let parent = self
            .name
            .rsplit_once('/')
            .map_or(String::new(), |(parent, _)| format!("{parent}/"));
        let url = match by_hash {
            true => format!("{dir}{parent}by-hash/SHA256/{}", self.digest),
            false => format!("{dir}{}", self.name),
        };
        let name = format!("{dir}{}", self.name);
        Artifact {
            name,
            url,
            digest: Some(self.digest.clone()),
            size: Some(self.size),
            limit: None,
        }
    }
}

/// Parses `Sat, 21 Nov 2026 03:08:26 UTC`; the zone is written in several ways.
fn parse_date(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let zone = ["UTC", "GMT", "Z"]
        .into_iter()
        .find_map(|zone| text.strip_suffix(zone));
    let text = zone.map_or_else(|| text.to_owned(), |rest| format!("{} +0000", rest.trim()));
    Some(rfc2822::parse(&text).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release() -> Release {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        Release::parse(&format!(
            "Origin: x\nSuite: stable\nCodename: bookworm\nDate: Sat, 14 Nov 2026 10:00:00 \
             UTC\nValid-Until: Sat, 21 Nov 2026 10:00:00 UTC\nAcquire-By-Hash: yes\nMD5Sum:\n aa 1 \
             main/binary-arm64/Packages.xz\nSHA256:\n {a} 9 main/binary-amd64/Packages\n {b} 3 \
                 main/binary-amd64/Packages.gz\n"
        ))
    }

    #[test]
    fn dates_and_suites_are_compared() {
        let check = |now: &str| release().check_dates(now.parse().unwrap());
        assert!(check("2026-11-20T00:00:00Z").is_ok() && check("2026-11-14T09:30:00Z").is_ok());
        assert!(
            check("2026-11-21T10:00:01Z")
                .unwrap_err()
                .to_string()
                .contains("serves an old state")
        );
        assert!(
            check("2026-11-13T00:00:00Z")
                .unwrap_err()
                .to_string()
                .contains("is this clock wrong")
        );
        assert!(
            Release::parse("Valid-Until: soon")
                .check_dates(Timestamp::UNIX_EPOCH)
                .is_err()
        );
        assert!(
            release().check_suite("bookworm").is_ok() && release().check_suite("stable").is_ok()
        );
        assert_eq!(
            release().check_suite("trixie").unwrap_err().to_string(),
            "it is the release of stable or bookworm, not of trixie"
        );
    }

    #[test]
    fn only_what_has_a_sha256_is_found() {
        let index = release().find("main/binary-amd64/Packages").unwrap();
        assert_eq!(
            (index.compression, index.size, index.unpacked),
            (Compression::Gzip, 3, Some(9))
        );
        let url = format!("d/main/binary-amd64/by-hash/SHA256/{}", Digest::of(b"b"));
        assert_eq!(index.artifact("d/", true).url, url);
        assert_eq!(
            index.artifact("d/", false).url,
            "d/main/binary-amd64/Packages.gz"
        );
        assert_eq!(release().find("main/binary-arm64/Packages"), None);
    }
}
