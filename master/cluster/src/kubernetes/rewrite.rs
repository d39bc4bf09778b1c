//! Writes objects again without a change, so that the API server encrypts them with its present
//! key.
//!
//! The API server stores an object again if it was stored with another key, even if nothing else
//! has changed. It is the way of the Kubernetes documentation
//! (tasks/administer-cluster/encrypt-data, "Ensure all relevant data are encrypted").

use std::time::Duration;

use halite_errors::chain;
use halite_etcd::{Pace, Wait};
use serde_json::{Value, json};

use super::{Api, ApiError, ObjectRef};

/// The error of a rewrite.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the objects of kind {kind} again ({written} are written)")]
pub struct RewriteError {
    /// The kind.
    kind: String,
    /// The number of objects that were written.
    written: usize,
    /// The API's answer.
    source: ApiError,
}

/// A rewrite of all objects of a kind of the core group.
pub struct Rewrite<'a> {
    /// The API.
    pub api: &'a dyn Api,
    /// Time, pauses and reports.
    pub pace: &'a dyn Pace,
    /// The time limit.
    pub limit: Duration,
}

impl Rewrite<'_> {
    /// Writes all objects of a kind again, and returns their number. An object that another client
    /// changes or deletes in the meantime is not written: that client's write used the present key.
    ///
    /// # Errors
    /// The API refuses an object, or does not answer within the limit.
    pub async fn kind(&self, kind: &str) -> Result<usize, RewriteError> {
        let mut written = 0;
        let failed = |written: usize, source: ApiError| RewriteError {
            kind: kind.to_owned(),
            written,
            source,
        };
        let objects = loop {
            match self.api.list("v1", kind, "", "").await {
                Ok(objects) => break objects,
                Err(error) => self
                    .again(kind, error)
                    .await
                    .map_err(|error| failed(0, error))?,
            }
        };
        for mut object in objects {
            // The items of a list do not name their kind.
            object["apiVersion"] = json!("v1");
            object["kind"] = json!(kind);
            while let Err(error) = self.one(&object).await {
                self.again(kind, error)
                    .await
                    .map_err(|error| failed(written, error))?;
            }
            written += 1;
        }
        Ok(written)
    }

    async fn one(&self, object: &Value) -> Result<(), ApiError> {
        // A name that cannot be read would be an error of the server.
        ObjectRef::of(object)?;
        match self.api.replace(object, false).await {
            Ok(_)
            | Err(ApiError::Refused {
                code: 404 | 409, ..
            }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Pauses before another attempt.
    async fn again(&self, kind: &str, error: ApiError) -> Result<(), ApiError> {
        let since = self.pace.now();
        if !error.is_transient() || since >= self.limit {
            return Err(error);
        }
        let wait = Wait {
            until: format!("all objects of kind {kind} are written again"),
            because: chain(&error),
            since,
            limit: self.limit,
        };
        self.pace.report(&wait).await;
        self.pace.pause().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::super::drain_tests::{Virtual, finish};
    use super::super::fake::FakeApi;
    use super::*;

    fn api() -> FakeApi {
        let api = FakeApi::default();
        for (kind, name) in [("Secret", "a"), ("Secret", "b"), ("ConfigMap", "c")] {
            api.put(json!({"apiVersion": "v1", "kind": kind,
                "metadata": {"name": name, "namespace": "kube-system"}, "data": {"x": "eA=="}}));
        }
        api
    }

    fn rewritten(api: &FakeApi) -> Result<usize, RewriteError> {
        let pace = Virtual::default();
        let rewrite = Rewrite {
            api,
            pace: &pace,
            limit: Duration::from_secs(20),
        };
        finish(rewrite.kind("Secret")).expect("the fake never waits")
    }

    #[test]
    fn each_object_of_the_kind_is_written_once_and_unchanged() {
        let api = api();
        let before = api.object("Secret", "a").unwrap();
        assert_eq!(rewritten(&api).unwrap(), 2);
        let writes = api.writes.lock().unwrap().clone();
        assert_eq!(
            writes,
            [
                "replace Secret kube-system/a",
                "replace Secret kube-system/b"
            ]
        );
        assert_eq!(api.object("Secret", "a").unwrap()["data"], before["data"]);
    }

    #[test]
    fn an_object_that_another_client_has_changed_needs_no_write() {
        let api = api();
        api.conflicts.store(1, Ordering::SeqCst);
        assert_eq!(rewritten(&api).unwrap(), 2);
        assert_eq!(api.writes.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_rewrite_waits_for_a_silent_api_up_to_the_limit() {
        let api = api();
        api.silent_for.store(3, Ordering::SeqCst);
        assert_eq!(rewritten(&api).unwrap(), 2);
        api.silent_for.store(u32::MAX, Ordering::SeqCst);
        assert!(rewritten(&api).is_err());
    }
}
