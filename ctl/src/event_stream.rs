//! A call to the master that answers with a stream of events, followed to the last event, also over
//! a restart of the master.

use std::time::{Duration, Instant};

use halite_proto::backoff::Backoff;
use halite_proto::tonic::{Code, Status, Streaming};
use halite_proto::v1;

use crate::cli::Global;
use crate::client;
use crate::client::{AWAY, Operator};

/// The pauses before a call is repeated.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(300), Duration::from_secs(3));

/// The time without a master after which `take` hears of it.
const SAY: Duration = Duration::from_secs(10);

/// News of a call that is followed.
pub enum Heard<'a> {
    /// An event of the master.
    Event(&'a v1::Event),
    /// The master has not answered for a while; the line for people says since when, and what helps.
    Silence(&'a str),
}

/// Makes a call and hands each event to `take`, until that returns true. If the connection breaks,
/// the call is repeated, and `take` hears once that it lasts. `start` makes the call so that it resumes
/// there; `None` if there is nothing to follow any more.
///
/// # Errors
/// The master refuses the call, or does not answer for longer than [`AWAY`].
pub async fn follow(
    global: &Global,
    start: impl AsyncFn(Operator) -> Result<Option<Streaming<v1::Event>>, Status>,
    mut take: impl FnMut(Heard<'_>) -> bool,
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
                if take(Heard::Event(&event)) {
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
            // If the first connection fails, waiting does not help, nor without an identity: it went with
            // its host.
            Interruption::Connection(error) => {
                (error, lost_since.is_some() && global.identity.exists())
            }
            Interruption::Call(status) => (client::refused(&status), is_passing(&status)),
        };
        let since = *lost_since.get_or_insert_with(Instant::now);
        if !passing || since.elapsed() > AWAY {
            return Err(error);
        }
        if since.elapsed() >= SAY && !is_said {
            is_said = true;
            take(Heard::Silence(&silence(since.elapsed(), &error)));
        }
        pauses.wait().await;
    }
}

/// The line for people on a master that does not answer.
fn silence(lasts: Duration, error: &anyhow::Error) -> String {
    format!(
        "waiting for {} s (at most {} s) until the master answers: {error:#}; what was begun goes on when it is back, and is \
         followed again; `systemctl status halite-master` on its host shows its state",
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
