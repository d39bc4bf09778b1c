//! The seam between the network services and the work behind them.
//!
//! The services (`serve`) authenticate, authorise, audit, enrol and sign; a [`Backend`] compiles,
//! dispatches and orchestrates. Tests of the services have a backend of their own.

#[cfg(test)]
mod alone_tests;
#[cfg(test)]
mod backup_tests;
#[cfg(test)]
mod bundle_tests;
#[cfg(test)]
pub(crate) mod contract;
#[cfg(test)]
mod contract_tests;
#[cfg(test)]
mod etcd_tests;
#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod hand_over_tests;
#[cfg(test)]
mod health_tests;
mod live;
#[cfg(test)]
mod preflight_tests;
#[cfg(test)]
mod promoted_tests;
#[cfg(test)]
mod quorum_tests;
#[cfg(test)]
mod reading_tests;
#[cfg(test)]
mod release_tests;
#[cfg(test)]
mod scripted_minion;
#[cfg(test)]
mod stop_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trust_tests;
#[cfg(test)]
pub(crate) mod wire;

use std::future::Future;
use std::pin::Pin;

use halite_api::{ClusterStatus, JobCancellation, JobList, JobOrRun, MasterMove, RunCancellation};
use halite_proto::ids::{JobId, MinionId};
use halite_proto::v1;
use halite_states::low::Chunk;

use crate::event_stream::EventStream;
use crate::files::ByteStream;
use crate::operator::backup::BackupParts;
use crate::operator::kubeconfig::ApiWay;
use crate::refusal::Refusal;
use crate::standby::isolation::Surroundings;

pub use live::{LiveBackend, start};

/// A boxed answer of a backend.
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>;

/// The calls of operators and minions, after authentication and authorisation.
pub trait Backend: Send + Sync {
    /// Answers when jobs are dispatched and open jobs are checked.
    fn probe(&self) -> BackendFuture<'_, ()>;
    /// `Operator.Status`: the whole document.
    fn status(&self) -> BackendFuture<'_, ClusterStatus>;
    /// `Operator.Show`.
    fn show(&self, request: v1::ShowRequest) -> BackendFuture<'_, v1::Document>;
    /// `Operator.Run`. `operator` is the name in the caller's certificate.
    fn run<'a>(
        &'a self,
        operator: &'a str,
        request: v1::RunRequest,
    ) -> BackendFuture<'a, EventStream>;
    /// `Operator.Orchestrate`.
    fn orchestrate<'a>(
        &'a self,
        operator: &'a str,
        request: v1::OrchestrateRequest,
    ) -> BackendFuture<'a, EventStream>;
    /// `Operator.Backup`: the parts, from the head to the end.
    fn backup(&self) -> BackendFuture<'_, BackupParts>;
    /// The way to the Kubernetes API for `Operator.Kubeconfig`, by the requested server or the best
    /// one. The caller signs.
    fn api_way<'a>(&'a self, requested: &'a str) -> BackendFuture<'a, ApiWay>;
    /// `Operator.ListJobs`.
    fn list_jobs(&self, limit: u32) -> BackendFuture<'_, JobList>;
    /// `Operator.CancelJob`.
    fn cancel_job<'a>(
        &'a self,
        job: &'a JobId,
        operator: &'a str,
        force: bool,
    ) -> BackendFuture<'a, JobCancellation>;
    /// `Operator.CancelRun`.
    fn cancel_run<'a>(
        &'a self,
        run: &'a JobId,
        operator: &'a str,
    ) -> BackendFuture<'a, RunCancellation>;
    /// `Operator.ShowJob`.
    fn show_job<'a>(&'a self, id: &'a JobId) -> BackendFuture<'a, JobOrRun>;
    /// `Operator.AddNode`: validates and writes the node documents (idempotent), and answers with
    /// the warnings about the declaration. The caller makes tokens and commands.
    fn add_node<'a>(
        &'a self,
        operator: &'a str,
        request: &'a v1::AddNodeRequest,
    ) -> BackendFuture<'a, Vec<String>>;
    /// The chunk with this `tag` in this minion's part of `job`, if it requests a certificate
    /// (`x509.certificate`, `kubeconfig.managed`) and the minion has not returned yet; a refusal
    /// otherwise. The caller decides what to sign by the arguments of this chunk and nothing else.
    fn sign_allowed<'a>(
        &'a self,
        minion: &'a MinionId,
        job: &'a JobId,
        tag: &'a str,
    ) -> BackendFuture<'a, Chunk>;
    /// A file by the digest of its content, if this minion's part of `job` refers to it. It is a
    /// stream of pieces, so that a large file of the bundle is never in memory as a whole.
    fn fetch<'a>(
        &'a self,
        minion: &'a MinionId,
        job: &'a JobId,
        sha256: &'a str,
    ) -> BackendFuture<'a, ByteStream>;
    /// Sends a minion what waits for it. The caller has registered its stream and stored the facts
    /// of its hello.
    fn on_connected<'a>(
        &'a self,
        minion: &'a MinionId,
        hello: &'a v1::MinionHello,
    ) -> BackendFuture<'a, ()>;
    /// Takes a message other than the hello. A return is stored before this answers; then the
    /// minion is sent `ReturnStored`, unless it answers a query, of which it keeps no answer.
    fn on_message<'a>(
        &'a self,
        minion: &'a MinionId,
        message: v1::MinionMessage,
    ) -> BackendFuture<'a, ()>;
    /// Notes that the stream of a minion ended.
    fn on_disconnected<'a>(&'a self, minion: &'a MinionId) -> BackendFuture<'a, ()>;
    /// The addresses of the declared masters, the one that acts first; none while they cannot be
    /// read.
    fn masters(&self) -> BackendFuture<'_, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    /// The standbys and minions that the master sees.
    fn surroundings(&self) -> BackendFuture<'_, Surroundings>;
    /// Ends what waits for a minion whose key was deleted or replaced: the host that has the id
    /// next is another one.
    fn on_key_gone<'a>(&'a self, minion: &'a MinionId) -> BackendFuture<'a, ()>;
    /// The names of the declared standbys.
    fn standbys(&self) -> BackendFuture<'_, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    /// `Operator.HandOver`.
    fn hand_over(&self, request: v1::HandOverRequest) -> BackendFuture<'_, MasterMove>;
    /// Work on the cluster that the master does by itself. It has no end.
    fn upkeep(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
    /// Begins no work of the master's own any more, and waits for what is under way. Called before
    /// the master stops.
    fn finish(&self) -> BackendFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
