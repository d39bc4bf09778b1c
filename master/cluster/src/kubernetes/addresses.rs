//! One API at several addresses; the address that answered last is tried first.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::{Api, ApiError, ApiFuture, Cause, FieldConflict, ObjectRef, Served};

/// An API with several addresses, best first. A request goes to the address that answered last, and
/// to the next one if that does not answer.
pub struct Addresses<A> {
    apis: Vec<Address<A>>,
    /// The address that answered last.
    current: AtomicUsize,
}

/// One address of the API.
pub struct Address<A> {
    /// Address and port, for messages.
    pub endpoint: String,
    /// The client for this address.
    pub api: A,
}

/// The effect of sending a request a second time, after the connection to the first address failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    /// No effect: the request reads, or it declares the same state again.
    Harmless,
    /// The answer would differ, so only a request that was never sent goes to the next address.
    Differs,
}

impl<A: Api> Addresses<A> {
    /// Creates the API from its addresses in their initial order.
    #[must_use]
    pub fn new(apis: Vec<Address<A>>) -> Self {
        Self {
            apis,
            current: AtomicUsize::new(0),
        }
    }

    async fn ask<'a, T>(
        &'a self,
        again: Again,
        request: impl Fn(&'a Address<A>) -> ApiFuture<'a, T>,
    ) -> Result<T, ApiError> {
        let (count, start) = (self.apis.len(), self.current.load(Ordering::Relaxed));
        let mut silent = Vec::new();
        for step in 0..count {
            let at = (start + step) % count;
            let Some(address) = self.apis.get(at) else {
                break;
            };
            match request(address).await {
                Err(ApiError::Unreachable {
                    endpoint,
                    sent,
                    source,
                }) => {
                    // The next request starts after it, also another caller's.
                    let next = (at + 1) % count;
                    let _ = self.current.compare_exchange(
                        at,
                        next,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                    silent.push(Silent { endpoint, source });
                    if sent && again == Again::Differs {
                        return Err(unreachable(silent, true));
                    }
                }
                answer => {
                    self.current.store(at, Ordering::Relaxed);
                    return answer;
                }
            }
        }
        Err(unreachable(silent, false))
    }
}

/// An address without an answer.
#[derive(Debug)]
struct Silent {
    endpoint: String,
    source: Cause,
}

/// The causes of several addresses that do not answer. It has no source of its own: its text
/// contains each cause, beside the address.
#[derive(Debug)]
struct EachSilent(Vec<Silent>);

impl fmt::Display for EachSilent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, one) in self.0.iter().enumerate() {
            let gap = if index == 0 { "" } else { "; " };
            write!(f, "{gap}{}: {}", one.endpoint, one.source)?;
        }
        Ok(())
    }
}

impl Error for EachSilent {}

fn unreachable(mut silent: Vec<Silent>, sent: bool) -> ApiError {
    if silent.len() == 1
        && let Some(Silent { endpoint, source }) = silent.pop()
    {
        return ApiError::Unreachable {
            endpoint,
            sent,
            source,
        };
    }
    let endpoints: Vec<&str> = silent.iter().map(|one| one.endpoint.as_str()).collect();
    ApiError::Unreachable {
        endpoint: endpoints.join(", "),
        sent,
        source: Arc::new(EachSilent(silent)),
    }
}

impl<A: Api> Api for Addresses<A> {
    fn get<'a>(&'a self, reference: &'a ObjectRef) -> ApiFuture<'a, Option<Value>> {
        Box::pin(self.ask(Again::Harmless, |address| address.api.get(reference)))
    }

    fn apply<'a>(&'a self, object: &'a Value, dry_run: bool) -> ApiFuture<'a, Value> {
        Box::pin(self.ask(Again::Harmless, move |address| {
            address.api.apply(object, dry_run)
        }))
    }

    fn conflicts<'a>(&'a self, object: &'a Value) -> ApiFuture<'a, Vec<FieldConflict>> {
        Box::pin(self.ask(Again::Harmless, |address| address.api.conflicts(object)))
    }

    fn replace<'a>(&'a self, object: &'a Value, dry_run: bool) -> ApiFuture<'a, Value> {
        Box::pin(self.ask(Again::Differs, move |address| {
            address.api.replace(object, dry_run)
        }))
    }

    fn delete<'a>(&'a self, reference: &'a ObjectRef) -> ApiFuture<'a, bool> {
        Box::pin(self.ask(Again::Differs, |address| address.api.delete(reference)))
    }

    fn evict<'a>(
        &'a self,
        pod: &'a ObjectRef,
        uid: &'a str,
        grace: Option<u64>,
    ) -> ApiFuture<'a, ()> {
        // The uid makes a repetition harmless: an evicted pod does not exist a second time.
        Box::pin(self.ask(Again::Harmless, move |address| {
            address.api.evict(pod, uid, grace)
        }))
    }

    /// Of several servers, one that answers that it is not ready counts like one that does not
    /// answer: later requests go to one that is.
    fn ready(&self) -> ApiFuture<'_, ()> {
        let several = self.apis.len() > 1;
        Box::pin(self.ask(Again::Harmless, move |address| {
            let ready = address.api.ready();
            let endpoint = address.endpoint.clone();
            Box::pin(async move {
                match ready.await {
                    Err(error @ ApiError::Refused { .. }) if several && error.is_transient() => {
                        Err(ApiError::unreachable(endpoint, error))
                    }
                    answer => answer,
                }
            })
        }))
    }

    fn metric<'a>(&'a self, name: &'a str) -> ApiFuture<'a, Vec<String>> {
        Box::pin(self.ask(Again::Harmless, |address| address.api.metric(name)))
    }

    fn list<'a>(
        &'a self,
        api_version: &'a str,
        kind: &'a str,
        namespace: &'a str,
        fields: &'a str,
    ) -> ApiFuture<'a, Vec<Value>> {
        Box::pin(self.ask(Again::Harmless, move |address| {
            address.api.list(api_version, kind, namespace, fields)
        }))
    }

    fn kinds(&self) -> ApiFuture<'_, Vec<Served>> {
        Box::pin(self.ask(Again::Harmless, |address| address.api.kinds()))
    }

    fn metadata<'a>(
        &'a self,
        kind: &'a Served,
        namespace: &'a str,
        labels: &'a str,
    ) -> ApiFuture<'a, Vec<Value>> {
        Box::pin(self.ask(Again::Harmless, move |address| {
            address.api.metadata(kind, namespace, labels)
        }))
    }
}

#[cfg(test)]
#[path = "addresses_tests.rs"]
mod tests;
