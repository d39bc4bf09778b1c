//! A standby's side of the stream, without the network, which turns the records of a master into
//! its copy.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use halite_errors::chain;
use halite_proto::v1::standby_record::Body;
use halite_proto::v1::{Epoch, FollowStart, StandbyHello, StandbyRecord, TakeOver};

use super::copy::Copy;
use super::disk::{CopyError, make_directory, read_json, write_json};
use super::feed::wire;
use super::take_over::write_order;

/// The number of the highest epoch, which `ctl master list` and earlier versions read.
const NUMBER: &str = "epoch";
/// The highest epoch with its signature.
const EVIDENCE: &str = "evidence.json";

/// The highest epoch of which the standby in this directory has heard; 0 if there is none.
///
/// # Errors
/// The record cannot be read.
pub(super) fn heard_epoch(root: &Path) -> Result<Epoch, CopyError> {
    let number: Option<u64> = read_json(&root.join(NUMBER))?;
    let evidence: Option<Epoch> = read_json(&root.join(EVIDENCE))?;
    let (number, evidence) = (number.unwrap_or_default(), evidence.unwrap_or_default());
    Ok(if number > evidence.number {
        Epoch::unproven(number)
    } else {
        evidence
    })
}

/// Serialises writers: the stream and the queries to other masters both learn of epochs.
static WRITER: Mutex<()> = Mutex::new(());

/// Records an epoch, unless the standby in this directory has heard of a higher one; it is on disk
/// when this returns.
pub(super) fn note_heard(root: &Path, epoch: &Epoch) -> Result<(), CopyError> {
    let _one = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    if epoch.rank() <= heard_epoch(root)?.rank() {
        return Ok(());
    }
    if let Some(evidence) = epoch.evidence() {
        write_json(&root.join(EVIDENCE), &evidence)?;
    }
    write_json(&root.join(NUMBER), &epoch.number)
}

/// A standby.
pub struct Receiver {
    root: PathBuf,
    /// The highest epoch of which this host has heard.
    epoch: Epoch,
    /// The certificates of the CA that signs epochs, PEM.
    ca_pem: String,
    /// The current copy.
    copy: Option<Copy>,
    /// A base that is under way.
    base: Option<Copy>,
    /// The files that this stream has named, until the first state of the master is complete: all
    /// other files are removed then.
    named: Option<BTreeSet<String>>,
    started: bool,
    /// `true` once the master has handed over to this host.
    is_ordered: bool,
    /// The recipient of this host for the secrets of the cluster; empty if it has none.
    secrets: String,
}

impl Receiver {
    /// Opens the data of a standby in a directory. `heard` is an epoch that this host knows from
    /// elsewhere.
    ///
    /// # Errors
    /// A file cannot be read or created.
    pub fn open(root: &Path, heard: u64) -> Result<Self, CopyError> {
        make_directory(root)?;
        let noted = heard_epoch(root)?;
        let copy = Copy::open(root)?;
        let known = heard.max(copy.as_ref().map_or(0, Copy::epoch));
        let epoch = if known > noted.number {
            Epoch::unproven(known)
        } else {
            noted
        };
        Ok(Self {
            root: root.to_owned(),
            epoch,
            ca_pem: String::new(),
            copy,
            base: None,
            named: None,
            started: false,
            is_ordered: false,
            secrets: String::new(),
        })
    }

    /// Sets the recipient to which the master encrypts the secrets for this host.
    #[must_use]
    pub fn with_secrets(self, recipient: String) -> Self {
        Self {
            secrets: recipient,
            ..self
        }
    }

    /// The highest epoch of which this host has heard.
    #[must_use]
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Records an epoch that this host knows from elsewhere: a master with a lower epoch is not
    /// followed.
    pub fn hear(&mut self, epoch: Epoch) {
        if epoch.rank() > self.epoch.rank() {
            self.epoch = epoch;
        }
    }

    /// The copy; `None` before the first base.
    #[must_use]
    pub fn copy(&self) -> Option<&Copy> {
        self.copy.as_ref()
    }

    /// Returns whether the master has handed over to this host, which therefore no longer follows.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// The first message of a stream.
    #[must_use]
    pub fn hello(&self) -> StandbyHello {
        StandbyHello {
            protocol: halite_proto::PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: self.epoch.number,
            position: (self.copy.as_ref()).and_then(|copy| copy.position().as_ref().map(wire)),
            // An epoch without a signature is a number of protocol 1.
            heard: self.epoch.evidence(),
            secrets: self.secrets.clone(),
        }
    }

    /// Starts a stream of a master whose epoch is signed by this CA (PEM); drops the unfinished
    /// data of the previous stream.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn begin(&mut self, ca_pem: &str) -> Result<(), CopyError> {
        ca_pem.clone_into(&mut self.ca_pem);
        self.base = None;
        self.named = None;
        self.started = false;
        self.copy = Copy::open(&self.root)?;
        for damage in self.copy.iter().flat_map(Copy::damage) {
            tracing::error!(
                damage = chain(damage),
                "the copy of the master on this host is damaged: this standby fetches a new one"
            );
        }
        Ok(())
    }

    /// Handles a record; returns its number if everything up to it must be acknowledged.
    ///
    /// # Errors
    /// The record does not follow the existing data, the master has a lower epoch, or a file cannot
    /// be written.
    pub async fn take(&mut self, record: StandbyRecord) -> Result<Option<u64>, CopyError> {
        match record.body {
            Some(Body::Start(start)) => self.start(&start)?,
            _ if !self.started => return Err(CopyError::Unexpected("a record before the start")),
            Some(Body::Base(bytes)) => self.target()?.take_base(&bytes)?,
            Some(Body::Log(piece)) => self.target()?.take_log(&piece).await?,
            Some(Body::File(file)) => {
                self.target()?.take_file(&file)?;
                if let Some(named) = self.named.as_mut().filter(|_| !file.removed) {
                    named.insert(file.path);
                }
            }
            Some(Body::TakeOver(order)) => self.take_order(&order)?,
            None => {}
        }
        if !record.sync {
            return Ok(None);
        }
        self.sync()?;
        Ok(Some(record.number))
    }

    /// Accepts the order to become the master. It takes effect once it is on disk.
    fn take_order(&mut self, order: &TakeOver) -> Result<(), CopyError> {
        if order.epoch <= self.epoch.number {
            return Err(CopyError::Unexpected("a hand-over without a new epoch"));
        }
        self.sync()?;
        write_order(&self.root, order)?;
        self.is_ordered = true;
        Ok(())
    }

    fn start(&mut self, start: &FollowStart) -> Result<(), CopyError> {
        // A master of protocol 1 shows only a number. Its certificate proves that it is a master.
        let epoch = match &start.evidence {
            Some(shown) if !shown.is_proven(&self.ca_pem) => {
                return Err(CopyError::Unproven(shown.number));
            }
            Some(shown) => shown.clone(),
            None => Epoch::unproven(start.epoch),
        };
        if epoch.rank() < self.epoch.rank() {
            return Err(CopyError::Epoch {
                master: epoch.number,
                seen: self.epoch.number,
            });
        }
        if epoch.rank() > self.epoch.rank() {
            note_heard(&self.root, &epoch)?;
            self.epoch = epoch;
        }
        let number = self.epoch.number;
        if start.base {
            self.base = Some(Copy::begin(&self.root, number)?);
        } else if let Some(copy) = &mut self.copy {
            copy.set_epoch(number)?;
        }
        self.named = Some(BTreeSet::new());
        self.started = true;
        Ok(())
    }

    fn target(&mut self) -> Result<&mut Copy, CopyError> {
        let target = self.base.as_mut().or(self.copy.as_mut());
        target.ok_or(CopyError::Unexpected("a continuation of a missing copy"))
    }

    fn sync(&mut self) -> Result<(), CopyError> {
        if let Some(named) = self.named.take() {
            let copy = self.target()?;
            let gone: Vec<String> = copy
                .files()
                .filter(|(place, _, _)| !named.contains(*place))
                .map(|(place, _, _)| place.to_owned())
                .collect();
            for place in gone {
                copy.remove_file(&place);
            }
        }
        self.target()?.sync()?;
        if let Some(base) = self.base.take() {
            base.remove_others()?;
            self.copy = Some(base);
        }
        Ok(())
    }
}
