//! Identifiers that both ends of the wire use. Each is parsed once, where it enters a program: from
//! a message, the command line, a row of the store, the name of a file.

use std::hash::{Hash, Hasher};
use std::str::FromStr;

use halite_names::{MASTER, NodeName, text_id, text_of};
use serde::{Deserialize, Serialize};

use crate::identity::{Identity, IdentityError, IdentityKind, check_name};

/// The number of digits of a job id.
const JOB_DIGITS: usize = 20;
/// The number of characters of a refused text that an error quotes: a hostile text must not flood a
/// log.
const REPEATED: usize = 80;

/// The id of a job or of an orchestration's run: 20 decimal digits, as in Salt the time in UTC at
/// which it was made (`%Y%m%d%H%M%S%6f`). Ids sort by age. It is a file name in the minion's
/// journal.
///
/// Stored inline: a small allocation per job that outlives the job would keep the minion from
/// returning the job's heap pages below it to the system.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId([u8; JOB_DIGITS]);

/// The text is not a job id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a job id: it has 20 decimal digits, for example 20261121000000123000")]
pub struct JobIdError(String);

impl JobId {
    /// The id with this number, with zeros in front.
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        // The largest number has 20 digits.
        let mut digits = [b'0'; JOB_DIGITS];
        let mut rest = number;
        for digit in digits.iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        Self(digits)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Always digits.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for JobId {
    type Err = JobIdError;

    fn from_str(text: &str) -> Result<Self, JobIdError> {
        let digits: Option<[u8; JOB_DIGITS]> = text.as_bytes().try_into().ok();
        digits
            .filter(|digits| digits.iter().all(u8::is_ascii_digit))
            .map(Self)
            .ok_or_else(|| JobIdError(text.chars().take(REPEATED).collect()))
    }
}

impl TryFrom<String> for JobId {
    type Error = JobIdError;

    fn try_from(text: String) -> Result<Self, JobIdError> {
        text.parse()
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.as_str().to_owned()
    }
}

/// Hashes as its text, so that a map by id can be searched by text.
impl Hash for JobId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

text_of!(JobId);

/// The id of a minion. It is also the node name of the minion's host, so it has the form of a
/// Kubernetes node name (RFC 1123 subdomain). `master` is the pseudo-minion whose host is the
/// Kubernetes API; no host may have this id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MinionId(String);

impl MinionId {
    /// The pseudo-minion whose host is the Kubernetes API.
    #[must_use]
    pub fn master() -> Self {
        Self(MASTER.to_owned())
    }

    /// Returns whether this is the pseudo-minion.
    #[must_use]
    pub fn is_master(&self) -> bool {
        self.0 == MASTER
    }

    /// The id of a host's minion.
    ///
    /// # Errors
    /// The text breaks the rules of names, or is `master`.
    pub fn for_host(text: &str) -> Result<Self, IdentityError> {
        let name: NodeName = text.parse()?;
        Ok(name.into())
    }

    fn check(text: &str) -> Result<(), IdentityError> {
        check_name(text)
    }
}

text_id!(MinionId, IdentityError);

/// A host's minion has the name of its node as its id.
impl From<NodeName> for MinionId {
    fn from(name: NodeName) -> Self {
        Self(name.into())
    }
}

impl Identity {
    /// The id of the minion; `None` for a master or an operator.
    #[must_use]
    pub fn minion(&self) -> Option<MinionId> {
        // Checked when the identity was made.
        (self.kind() == IdentityKind::Minion).then(|| MinionId(self.id().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;

    #[test]
    fn a_job_id_survives_its_text() {
        let id: JobId = "20261121000000123000".parse().unwrap();
        assert_eq!(id.to_string(), "20261121000000123000");
        assert_eq!(format!("{:?}", [&id]), "[\"20261121000000123000\"]");
    }

    #[test]
    fn what_is_not_a_job_id_is_refused_and_the_rule_named() {
        for text in [
            "",
            "1",
            "..",
            "2026112100000012300",
            "202611210000001230000",
            "2026112100000012300a",
            "2026112100000012300/",
            "../../../../etc/pass",
            "２026112100000012",
        ] {
            let error = text.parse::<JobId>().unwrap_err().to_string();
            assert!(error.contains("20 decimal digits"), "{error}");
        }
        let long = "x".repeat(1 << 20).parse::<JobId>().unwrap_err();
        assert!(long.to_string().len() < 200);
    }

    #[test]
    fn a_map_by_job_is_searched_by_text() {
        let id = JobId::from_number(12_345);
        let hashed: HashMap<JobId, u8> = [(id.clone(), 1)].into();
        let sorted: BTreeMap<JobId, u8> = [(id.clone(), 1)].into();
        assert_eq!(hashed.get(id.as_str()), Some(&1));
        assert_eq!(sorted.get(id.as_str()), Some(&1));
    }

    #[test]
    fn every_number_has_a_job_id_and_they_sort_alike() {
        for number in [0, 7, u64::MAX] {
            assert_eq!(JobId::from_number(number).parse::<u64>(), Ok(number));
        }
        let id = JobId::from_number(u64::MAX);
        assert_eq!(id.as_str().parse::<JobId>(), Ok(id.clone()));
        assert!(JobId::from_number(9) < JobId::from_number(10));
    }

    #[test]
    fn maps_by_id_are_searched_by_text() {
        let jobs = BTreeMap::from([(JobId::from_number(7), "seven")]);
        assert_eq!(jobs.get("00000000000000000007"), Some(&"seven"));
    }

    #[test]
    fn a_minion_id_is_a_name_and_master_is_reserved() {
        // The last one is longer than the name of a kubelet's node.
        let long = "kubernetes-registry-0001.rack-07.datacentre-nordwest.example";
        for text in ["worker-1", "worker-1.example", "0", long] {
            let id = MinionId::for_host(text).unwrap();
            assert_eq!((id.as_str(), id.is_master()), (text, false));
        }
        for bad in ["", "..", "../x", "Worker", "a b", "a/b", "-a"] {
            let error = bad.parse::<MinionId>().unwrap_err().to_string();
            assert!(error.contains("lower-case letters"), "{error}");
        }
        assert!("master".parse::<MinionId>().unwrap().is_master());
        assert_eq!(MinionId::for_host("master"), Err(IdentityError::Reserved));
    }

    #[test]
    fn only_the_identity_of_a_minion_has_a_minion_id() {
        let identity = |kind| Identity::new("prod", kind, "a").unwrap();
        assert_eq!(
            identity(IdentityKind::Minion).minion(),
            Some("a".parse().unwrap())
        );
        assert_eq!(identity(IdentityKind::Operator).minion(), None);
    }
}
