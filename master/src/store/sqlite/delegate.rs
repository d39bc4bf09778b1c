//! The trait's methods, each handed on to the module that knows the table.
//!
//! An implementation of a trait is one block in one file, and the queries are in a file for each
//! group of tables. The futures are boxed because the master holds the store as `dyn Store`: a
//! store of several masters will implement the same trait.

use std::path::PathBuf;
use std::sync::Arc;

use halite_proto::ids::{JobId, MinionId};

use super::SqliteStore;
use super::backup::backup_path;
use super::row_changes::Change;
use crate::store::log::Log;
use crate::store::records::{
    Answer, Audit, AuditFilter, Certificate, Event, Facts, Job, JobRow, Key, MinionBundle,
    Operator, Part, Revocation, Run, RunStatus, Step, Token,
};
use crate::store::{Created, Millis, Store, StoreFuture};

/// The return code of an interrupted job.
const INTERRUPTED: i32 = 2;

impl Store for SqliteStore {
    fn epoch(&self) -> u64 {
        self.epoch.unsigned_abs()
    }

    fn holder(&self) -> &str {
        &self.holder
    }

    fn log(&self) -> Arc<Log> {
        Arc::clone(&self.log)
    }

    fn copy(&self) -> StoreFuture<'_, PathBuf> {
        Box::pin(async {
            self.write_backup().await?;
            Ok(backup_path(&self.path))
        })
    }

    fn probe(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.probe_both())
    }

    fn key<'a>(&'a self, id: &'a MinionId) -> StoreFuture<'a, Option<Key>> {
        Box::pin(self.get_key(id))
    }

    fn keys(&self) -> StoreFuture<'_, Vec<Key>> {
        Box::pin(self.get_keys())
    }

    fn put_key<'a>(&'a self, key: &'a Key) -> StoreFuture<'a, ()> {
        Box::pin(self.ended(self.set_key(key)))
    }

    fn put_key_with_token<'a>(
        &'a self,
        key: &'a Key,
        token: &'a str,
        now: Millis,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.ended(self.set_key_with_token(key, token, now)))
    }

    fn delete_key<'a>(&'a self, id: &'a MinionId) -> StoreFuture<'a, bool> {
        Box::pin(self.ended(self.remove_key(id)))
    }

    fn put_token<'a>(&'a self, token: &'a Token) -> StoreFuture<'a, ()> {
        Box::pin(self.ended(self.set_token(token)))
    }

    fn token<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Token>> {
        Box::pin(self.get_token(id))
    }

    fn tokens(&self) -> StoreFuture<'_, Vec<Token>> {
        Box::pin(self.get_tokens())
    }

    fn delete_token<'a>(&'a self, id: &'a str) -> StoreFuture<'a, bool> {
        Box::pin(self.ended(self.remove_token(id)))
    }

    fn take_tokens<'a>(
        &'a self,
        minion: &'a MinionId,
        token: Option<&'a str>,
    ) -> StoreFuture<'a, Vec<String>> {
        Box::pin(self.ended(self.remove_tokens(minion, token)))
    }

    fn is_token_newer<'a>(&'a self, token: &'a str, minion: &'a MinionId) -> StoreFuture<'a, bool> {
        Box::pin(self.follows_key(token, minion))
    }

    fn is_key_newer<'a>(
        &'a self,
        minion: &'a MinionId,
        operator: &'a str,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.follows_revocation(minion, operator))
    }

    fn operators(&self) -> StoreFuture<'_, Vec<Operator>> {
        Box::pin(self.get_operators())
    }

    fn put_operator<'a>(&'a self, operator: &'a Operator) -> StoreFuture<'a, ()> {
        Box::pin(self.ended(self.set_operator(operator)))
    }

    fn put_certificate<'a>(&'a self, certificate: &'a Certificate) -> StoreFuture<'a, ()> {
        Box::pin(self.ended(self.add_certificate(certificate)))
    }

    fn certificates(&self, limit: u32) -> StoreFuture<'_, Vec<Certificate>> {
        Box::pin(self.get_certificates(limit))
    }

    fn kubeconfigs(&self) -> StoreFuture<'_, Vec<Certificate>> {
        Box::pin(self.get_kubeconfigs())
    }

    fn revoke<'a>(&'a self, revocation: &'a Revocation) -> StoreFuture<'a, ()> {
        Box::pin(self.ended(self.add_revocation(revocation)))
    }

    fn revocations(&self) -> StoreFuture<'_, Vec<Revocation>> {
        Box::pin(self.get_revocations())
    }

    fn create_job<'a>(&'a self, job: &'a Job, rows: &'a [JobRow]) -> StoreFuture<'a, Created<Job>> {
        Box::pin(self.ended(self.add_job(job, rows)))
    }

    fn job<'a>(&'a self, jid: &'a JobId) -> StoreFuture<'a, Option<Job>> {
        Box::pin(self.get_job(jid))
    }

    fn jobs(&self, limit: u32) -> StoreFuture<'_, Vec<Job>> {
        Box::pin(self.get_jobs(limit))
    }

    fn open_jobs(&self) -> StoreFuture<'_, Vec<Job>> {
        Box::pin(self.get_open_jobs())
    }

    fn parts<'a>(&'a self, jid: &'a JobId) -> StoreFuture<'a, Vec<Part>> {
        Box::pin(self.get_parts(jid))
    }

    fn returns<'a>(&'a self, jid: &'a JobId, of: &'a [MinionId]) -> StoreFuture<'a, Vec<JobRow>> {
        Box::pin(self.get_returns(jid, of))
    }

    fn row<'a>(&'a self, jid: &'a JobId, minion: &'a MinionId) -> StoreFuture<'a, Option<JobRow>> {
        Box::pin(self.get_row(jid, minion))
    }

    fn open_rows<'a>(&'a self, minion: &'a MinionId) -> StoreFuture<'a, Vec<JobRow>> {
        Box::pin(self.get_open_rows(minion))
    }

    fn mark_sent<'a>(
        &'a self,
        jid: &'a JobId,
        minion: &'a MinionId,
        now: Millis,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.ended(self.change_row(jid, minion, Change::Sent(now))))
    }

    fn mark_started<'a>(
        &'a self,
        jid: &'a JobId,
        minion: &'a MinionId,
        now: Millis,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.ended(self.change_row(jid, minion, Change::Started(now))))
    }

    fn record_return<'a>(
        &'a self,
        jid: &'a JobId,
        minion: &'a MinionId,
        answer: &'a Answer,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.ended(self.change_row(jid, minion, Change::Returned(answer.clone()))))
    }

    fn record_last_return<'a>(
        &'a self,
        jid: &'a JobId,
        minion: &'a MinionId,
        answer: &'a Answer,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.ended(self.change_row(jid, minion, Change::LastReturned(answer.clone()))))
    }

    fn minion_bundles(&self) -> StoreFuture<'_, Vec<MinionBundle>> {
        Box::pin(self.get_minion_bundles())
    }

    fn mark_lost<'a>(
        &'a self,
        jid: &'a JobId,
        minion: &'a MinionId,
        why: &'a str,
        now: Millis,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.ended(self.set_lost(jid, minion, why, None, now)))
    }

    fn mark_interrupted<'a>(
        &'a self,
        jid: &'a JobId,
        minion: &'a MinionId,
        why: &'a str,
        now: Millis,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.ended(self.set_lost(jid, minion, why, Some(INTERRUPTED), now)))
    }

    fn finish_job<'a>(&'a self, jid: &'a JobId, retcode: i32, now: Millis) -> StoreFuture<'a, ()> {
        Box::pin(self.ended(self.set_finished(jid, retcode, now)))
    }

    fn prune_jobs(&self, before: Millis, keep: u32, limit: u32) -> StoreFuture<'_, u64> {
        Box::pin(self.ended(self.remove_jobs(before, keep, limit)))
    }

    fn prune_unused(&self, now: Millis, limit: u32) -> StoreFuture<'_, u64> {
        Box::pin(self.ended(self.remove_unused(now, limit)))
    }

    fn size(&self) -> StoreFuture<'_, u64> {
        Box::pin(self.bytes_in_use())
    }

    fn create_run<'a>(&'a self, run: &'a Run, steps: &'a [Step]) -> StoreFuture<'a, Created<Run>> {
        Box::pin(self.ended(self.add_run(run, steps)))
    }

    fn run<'a>(&'a self, id: &'a JobId) -> StoreFuture<'a, Option<Run>> {
        Box::pin(self.get_run(id))
    }

    fn runs(&self, limit: u32) -> StoreFuture<'_, Vec<Run>> {
        Box::pin(self.get_runs(limit))
    }

    fn runs_of<'a>(&'a self, sls: &'a str, since: Millis) -> StoreFuture<'a, Vec<Run>> {
        Box::pin(self.get_runs_of(sls, since))
    }

    fn oldest(&self) -> StoreFuture<'_, Option<Millis>> {
        Box::pin(self.get_oldest())
    }

    fn open_runs(&self) -> StoreFuture<'_, Vec<Run>> {
        Box::pin(self.get_open_runs())
    }

    fn update_run<'a>(
        &'a self,
        id: &'a JobId,
        status: RunStatus,
        current: u32,
        now: Millis,
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.ended(self.set_run(id, status, current, now)))
    }

    fn cancel_run<'a>(
        &'a self,
        id: &'a JobId,
        operator: &'a str,
        now: Millis,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.ended(self.set_cancelled(id, operator, now)))
    }

    fn put_step<'a>(&'a self, step: &'a Step) -> StoreFuture<'a, ()> {
        Box::pin(self.ended(self.set_step(step)))
    }

    fn steps<'a>(&'a self, run: &'a JobId) -> StoreFuture<'a, Vec<Step>> {
        Box::pin(self.get_steps(run))
    }

    fn take_lock<'a>(
        &'a self,
        name: &'a str,
        run: &'a JobId,
        now: Millis,
    ) -> StoreFuture<'a, Option<Run>> {
        Box::pin(self.ended(self.set_lock(name, run, now)))
    }

    fn release_lock<'a>(&'a self, name: &'a str, run: &'a JobId) -> StoreFuture<'a, ()> {
        Box::pin(self.ended(self.remove_lock(name, run)))
    }

    fn append_event<'a>(&'a self, event: &'a Event) -> StoreFuture<'a, i64> {
        Box::pin(self.ended(self.add_event(event)))
    }

    fn events<'a>(
        &'a self,
        prefix: &'a str,
        after: i64,
        limit: u32,
    ) -> StoreFuture<'a, Vec<Event>> {
        Box::pin(self.get_events(prefix, after, limit))
    }

    fn prune(&self, before: Millis) -> StoreFuture<'_, u64> {
        Box::pin(self.ended(self.remove_old(before)))
    }

    fn append_audit<'a>(&'a self, line: &'a Audit) -> StoreFuture<'a, ()> {
        Box::pin(self.ended(self.add_audit(line)))
    }

    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> StoreFuture<'a, Vec<Audit>> {
        Box::pin(self.get_audit(filter))
    }

    fn put_facts<'a>(&'a self, facts: &'a Facts) -> StoreFuture<'a, ()> {
        Box::pin(self.ended(self.set_facts(facts)))
    }

    fn touch<'a>(&'a self, minion: &'a MinionId, now: Millis) -> StoreFuture<'a, ()> {
        Box::pin(self.ended(self.set_seen(minion, now)))
    }

    fn facts<'a>(&'a self, minion: &'a MinionId) -> StoreFuture<'a, Option<Facts>> {
        Box::pin(self.get_facts(minion))
    }

    fn all_facts(&self) -> StoreFuture<'_, Vec<Facts>> {
        Box::pin(self.get_all_facts())
    }

    fn put_blob<'a>(
        &'a self,
        sha256: &'a str,
        content: &'a [u8],
        now: Millis,
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.ended(self.add_blob(sha256, content, now)))
    }

    fn blob<'a>(&'a self, sha256: &'a str) -> StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(self.get_blob(sha256))
    }
}
