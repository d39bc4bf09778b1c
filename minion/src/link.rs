//! The link: one stream to one master at a time. The minion connects, and reconnects forever.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use halite_errors::chain;
use halite_proto::backoff::{Backoff, jittered};
use halite_proto::ids::{JobId, JobIdError};
use halite_proto::pki::{Inspected, PkiError, PrivateKey};
use halite_proto::transport::{Channel, MasterAlert, connect, connect_among};
use halite_proto::v1::minion_client::MinionClient;
use halite_proto::v1::minion_message::Body;
use halite_proto::v1::{
    JobList, MasterHello, MinionHello, MinionMessage, RenewRequest, master_message,
};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use crate::config::Config;
use crate::host::HostError;
use crate::host::linux::files;
use crate::identity::{Identity, IdentityError};
use crate::jobs::Jobs;
use crate::masters::{Masters, NotObeyed};
use crate::{clock, enrol, update};

/// First and longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// A session of at least this length was stable: the pause starts again at its shortest.
const STABLE: Duration = Duration::from_secs(30);
/// Longest wait for the master's hello.
const HELLO: Duration = Duration::from_secs(15);
/// Interval between two checks of the age of the minion's certificate.
const RENEWAL: Duration = Duration::from_secs(6 * 3600);
/// The interval after a failed renewal.
const RENEWAL_RETRY: Duration = Duration::from_secs(30);
/// Longest wait for a renewed certificate, during which nothing else is read from the master.
const RENEW: Duration = Duration::from_secs(15);
/// Interval between two checks for reports of scheduled work, which `ctl status` shows.
const REPORTS: Duration = Duration::from_secs(30);
/// Messages that may wait for the network; further ones wait in the jobs' own queue.
const QUEUE: usize = 64;
/// Largest message: a low state contains file contents.
const LARGEST: usize = 64 << 20;

/// Maintains the link until `stopping` becomes true. `channel` contains the connection while it
/// exists.
pub async fn maintain(
    config: Config,
    jobs: Arc<Jobs>,
    mut inbox: mpsc::UnboundedReceiver<Body>,
    channel: watch::Sender<Option<Channel>>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut masters = Masters::load(&config);
    let mut backoff = Backoff::new(PAUSE.0, PAUSE.1);
    let mut next = 0;
    let mut logged: BTreeMap<String, String> = BTreeMap::new();
    // The master that has refused the CA of the certificate.
    let mut refused_by: Option<String> = None;
    loop {
        let Some(master) = masters.addresses().get(next).cloned() else {
            return;
        };
        let began = tokio::time::Instant::now();
        let enrols_again = refused_by.as_ref() == Some(&master);
        let mut session = Session {
            config: &config,
            jobs: &jobs,
            inbox: &mut inbox,
            channel: &channel,
            enrols_again,
        };
        let end = tokio::select! {
            end = session.run(&master, &mut masters) => end,
            _ = stopping.wait_for(|stop| *stop) => break,
        };
        channel.send_replace(None);
        let was_stable = began.elapsed() > STABLE;
        if was_stable {
            logged.clear();
        }
        if end.is_of_another_ca() {
            refused_by = Some(master.clone());
        } else if enrols_again {
            refused_by = None;
        }
        // A repeated reason is logged once; a standby only means that its host has no master.
        let reason = chain(&end);
        let is_standby = matches!(&end, End::Connect(error) if error.is_of_a_standby());
        if matches!(end, End::OtherIdentity) {
            tracing::info!(master, reason, "connects again");
        } else if is_standby || logged.get(&master) == Some(&reason) {
            tracing::debug!(master, reason, "no link");
        } else {
            tracing::warn!(master, reason, "no link; trying again");
            logged.insert(master.clone(), reason);
        }
        let wait;
        let is_there = was_stable || matches!(end, End::OtherIdentity);
        (next, wait) = after(&masters.addresses(), &master, is_there);
        let pause = match wait {
            Wait::Restart => {
                backoff.reset();
                jittered(PAUSE.0)
            }
            Wait::Round => backoff.pause(),
            Wait::Next => jittered(PAUSE.0),
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stopping.wait_for(|stop| *stop) => break,
        }
    }
    channel.send_replace(None);
}

/// The kind of pause before the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The master answered for a while: it may only be restarting.
    Restart,
    /// Another master is next in this round.
    Next,
    /// All masters were tried.
    Round,
}

/// The index of the address to try after this one, and the kind of pause before it.
fn after(addresses: &[String], tried: &str, was_stable: bool) -> (usize, Wait) {
    let place = addresses.iter().position(|address| address == tried);
    if was_stable {
        return (place.unwrap_or(0), Wait::Restart);
    }
    match place.map(|place| place + 1) {
        Some(next) if next < addresses.len() => (next, Wait::Next),
        _ => (0, Wait::Round),
    }
}

/// The end of a session.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Connect(#[from] halite_proto::transport::ConnectError),
    #[error(transparent)]
    Enrol(#[from] enrol::EnrolError),
    #[error("{0}")]
    Call(String),
    #[error("the master refused: {0}")]
    Refused(String),
    #[error(transparent)]
    NotObeyed(#[from] NotObeyed),
    #[error("the master ended the stream")]
    Closed,
    #[error("the CAs of identities, or the CA of this host's certificate, have changed")]
    OtherIdentity,
}

impl End {
    /// Returns whether the master does not trust the CA of this host's certificate: the CA was
    /// replaced while the host was off.
    fn is_of_another_ca(&self) -> bool {
        matches!(self, Self::Call(reason) if MasterAlert::is_of_another_ca(reason))
    }
}

impl From<halite_proto::tonic::Status> for End {
    fn from(status: halite_proto::tonic::Status) -> Self {
        Self::Call(status.message().to_owned())
    }
}

struct Session<'a> {
    config: &'a Config,
    jobs: &'a Arc<Jobs>,
    inbox: &'a mut mpsc::UnboundedReceiver<Body>,
    channel: &'a watch::Sender<Option<Channel>>,
    /// `true` if the master has refused the CA of the certificate.
    enrols_again: bool,
}

impl Session<'_> {
    /// Decides about a master by its hello, and trusts the CAs of identities that it names. A new
    /// session shows the master what this host trusts.
    fn obey(
        &self,
        masters: &mut Masters,
        identity: &Identity,
        hello: MasterHello,
    ) -> Result<(), End> {
        let shown = hello.evidence.unwrap_or_default();
        // The master has presented a certificate of a trusted CA. Its epoch may be signed by the
        // next one already, of which this host first hears now.
        let trusted = format!("{}\n{}", identity.ca_pem, hello.ca_pem);
        masters.accept(&shown, &trusted, hello.masters)?;
        if hello.ca_pem.is_empty() {
            return Ok(());
        }
        match identity.trust_from_now(self.config, &hello.ca_pem) {
            Ok(true) => Err(End::OtherIdentity),
            Ok(false) => Ok(()),
            Err(error) => {
                // A full disk must not keep the minion from the master that could help.
                tracing::error!(
                    error = chain(&error),
                    "cannot record the CAs of identities: their rotation waits for this host"
                );
                Ok(())
            }
        }
    }

    async fn run(&mut self, master: &str, masters: &mut Masters) -> End {
        match self.exchange(master, masters).await {
            Ok(()) => End::Closed,
            Err(end) => end,
        }
    }

    async fn exchange(&mut self, master: &str, masters: &mut Masters) -> Result<(), End> {
        let mut identity = Identity::load(self.config)?;
        let has_ended = identity.has_ended(clock::seconds());
        if has_ended || self.enrols_again {
            // A master would end the connection before it knows the caller.
            let why = match has_ended {
                true => "the certificate has expired",
                false => "the CA of the certificate was replaced",
            };
            tracing::warn!("{why}: requesting another one with the same key");
            identity = enrol::again(self.config, master, &identity).await?;
        }
        let (ca, own) = (&identity.ca_pem, Some(&identity.client));
        let channel = if masters.addresses().len() > 1 {
            connect_among(master, ca, own).await?
        } else {
            connect(master, ca, own).await?
        };
        let mut client = MinionClient::new(channel.clone()).max_decoding_message_size(LARGEST);
        let (sender, receiver) = mpsc::channel(QUEUE);
        let grains_json = self.jobs.grains().await.to_string();
        // Messages from the time without a link are either journaled or outdated.
        while self.inbox.try_recv().is_ok() {}
        let names = |jobs: Vec<JobId>| jobs.into_iter().map(String::from).collect();
        let running_jobs = names(self.jobs.running());
        let unstored = JobList {
            jobs: names(self.jobs.unstored()),
        };
        let hello = MinionHello {
            protocol: halite_proto::PROTOCOL,
            version: crate::VERSION.to_owned(),
            grains_json,
            running_jobs,
            unstored: Some(unstored),
            epoch: Some(masters.epoch()),
            obeyed: masters.obeyed(),
            trust: Some(identity.trust()),
        };
        let send = async |body: Body| {
            let message = MinionMessage { body: Some(body) };
            sender.send(message).await.map_err(|_| End::Closed)
        };
        send(Body::Hello(hello)).await?;
        let stream =
            tokio::time::timeout(HELLO, client.connect(ReceiverStream::new(receiver))).await;
        let mut stream = stream
            .map_err(|_| End::Call("no hello in time".to_owned()))??
            .into_inner();
        let first = tokio::time::timeout(HELLO, stream.message()).await;
        let first = first.map_err(|_| End::Call("no hello in time".to_owned()))??;
        let Some(master_message::Body::Hello(hello)) = first.and_then(|m| m.body) else {
            return Err(End::Call(
                "the master's first message is not a hello".to_owned(),
            ));
        };
        if !hello.refused.is_empty() {
            return Err(End::Refused(hello.refused));
        }
        let version = hello.version.clone();
        self.obey(masters, &identity, hello)?;
        tracing::info!(master, version, cluster = identity.cluster, "linked");
        if let Err(error) = update::note_linked() {
            tracing::warn!(
                error = chain(&error),
                "cannot record that the master was reached"
            );
        }
        self.channel.send_replace(Some(channel.clone()));
        self.jobs.resend_answers();
        let mut renewal = tokio::time::interval(RENEWAL);
        let mut reports = tokio::time::interval(REPORTS);
        loop {
            tokio::select! {
                message = stream.message() => match message?.map(|message| message.body) {
                    // The declared masters or the CAs of identities have changed.
                    Some(Some(master_message::Body::Hello(hello))) => {
                        self.obey(masters, &identity, hello)?;
                    }
                    Some(body) => self.handle(body),
                    None => return Ok(()),
                },
                Some(body) = self.inbox.recv() => send(body).await?,
                _ = renewal.tick() => match renew(self.config, &channel).await {
                    Renewal::Done { of_other_ca: true } => return Err(End::OtherIdentity),
                    Renewal::Done { of_other_ca: false } | Renewal::NotDue => {}
                    Renewal::Failed => renewal.reset_after(RENEWAL_RETRY),
                },
                _ = reports.tick() => {
                    // Messages do not wait for the tools that grains come from.
                    let jobs = Arc::clone(self.jobs);
                    tokio::spawn(async move { jobs.check_reports().await });
                }
            }
        }
    }

    fn handle(&self, body: Option<master_message::Body>) {
        match body {
            Some(master_message::Body::Job(job)) => self.jobs.accept(job),
            Some(master_message::Body::Stored(stored)) => {
                if let Some(job) = named(&stored.job) {
                    self.jobs.stored(&job);
                }
            }
            Some(master_message::Body::Cancel(cancel)) => {
                if let Some(job) = named(&cancel.job) {
                    self.jobs.cancel(&job, &cancel.reason, cancel.force);
                }
            }
            Some(master_message::Body::Hello(_)) | None => {}
        }
    }
}

/// The job that a message names; `None` for a malformed id, which belongs to no job of this minion.
fn named(job: &str) -> Option<JobId> {
    job.parse()
        .inspect_err(|error: &JobIdError| tracing::warn!(%error, "ignored a message of the master"))
        .ok()
}

/// The result of a check of the minion's certificate.
enum Renewal {
    /// The certificate stays.
    NotDue,
    /// There is another one.
    Done {
        /// `true` if another CA had signed the previous one.
        of_other_ca: bool,
    },
    /// It is tried again.
    Failed,
}

/// Has the minion's certificate renewed if it is old, or not of the CA that signs.
async fn renew(config: &Config, channel: &Channel) -> Renewal {
    let identity = match Identity::load(config) {
        Ok(identity) => identity,
        Err(error) => {
            tracing::error!(error = chain(&error), "cannot read the identity");
            return Renewal::Failed;
        }
    };
    let of_other_ca = !identity.is_of_signer();
    if !of_other_ca && !identity.is_old(clock::seconds()) {
        return Renewal::NotDue;
    }
    match request_renewal(config, &identity, channel).await {
        Ok(()) => {
            tracing::info!("the certificate was renewed");
            // Unless the CAs on the disk are not those of the master.
            let is_now = Identity::load(config).is_ok_and(|now| now.is_of_signer());
            Renewal::Done {
                of_other_ca: of_other_ca && is_now,
            }
        }
        Err(error) => {
            tracing::warn!(
                error = chain(&error),
                "cannot renew the certificate; trying again later"
            );
            Renewal::Failed
        }
    }
}

/// The certificate was not renewed.
#[derive(Debug, thiserror::Error)]
enum RenewalError {
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("the master refused: {0}")]
    Refused(String),
    #[error("the master did not answer in time")]
    Late,
    #[error("the new certificate is not for this minion's key")]
    OtherKey,
    #[error(transparent)]
    File(#[from] HostError),
}

async fn request_renewal(
    config: &Config,
    identity: &Identity,
    channel: &Channel,
) -> Result<(), RenewalError> {
    let key = PrivateKey::from_pem(&identity.client.key_pem)?;
    let csr_pem = key.request(&identity.id)?;
    let mut client = MinionClient::new(channel.clone());
    let reply = tokio::time::timeout(RENEW, client.renew(RenewRequest { csr_pem })).await;
    let pem = reply
        .map_err(|_| RenewalError::Late)?
        .map_err(|status| RenewalError::Refused(status.message().to_owned()))?
        .into_inner()
        .certificate_pem;
    let found = Inspected::from_pem(&pem)?;
    if found.fingerprint != key.fingerprint() {
        return Err(RenewalError::OtherKey);
    }
    files::write(
        &config.certificate(),
        pem.as_bytes(),
        files::Owner::default(),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_master_has_its_turn_before_a_longer_pause() {
        let all = ["a:1".to_owned(), "b:1".to_owned()];
        assert_eq!(after(&all, "a:1", false), (1, Wait::Next));
        assert_eq!(after(&all, "b:1", false), (0, Wait::Round));
        assert_eq!(after(&all, "b:1", true), (1, Wait::Restart));
        // One that is no longer a master.
        assert_eq!(after(&all, "c:1", false), (0, Wait::Round));
        assert_eq!(after(&all[..1], "a:1", false), (0, Wait::Round));
    }
}
