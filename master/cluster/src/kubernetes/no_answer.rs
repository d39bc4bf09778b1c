//! Calls without an answer: their timeouts, and their messages.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::ApiError;

/// The timeout of a readiness check: a connection to an address that is gone would be held for half
/// a minute.
pub(super) const READY: Duration = Duration::from_secs(5);
/// The timeout for one object, a page of a list, or an eviction, for the same reason: then another
/// address is tried, if that does no harm. A busy API server may take some seconds.
pub(super) const REQUEST: Duration = Duration::from_secs(10);

/// Returns the answer, or an error if it did not arrive from this address in time.
pub(super) async fn within<T>(
    endpoint: &str,
    limit: Duration,
    answer: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    let answer = tokio::time::timeout(limit, answer).await;
    answer.unwrap_or_else(|_| {
        let cause = format!("no answer within {} s", limit.as_secs());
        Err(ApiError::unreachable(endpoint, cause))
    })
}

/// Returns the answer to a request that may take long, for example because of a webhook, or an
/// error if its address is gone: after `limit` the address is asked whether it is `ready`, and with
/// any answer to that, the request continues to wait.
pub(super) async fn unless_gone<T>(
    endpoint: &str,
    limit: Duration,
    answer: impl Future<Output = Result<T, ApiError>>,
    ready: impl Future<Output = Result<(), ApiError>>,
) -> Result<T, ApiError> {
    tokio::pin!(answer);
    if let Ok(answer) = tokio::time::timeout(limit, &mut answer).await {
        return answer;
    }
    tokio::select! {
        answer = &mut answer => return answer,
        ready = ready => {
            if let Err(ApiError::Unreachable { .. }) = ready {
                // The request may have reached a server, whatever the result of the readiness
                // check.
                let cause = format!(
                    "no answer within {} s, and none to the readiness check",
                    limit.as_secs()
                );
                return Err(ApiError::unreachable(endpoint, cause));
            }
        }
    }
    answer.await
}

/// Returns whether the connection failed before the request could be sent, the TLS handshake
/// included.
pub(super) fn never_connected(error: &kube::Error) -> bool {
    let kube::Error::Service(source) = error else {
        return false;
    };
    let mut next: Option<&(dyn Error + 'static)> = Some(source.as_ref());
    while let Some(cause) = next {
        if let Some(client) = cause.downcast_ref::<hyper_util::client::legacy::Error>() {
            return client.is_connect();
        }
        next = cause.source();
    }
    false
}

/// A call without an answer. Its text is the last of its causes, because the earlier ones name
/// layers of the client.
#[derive(Debug)]
pub(super) struct NoAnswer(pub(super) kube::Error);

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut error: &dyn Error = match &self.0 {
            kube::Error::Service(source) => source.as_ref(),
            kube::Error::HyperError(source) => source,
            other => other,
        };
        while let Some(source) = error.source() {
            error = source;
        }
        fmt::Display::fmt(error, f)
    }
}

impl Error for NoAnswer {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_does_not_come_is_an_error_of_the_address() {
        let never = std::future::pending::<Result<(), ApiError>>();
        let error = within("10.0.0.1:6443", Duration::from_secs(1), never)
            .await
            .unwrap_err();
        assert!(error.is_transient(), "{error:?}");
        let text = halite_errors::chain(&error);
        assert!(text.contains("10.0.0.1:6443"), "{text}");
        assert!(text.contains("no answer within 1 s"), "{text}");
        assert_eq!(within("", REQUEST, async { Ok(1) }).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_slow_request_may_continue_while_its_address_answers() {
        let (at, limit) = ("10.0.0.1:6443", Duration::from_millis(10));
        let slow = || async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok(1)
        };
        let alive = async { Ok(()) };
        assert_eq!(unless_gone(at, limit, slow(), alive).await.unwrap(), 1);
        let busy = async {
            Err(ApiError::Refused {
                code: 500,
                reason: String::new(),
                message: "etcd failed".into(),
            })
        };
        assert_eq!(unless_gone(at, limit, slow(), busy).await.unwrap(), 1);
        // The answer arrives in time: the address is not asked.
        let asked = async { panic!("it was asked") };
        let soon = unless_gone(at, REQUEST, async { Ok(2) }, asked).await;
        assert_eq!(soon.unwrap(), 2);
        let never = std::future::pending::<Result<(), ApiError>>();
        let gone = async { Err(ApiError::not_connected(at, "no route")) };
        let error = unless_gone(at, limit, never, gone).await.unwrap_err();
        assert!(
            matches!(&error, ApiError::Unreachable { sent: true, .. }),
            "{error:?}"
        );
    }
}
