//! `halite.ca_identities`: the rotation of the CA of identities waits for minions and operators
//! (docs/decisions/0117).

use std::time::Duration;

use halite_core::ca::{CaError, Cas, HALITE};
use halite_core::hello::hello;
use halite_errors::chain;
use halite_etcd::Pace as _;
use halite_fleet::jobs::target;
use halite_fleet::keys;
use halite_pillar::ca_rotation::RotationStage;
use halite_proto::pki;
use halite_proto::v1::{MasterMessage, MinionTrust, master_message};
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use serde_json::Map;

use super::pace::StepPace;
use super::step_runner::{StepOutcome, StepRunner, failed, timeout};

/// The pause between two looks at all holders.
const PAUSE: Duration = Duration::from_millis(500);

/// The holders of identities for which a step waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holders {
    /// All accepted minions.
    Hosts,
    /// The connected ones; the others lose access.
    Connected,
    /// The operators whose keys are on their own machines.
    Operators,
}

impl Holders {
    fn named(name: &str) -> Result<Self, Failure> {
        match name {
            "hosts" => Ok(Self::Hosts),
            "connected" => Ok(Self::Connected),
            "operators" => Ok(Self::Operators),
            other => Err(Failure::new(format!(
                "invalid value {other:?} of `of`; it is hosts, connected or operators"
            ))),
        }
    }

    /// The state for which the step waits.
    fn until(self) -> &'static str {
        match self {
            Self::Hosts => "each host follows this stage",
            Self::Connected => "each connected host follows this stage",
            Self::Operators => "each operator has a certificate of the new CA",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Hosts | Self::Connected => {
                "switch them on; enrol a host again that has missed a stage (`ctl token create`, then `halite-minion enrol --force` \
                 there); remove one that is lost for good (`ctl node remove`)"
            }
            Self::Operators => {
                "each of them runs any `ctl` command, such as `ctl status`, with a `ctl` of this version and an identity file that it \
                 can write; or revoke them with `ctl operator revoke`"
            }
        }
    }
}

/// The CAs that each minion should trust in this stage, and the one that should have signed its
/// certificate.
fn wanted(cas: &Cas) -> Result<MinionTrust, CaError> {
    let trusted = pki::certificates(cas.certificate_pem(HALITE)?)?;
    let cas: Vec<String> = trusted.iter().map(|ca| pki::sha256_hex(ca)).collect();
    Ok(MinionTrust {
        signed_by: cas.first().cloned().unwrap_or_default(),
        cas,
    })
}

/// The reason why a connected minion does not follow the stage; `None` if it does.
fn reason(found: Option<&MinionTrust>, wanted: &MinionTrust) -> Option<&'static str> {
    match found {
        None => Some("its minion is of an earlier version: a highstate of the host updates it"),
        Some(found) if found.cas != wanted.cas => {
            Some("it does not trust the CAs of this stage yet")
        }
        Some(found) if found.signed_by != wanted.signed_by => {
            Some("the CA that signs has not signed its certificate yet")
        }
        Some(_) => None,
    }
}

impl StepRunner<'_> {
    /// Waits until all holders follow the stage of the CA of identities.
    pub(super) async fn ca_identities(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let args = Args::new(chunk);
        let (stage, of) = (args.required("stage")?, args.required("of")?);
        let (holders, limit) = (Holders::named(&of)?, timeout(chunk)?);
        let until = holders.until();
        if self.run.test {
            return Ok((Map::new(), format!("a real run waits until {until}")));
        }
        // A run before this one has waited.
        if self.jobs.app().cas.rotation(HALITE) != RotationStage::named(&stage) {
            let comment = format!("{HALITE} already has a later stage");
            return Ok((Map::new(), comment));
        }
        let remedy = holders.remedy();
        let pace = StepPace::new(self.recorder, index, PAUSE).remedy(remedy);
        if holders == Holders::Connected {
            // After a start of the master, none is connected yet.
            let all = target::accepted(self.jobs.app()).await.map_err(failed)?;
            let _looked = self.reachable(all).await;
        }
        loop {
            let behind = match holders {
                Holders::Operators => {
                    let all = keys::with_another_ca(self.jobs.app());
                    all.await.map_err(failed)?
                }
                Holders::Hosts => self.hosts_behind(false).await?,
                Holders::Connected => self.hosts_behind(true).await?,
            };
            if behind.is_empty() {
                return Ok((Map::new(), until.to_owned()));
            }
            let behind = behind.join(", ");
            if pace.now() < limit {
                let because = format!("these do not yet: {behind}");
                pace.say(until.to_owned(), because, limit).await;
                pace.pause().await;
                continue;
            }
            if holders == Holders::Connected {
                let comment = format!("these have to enrol again: {behind}");
                return Ok((Map::new(), comment));
            }
            let waited = limit.as_secs();
            return Err(Failure::new(format!(
                "these would lose access with the old CA: {behind} (waited {waited} s); {remedy}; then run the command again: it \
                 continues here"
            )));
        }
    }

    /// The accepted minions that do not follow the present stage, with the reason. The connected
    /// ones get the CAs again; each connects again once it has recorded them.
    async fn hosts_behind(&self, only_connected: bool) -> Result<Vec<String>, Failure> {
        let app = self.jobs.app();
        let wanted = wanted(&app.cas).map_err(|error| Failure::new(chain(&error)))?;
        let mut behind = Vec::new();
        for minion in target::accepted(app).await.map_err(failed)? {
            if !app.connections.is_connected(&minion) {
                if !only_connected {
                    behind.push(format!("{minion} (not connected)"));
                }
                continue;
            }
            let found = app.connections.trust(&minion);
            let Some(reason) = reason(found.as_ref(), &wanted) else {
                continue;
            };
            let message = MasterMessage {
                body: Some(master_message::Body::Hello(hello(app, Vec::new()))),
            };
            // One that has just left connects again, and gets them then.
            let _sent = app.connections.send(&minion, message).await;
            behind.push(format!("{minion} ({reason})"));
        }
        Ok(behind)
    }
}
