//! A call to the master that answers with a stream of events, followed to the last event, even
//! across a restart of the master.

use std::time::{Duration, Instant};

use halite_proto::backoff::Backoff;
use halite_proto::tonic::{Code, Status, Streaming};
use halite_proto::v1;

use crate::cli::Global;
use crate::client;
use crate::client::{AWAY, Operator};

/// The pauses before a call is repeated.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(300), Duration::from_secs(3));

/// The time without a master after which `take` is notified.
const SAY: Duration = Duration::from_secs(10);

/// A notification about a followed call.
pub enum CallNews<'a> {
    /// An event of the master.
    Event(&'a v1::Event),
    /// The master has not answered for a while; the line for people has the time and the remedy.
    Silence(&'a str),
}

/// Makes a call and passes each event to `take`, until that returns true. If the connection breaks,
/// the call is repeated, and `take` is notified once if this lasts. `start` makes the call so that
/// it resumes at the last event, and returns `None` if there is nothing left to follow.
///
/// # Errors
/// The master refuses the call, or does not answer for longer than [`AWAY`].
pub async fn follow(
    global: &Global,
    start: impl AsyncFn(Operator) -> Result<Option<Streaming<v1::Event>>, Status>,
    mut take: impl FnMut(CallNews<'_>) -> bool,
) -> anyhow::Result<()> {
    let mut lost_since: Option<Instant> = None;
    let mut is_said = false;
    let mut pauses = PAUSES;
    loop {
        let attempt = async {
            let operator = client::operator(global)
                .await
                .map_err(Interruption::Connection)?;
            let events = start(operator).await.map_err(Interruption::Call)?;
            let Some(mut events) = events else {
                return Ok(());
            };
            lost_since = None;
            is_said = false;
            pauses.reset();
            while let Some(event) = events.message().await.map_err(Interruption::Call)? {
                if take(CallNews::Event(&event)) {
                    return Ok(());
                }
            }
            Err(Interruption::Call(Status::unavailable(
                "the master ended the stream before the last event",
            )))
        };
        let interruption = match attempt.await {
            Ok(()) => return Ok(()),
            Err(interruption) => interruption,
        };
        let (error, passing) = match interruption {
            // Waiting does not help if the first connection fails, nor without an identity: it was
            // removed with its host.
            Interruption::Connection(error) => {
                let access = global.access();
                let has_identity = access.is_ok_and(|access| access.identity.exists());
                (error, lost_since.is_some() && has_identity)
            }
            Interruption::Call(status) => (client::refused(&status), is_passing(&status)),
        };
        let since = *lost_since.get_or_insert_with(Instant::now);
        if !passing || since.elapsed() > AWAY {
            return Err(error);
        }
        if since.elapsed() >= SAY && !is_said {
            is_said = true;
            take(CallNews::Silence(&silence(since.elapsed(), &error)));
        }
        pauses.wait().await;
    }
}

/// The line for people about a master that does not answer.
fn silence(lasts: Duration, error: &anyhow::Error) -> String {
    format!(
        "waiting for {} s (at most {} s) until the master answers: {error:#}; when it is back, it resumes its work, and this \
         command follows it again; `systemctl status halite-master` on its host shows its state",
        lasts.as_secs(),
        AWAY.as_secs()
    )
}

/// The reason why a call ended before its last event.
enum Interruption {
    /// No connection to the master.
    Connection(anyhow::Error),
    /// The call failed.
    Call(Status),
}

/// Returns true if the connection broke, and false if the master refused.
#[must_use]
pub fn is_passing(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::Cancelled | Code::Unknown
    )
}
