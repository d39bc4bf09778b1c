//! The stages of a CA's rotation (docs/decisions/0102), and of that of the key pair of service
//! accounts.
//!
//! The record `ca/NAME.rotation.json` is one of the saved files, in a directory that a standby's
//! feed watches: a standby has each stage before the step that takes it has ended.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use halite_pillar::ca_rotation::{CaRotation, ROTATED_CAS, RotationStage, SERVICE_ACCOUNTS};
use halite_proto::pki::PrivateKey;
use halite_store::Millis;
use tokio::sync::watch;

use super::{CaError, Cas, ContentError, HALITE, Loaded, SITE, create, files};

/// The file of the record.
pub(super) fn path(state_dir: &Path, name: &str) -> PathBuf {
    state_dir.join(CaRotation::path(name))
}

/// Reads the record; `None` without a rotation.
pub(super) fn read(state_dir: &Path, name: &str) -> Result<Option<CaRotation>, CaError> {
    let path = path(state_dir, name);
    let text = match files::read(&path) {
        Ok(text) => text,
        Err(CaError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let record = serde_json::from_str(&text);
    record
        .map(Some)
        .map_err(|_| CaError::unusable(path)(ContentError::NotRotation))
}

/// A rotation that has begun and not ended, for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// Its stage.
    pub stage: RotationStage,
    /// The time at which the stage began; 0 if it is not known.
    pub began: Millis,
    /// `true` if the old one left at once.
    pub compromised: bool,
}

/// The rotations of a CA, or of the key pair of service accounts: the one that has begun, and those
/// that have ended.
#[derive(Debug, Default)]
pub(super) struct Rotations {
    unfinished: Option<Unfinished>,
    /// The certificates or public keys (PEM) that hosts are to lose or have lost.
    dropped: Vec<String>,
    /// The number of the present stage.
    number: u64,
}

impl Rotations {
    pub(super) fn read(state_dir: &Path, name: &str) -> Result<Self, CaError> {
        let mut dropped = read_dropped(state_dir, name)?;
        let Some(record) = read(state_dir, name)? else {
            return Ok(Self {
                unfinished: None,
                number: CaRotation::number_after(dropped.len() as u64),
                dropped,
            });
        };
        if record.stage == RotationStage::Only {
            // The end of the rotation may have replaced it, and then it is in the list.
            let old = files::read(&pair(state_dir, name)[0]).ok();
            dropped.extend(old.filter(|old| old.trim() != record.certificate.trim()));
        }
        Ok(Self {
            unfinished: Some(Unfinished {
                stage: record.stage,
                began: record.began,
                compromised: record.compromised,
            }),
            dropped,
            number: record.number(),
        })
    }
}

/// Reads the list of what ended rotations have replaced.
fn read_dropped(state_dir: &Path, name: &str) -> Result<Vec<String>, CaError> {
    let path = state_dir.join(CaRotation::dropped_path(name));
    match files::read(&path) {
        Ok(text) => serde_json::from_str(&text)
            .map_err(|_| CaError::unusable(path)(ContentError::NotDropped)),
        Err(CaError::Missing { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The files of a CA, or of the key pair of service accounts.
fn pair(state_dir: &Path, name: &str) -> [PathBuf; 2] {
    match name {
        SERVICE_ACCOUNTS => [state_dir.join("sa.pub"), state_dir.join("sa.key")],
        name => files::pair(&state_dir.join("ca"), name),
    }
}

fn write(state_dir: &Path, name: &str, record: &CaRotation) -> Result<(), CaError> {
    // Texts always convert to JSON.
    let text = serde_json::to_string(record).unwrap_or_default();
    files::write(&path(state_dir, name), &text, 0o600)
}

impl Cas {
    /// A number that grows with each stage that begins or ends.
    #[must_use]
    pub fn version(&self) -> usize {
        self.all().count()
    }

    /// Changes with each stage that begins or ends.
    #[must_use]
    pub fn stages(&self) -> watch::Receiver<usize> {
        self.stages.subscribe()
    }

    /// The stage of the rotation of a CA, or of `sa`; `None` without a rotation.
    #[must_use]
    pub fn rotation(&self, name: &str) -> Option<RotationStage> {
        Some(self.unfinished(name)?.stage)
    }

    /// The rotation of a CA, or of `sa`, that has begun and not ended.
    #[must_use]
    pub fn unfinished(&self, name: &str) -> Option<Unfinished> {
        self.present().rotations.get(name)?.unfinished
    }

    /// The number of the present stage among all stages of a CA, or of `sa`: 0 before its first
    /// rotation. It never gets smaller.
    #[must_use]
    pub fn stage_number(&self, name: &str) -> u64 {
        let rotations = self.present().rotations.get(name);
        rotations.map_or(0, |rotations| rotations.number)
    }

    /// The certificate that signs and the other one (PEM), while two are trusted; the public keys
    /// with `sa`.
    #[must_use]
    pub fn two(&self, name: &str) -> Option<[&str; 2]> {
        let present = self.present();
        if name == SERVICE_ACCOUNTS {
            let [signer, other] = present.sa.two.as_ref()?;
            return Some([signer, other]);
        }
        let ca = present.cas.get(name)?;
        let other = ca.rotation.as_ref()?.other.as_deref()?;
        Some([&ca.certificate_pem, other])
    }

    /// The certificates (PEM) that hosts are to lose in the last stage of a rotation, or have lost;
    /// the public keys with `sa`.
    pub fn dropped(&self, name: &str) -> impl Iterator<Item = &str> {
        let rotations = self.present().rotations.get(name);
        let dropped = rotations.into_iter().flat_map(|one| &one.dropped);
        dropped.map(String::as_str)
    }

    /// The time from which on all hosts have had the present stage of a rotation. The first call
    /// after the stage began records it; `None` without a rotation.
    ///
    /// # Errors
    /// The record cannot be read or written.
    pub fn stage_reached(&self, name: &str, now: Millis) -> Result<Option<Millis>, CaError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut record) = read(&self.state_dir, name)? else {
            return Ok(None);
        };
        if record.reached.is_none() {
            record.reached = Some(now);
            write(&self.state_dir, name, &record)?;
        }
        Ok(record.reached)
    }

    /// The trusted certificates of a CA, one PEM text each, the signer first.
    ///
    /// # Errors
    /// No CA has this name.
    pub fn certificates(&self, name: &str) -> Result<Vec<&str>, CaError> {
        let ca = self.ca(name)?;
        let two = self.two(name).map(Vec::from);
        Ok(two.unwrap_or_else(|| vec![&ca.certificate_pem]))
    }

    /// Begins a stage of a rotation. The first one takes the CA that an operator has imported, or
    /// makes a new one, or a key pair of service accounts: `Trust`, or `Only` if the old one is
    /// compromised. Returns `false` if that stage, or a later one, had begun already. From now on
    /// the new stage applies to all that this signs and returns.
    ///
    /// # Errors
    /// The CA cannot be rotated, `Sign` without a rotation, a stage before `Only` after a rotation
    /// that began with it, an imported CA cannot be used any more, a request waits for its
    /// certificate, or a file cannot be written.
    pub fn begin_stage(
        &self,
        name: &str,
        stage: RotationStage,
        cluster: &str,
        now: Millis,
    ) -> Result<bool, CaError> {
        if !ROTATED_CAS.contains(&name) && name != SERVICE_ACCOUNTS {
            return Err(CaError::NotRotated(name.to_owned()));
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let record = match read(&self.state_dir, name)? {
            // Its steps would reach one host after the other, and hosts with different CAs do not
            // reach each other.
            Some(record) if record.compromised && stage != RotationStage::Only => {
                return Err(CaError::Compromised(name.to_owned()));
            }
            Some(record) if record.stage >= stage => {
                self.follow(name, Some(record.stage))?;
                self.forget_taken(name)?;
                return Ok(false);
            }
            Some(record) => CaRotation {
                compromised: (record.stage, stage) == (RotationStage::Trust, RotationStage::Only),
                stage,
                began: now,
                reached: None,
                ..record
            },
            None if stage == RotationStage::Sign => {
                return Err(CaError::NoRotation {
                    name: name.to_owned(),
                    stage: stage.name(),
                });
            }
            None => self.new_pair(name, stage, cluster, now)?,
        };
        write(&self.state_dir, name, &record)?;
        self.reload()?;
        self.forget_taken(name)?;
        Ok(true)
    }

    /// The first stage, with the CA that an operator has imported, or a new one.
    fn new_pair(
        &self,
        name: &str,
        stage: RotationStage,
        cluster: &str,
        now: Millis,
    ) -> Result<CaRotation, CaError> {
        let (certificate, key, cross) = if name == SERVICE_ACCOUNTS {
            let key = PrivateKey::generate()?;
            (key.public_pem(), key, None)
        } else {
            let older = self.ca(name)?;
            let (certificate, key, imported) = match self.imported(name, now)? {
                Some(taken) => (taken.certificate, taken.key, Some(taken.name)),
                None => {
                    let key = PrivateKey::generate()?;
                    (create::self_signed(name, cluster, &key, now)?, key, None)
                }
            };
            // No client of the cluster accepts a CA that one with the path length 0 has signed.
            // Halite's programs do not check the path length of a CA that they trust.
            let is_accepted = matches!(name, HALITE | SITE) || older.may_sign_cas();
            let cross = (stage == RotationStage::Trust && is_accepted)
                .then(|| create::cross_signed(older, cluster, &key, imported.as_ref(), now))
                .transpose()?;
            (certificate, key, cross)
        };
        Ok(CaRotation {
            stage,
            certificate,
            key: key.to_pem(),
            cross,
            compromised: stage == RotationStage::Only,
            earlier: read_dropped(&self.state_dir, name)?.len() as u64,
            began: now,
            reached: None,
        })
    }

    /// Ends a rotation: the new files replace the old ones. Returns `false` if there is none.
    ///
    /// # Errors
    /// The old one is still trusted, or a file cannot be written.
    pub fn end_rotation(&self, name: &str) -> Result<bool, CaError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(record) = read(&self.state_dir, name)? else {
            self.follow(name, None)?;
            return Ok(false);
        };
        if record.stage != RotationStage::Only {
            return Err(CaError::StillTrusted(name.to_owned()));
        }
        let [certificate, key] = pair(&self.state_dir, name);
        let mut dropped = read_dropped(&self.state_dir, name)?;
        if dropped.len() as u64 <= record.earlier {
            dropped.push(files::read(&certificate)?);
            // Texts always convert to JSON.
            let text = serde_json::to_string(&dropped).unwrap_or_default();
            let path = self.state_dir.join(CaRotation::dropped_path(name));
            files::write(&path, &text, 0o600)?;
        }
        // Until the record is removed, both files are ignored.
        files::write(&certificate, &record.certificate, 0o600)?;
        files::write(&key, &record.key, 0o600)?;
        files::remove(&path(&self.state_dir, name))?;
        self.reload()?;
        Ok(true)
    }

    /// Uses the present files, if an attempt before this one ended before it did.
    fn follow(&self, name: &str, stage: Option<RotationStage>) -> Result<(), CaError> {
        match self.rotation(name) == stage {
            true => Ok(()),
            false => self.reload(),
        }
    }

    /// Uses the present files from now on.
    fn reload(&self) -> Result<(), CaError> {
        let loaded = Box::new(Loaded::read(&self.state_dir)?);
        // Only one thread appends, the one that holds the lock.
        let _appended = self.present().next.set(loaded);
        self.stages.send_replace(self.version());
        Ok(())
    }
}
