//! The master's services for a running job: signatures, files and turns.

use std::error::Error;
use std::time::Duration;

use halite_durable::digest::is_sha256;
use halite_proto::ids::JobId;
use halite_proto::tonic::Code;
use halite_proto::transport::Channel;
use halite_proto::v1::minion_client::MinionClient;
use halite_proto::v1::turn_reply::State;
use halite_proto::v1::{FetchRequest, SignRequest, TurnRequest};
use tokio::sync::watch;

use crate::blobs::Store;
use crate::host::certificate::{Signed, Signer};
use crate::host::effect::CertificateRequest;
use crate::host::linux::Blobs;
use crate::host::{HostError, HostFuture, HostResult};
use crate::turns::{Turn, Turns};

/// Longest wait of a job for the link, before a request to the master fails.
const WAIT: Duration = Duration::from_secs(120);
/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(60);
/// Largest file that is held in memory.
const LARGEST: usize = 512 << 20;

/// The master, for one job.
pub struct Remote {
    channel: watch::Receiver<Option<Channel>>,
    job: JobId,
    cache: Store,
}

impl Remote {
    /// `channel` contains the connection while it exists.
    #[must_use]
    pub fn new(channel: watch::Receiver<Option<Channel>>, job: &JobId, cache: Store) -> Self {
        Self {
            channel,
            job: job.clone(),
            cache,
        }
    }

    async fn client(&self) -> HostResult<MinionClient<Channel>> {
        let mut channel = self.channel.clone();
        let unreachable = || {
            HostError::refused(
                "cannot reach the master; this job continues without it as far as it can",
            )
        };
        let found = tokio::time::timeout(WAIT, channel.wait_for(Option::is_some)).await;
        let found = found
            .map_err(|_| unreachable())?
            .map_err(|_| unreachable())?;
        found.clone().map(MinionClient::new).ok_or_else(unreachable)
    }

    async fn fetch(&self, hash: &str) -> HostResult<Vec<u8>> {
        let failed = |e: Box<dyn Error + Send + Sync>| {
            HostError::failed(format!("cannot fetch the file {hash}"), e)
        };
        let request = FetchRequest {
            sha256: hash.to_owned(),
            job: self.job.to_string(),
        };
        let mut client = self.client().await?;
        let stream = tokio::time::timeout(ANSWER, client.fetch(request)).await;
        let mut stream = stream
            .map_err(|e| failed(e.into()))?
            .map_err(|e| failed(e.message().into()))?
            .into_inner();
        let mut content = Vec::new();
        loop {
            let piece = tokio::time::timeout(ANSWER, stream.message()).await;
            let Some(piece) = piece
                .map_err(|e| failed(e.into()))?
                .map_err(|e| failed(e.message().into()))?
            else {
                break;
            };
            content.extend_from_slice(&piece.data);
            if content.len() > LARGEST {
                return Err(failed("it is too large".into()));
            }
        }
        self.cache.put(hash, &content)?;
        Ok(content)
    }
}

impl Blobs for Remote {
    fn blob<'a>(&'a self, sha256: &'a str) -> HostFuture<'a, HostResult<Vec<u8>>> {
        Box::pin(async move {
            if !is_sha256(sha256) {
                return Err(HostError::refused(
                    "a blob is named by 64 lower-case hexadecimal digits",
                ));
            }
            match self.cache.get(sha256)? {
                Some(content) => Ok(content),
                None => self.fetch(sha256).await,
            }
        })
    }
}

impl Signer for Remote {
    fn sign<'a>(
        &'a self,
        request: &'a CertificateRequest,
        csr_pem: &'a str,
    ) -> HostFuture<'a, HostResult<Signed>> {
        Box::pin(async move {
            let failed = |e: Box<dyn Error + Send + Sync>| {
                HostError::failed(format!("{}: the master did not sign", request.cert_path), e)
            };
            let question = SignRequest {
                job: self.job.to_string(),
                tag: request.tag.clone(),
                csr_pem: csr_pem.to_owned(),
            };
            let mut client = self.client().await?;
            let answer = tokio::time::timeout(ANSWER, client.sign(question)).await;
            let answer = answer
                .map_err(|e| failed(e.into()))?
                .map_err(|e| failed(e.message().into()))?
                .into_inner();
            Ok(Signed {
                certificate_pem: answer.certificate_pem,
                ca_pem: answer.ca_pem,
            })
        })
    }
}

impl Turns for Remote {
    fn ask<'a>(&'a self, unit: &'a str) -> HostFuture<'a, HostResult<Turn>> {
        Box::pin(async move {
            let failed = |e: Box<dyn Error + Send + Sync>| {
                HostError::failed(format!("cannot take a turn to restart {unit}"), e)
            };
            let question = TurnRequest {
                job: self.job.to_string(),
                unit: unit.to_owned(),
            };
            let mut client = self.client().await?;
            let answer = tokio::time::timeout(ANSWER, client.take_turn(question)).await;
            let Ok(answer) = answer else {
                return Ok(Turn::Waits("the master does not answer".to_owned()));
            };
            let reply = match answer {
                Ok(reply) => reply.into_inner(),
                Err(status) => match status.code() {
                    // An older master has no budget.
                    Code::Unimplemented => return Ok(Turn::Taken),
                    // The master restarts, or the link broke: it is asked again over the next one.
                    Code::Unavailable
                    | Code::Cancelled
                    | Code::Unknown
                    | Code::Internal
                    | Code::DeadlineExceeded
                    | Code::ResourceExhausted => {
                        return Ok(Turn::Waits(status.message().to_owned()));
                    }
                    _ => return Err(failed(status.message().into())),
                },
            };
            Ok(match reply.state() {
                State::Taken => Turn::Taken,
                State::Waits => Turn::Waits(reply.because),
                State::Unspecified | State::Refused => Turn::Refused(reply.because),
            })
        })
    }
}
