//! The request to end a run early.

use tokio::sync::watch;

/// The request to end a run: the effect in progress ends, then the state and all later ones fail
/// with the reason. A command is ended with signals; a package transaction ends by itself, unless
/// the request is forced.
#[derive(Debug, Default)]
pub struct Stop(watch::Sender<Request>);

/// The request so far.
#[derive(Debug, Clone, Default)]
struct Request {
    reason: Option<String>,
    forced: bool,
}

impl Stop {
    /// Requests the end. Only the first reason counts.
    pub fn request(&self, reason: &str) {
        self.0.send_modify(|request| {
            request.reason.get_or_insert_with(|| reason.to_owned());
        });
    }

    /// Requests the end, including a package transaction's.
    pub fn force(&self, reason: &str) {
        self.0.send_modify(|request| {
            request.reason.get_or_insert_with(|| reason.to_owned());
            request.forced = true;
        });
    }

    /// The reason; `None` until the end is requested.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        self.0.borrow().reason.clone()
    }

    /// Waits for a request; returns its reason.
    pub async fn requested(&self) -> String {
        self.wait(|request| request.reason.is_some()).await
    }

    /// Waits for a forced request; returns its reason.
    pub async fn forced(&self) -> String {
        self.wait(|request| request.forced).await
    }

    async fn wait(&self, met: impl Fn(&Request) -> bool) -> String {
        let mut requests = self.0.subscribe();
        loop {
            let request = requests.borrow_and_update().clone();
            if met(&request) {
                return request.reason.unwrap_or_default();
            }
            if requests.changed().await.is_err() {
                // The sender is this value, which lives as long as this future.
                std::future::pending::<()>().await;
            }
        }
    }
}
