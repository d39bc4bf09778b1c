//! The bytes of unfinished requests. A message occupies memory from its first byte on, and the
//! caller may never send its last one.

use std::collections::BTreeMap;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

/// Bytes before a message: a flag and its length (gRPC over HTTP/2, "Length-Prefixed-Message").
const PREFIX: usize = 5;
/// Bytes of all callers together.
pub(super) const TOTAL: usize = 512 << 20;
/// The minimum rate of a caller, in bytes per second.
const SLOWEST: usize = 128 << 10;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The bytes that a server holds, in total and for each identity.
#[derive(Debug, Default)]
pub(super) struct InFlight(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    all: usize,
    owners: BTreeMap<String, usize>,
}

impl InFlight {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes that are held now.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.held().all
    }

    /// Adds bytes of an owner, if they fit into its share and into the total.
    fn add(&self, owner: &str, most: usize, bytes: usize) -> bool {
        let mut held = self.held();
        let own = held.owners.get(owner).copied().unwrap_or_default();
        if own + bytes > most || held.all + bytes > TOTAL {
            return false;
        }
        held.all += bytes;
        held.owners.insert(owner.to_owned(), own + bytes);
        true
    }

    fn release(&self, owner: &str, bytes: usize) {
        let mut held = self.held();
        held.all = held.all.saturating_sub(bytes);
        if let Some(own) = held.owners.get_mut(owner) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                held.owners.remove(owner);
            }
        }
    }
}

/// The limits of one request.
#[derive(Debug, Clone)]
pub(super) struct Allowance {
    /// The identity of the caller.
    pub(super) owner: String,
    /// Bytes of all its unfinished requests.
    pub(super) most: usize,
    /// Bytes of the first message: on a stream, the message that names the caller.
    pub(super) first: usize,
    /// `true` for several messages: each counts until it is complete. The only message of another
    /// request counts until the request is answered.
    pub(super) is_stream: bool,
    /// The time for a message; its length adds some.
    pub(super) patience: Duration,
}

/// The bytes of one request, held by its body and its answer.
pub(super) struct Share {
    set: Arc<InFlight>,
    allowance: Allowance,
    held: AtomicUsize,
}

impl Share {
    pub(super) fn new(set: Arc<InFlight>, allowance: Allowance) -> Arc<Self> {
        Arc::new(Self {
            set,
            allowance,
            held: AtomicUsize::new(0),
        })
    }

    #[allow(
        clippy::result_large_err,
        reason = "tonic's own error type, which the caller sees"
    )]
    fn add(&self, bytes: usize) -> Result<(), Status> {
        let Allowance { owner, most, .. } = &self.allowance;
        if !self.set.add(owner, *most, bytes) {
            return Err(Status::resource_exhausted(format!(
                "cannot accept the request: too many bytes are under way; {owner} may send {} MiB at a time, and all callers \
                 together {} MiB; try again later",
                most >> 20,
                TOTAL >> 20
            )));
        }
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self) {
        let held = self.held.swap(0, Ordering::Relaxed);
        if held > 0 {
            self.set.release(&self.allowance.owner, held);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.release();
    }
}

/// The body of a request whose bytes are counted and whose duration is limited.
pub(super) struct Counted<B> {
    body: B,
    share: Arc<Share>,
    /// The start of an incomplete prefix.
    prefix: Vec<u8>,
    /// Bytes of the message that are still to come; `None` between two messages.
    missing: Option<usize>,
    is_first: bool,
    /// The deadline of the message; `None` between two messages of a stream.
    end: Option<Pin<Box<Sleep>>>,
}

impl<B> Counted<B> {
    pub(super) fn new(body: B, share: Arc<Share>) -> Self {
        let mut counted = Self {
            body,
            share,
            prefix: Vec::with_capacity(PREFIX),
            missing: None,
            is_first: true,
            end: None,
        };
        counted.end_after(0);
        counted
    }

    /// Sets the deadline of a message with this length.
    fn end_after(&mut self, length: usize) {
        let seconds = u64::try_from(length / SLOWEST).unwrap_or_default();
        let time = self.share.allowance.patience + Duration::from_secs(seconds);
        self.end = Some(Box::pin(sleep_until(Instant::now() + time)));
    }

    /// Counts received bytes.
    #[allow(
        clippy::result_large_err,
        reason = "tonic's own error type, which the caller sees"
    )]
    fn count(&mut self, mut bytes: &[u8]) -> Result<(), Status> {
        while !bytes.is_empty() {
            let Some(missing) = self.missing else {
                if self.prefix.is_empty() && self.end.is_none() {
                    self.end_after(0);
                }
                let taken = bytes.len().min(PREFIX - self.prefix.len());
                self.prefix.extend_from_slice(&bytes[..taken]);
                bytes = &bytes[taken..];
                if let [_, a, b, c, d] = self.prefix[..] {
                    let length = u32::from_be_bytes([a, b, c, d]);
                    self.begin(usize::try_from(length).unwrap_or(usize::MAX))?;
                }
                continue;
            };
            let taken = bytes.len().min(missing);
            self.share.add(taken)?;
            bytes = &bytes[taken..];
            self.missing = Some(missing - taken);
            self.end_if_whole();
        }
        Ok(())
    }

    #[allow(
        clippy::result_large_err,
        reason = "tonic's own error type, which the caller sees"
    )]
    fn begin(&mut self, length: usize) -> Result<(), Status> {
        self.prefix.clear();
        let first = self.share.allowance.first;
        if self.is_first && length > first {
            return Err(Status::resource_exhausted(format!(
                "cannot accept the first message: it has {length} bytes, and at most {first} are allowed"
            )));
        }
        self.is_first = false;
        self.missing = Some(length);
        self.end_after(length);
        self.end_if_whole();
        Ok(())
    }

    fn end_if_whole(&mut self) {
        if self.missing == Some(0) {
            self.missing = None;
            if self.share.allowance.is_stream {
                // The service has it, one at a time.
                self.share.release();
                self.end = None;
            }
        }
    }
}

impl<B> Body for Counted<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let counted = frame.data_ref().map_or(Ok(()), |data| self.count(data));
                Poll::Ready(Some(counted.map(|()| frame).map_err(BoxError::from)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let end = self.end.as_mut();
                if end.is_none_or(|end| end.as_mut().poll(context).is_pending()) {
                    return Poll::Pending;
                }
                let error = Status::deadline_exceeded(
                    "cannot accept the request: it did not arrive completely in time",
                );
                Poll::Ready(Some(Err(error.into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn allowance(most: usize, first: usize, is_stream: bool) -> Allowance {
        Allowance {
            owner: "minion:worker-1".to_owned(),
            most,
            first,
            is_stream,
            patience: LONG,
        }
    }

    fn counted(
        set: &Arc<InFlight>,
        allowance: Allowance,
        messages: &[Vec<u8>],
    ) -> Counted<Full<Bytes>> {
        let share = Share::new(Arc::clone(set), allowance);
        Counted::new(Full::from(messages.concat()), share)
    }

    fn message(length: u32, sent: usize) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(length.to_be_bytes());
        bytes.resize(PREFIX + sent, 7);
        bytes
    }

    /// A body that never ends, after these frames, in reverse order.
    struct Endless(Vec<Vec<u8>>);

    impl Body for Endless {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            match self.0.pop() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes.into())))),
                None => Poll::Pending,
            }
        }
    }

    #[tokio::test]
    async fn of_a_stream_only_the_message_that_is_not_whole_counts() {
        let set = Arc::new(InFlight::default());
        let stream = || allowance(10, 10, true);
        let mut whole = counted(&set, stream(), &[message(9, 9), message(0, 0)]);
        whole.frame().await.unwrap().unwrap();
        assert_eq!(set.bytes(), 0);
        let mut half = counted(&set, stream(), &[message(9, 9), message(9, 4)]);
        half.frame().await.unwrap().unwrap();
        assert_eq!(set.bytes(), 4);
        // The share belongs to the identity, however many requests it makes.
        let mut other = counted(&set, stream(), &[message(9, 7)]);
        let error = other.frame().await.unwrap().unwrap_err();
        assert!(
            error
                .to_string()
                .contains("too many bytes are under way; minion:worker-1"),
            "{error}"
        );
        drop(half);
        assert_eq!(set.bytes(), 0);
        let mut again = counted(&set, stream(), &[message(9, 7)]);
        again.frame().await.unwrap().unwrap();
        assert_eq!(set.bytes(), 7);
    }

    #[tokio::test]
    async fn a_unary_request_counts_until_it_is_answered() {
        let set = Arc::new(InFlight::default());
        let share = Share::new(Arc::clone(&set), allowance(10, 10, false));
        let mut body = Counted::new(Full::from(message(9, 9)), Arc::clone(&share));
        body.frame().await.unwrap().unwrap();
        drop(body);
        assert_eq!(set.bytes(), 9, "the service has it");
        drop(share);
        assert_eq!(set.bytes(), 0);
    }

    #[tokio::test]
    async fn the_first_message_is_small() {
        let set = Arc::new(InFlight::default());
        let mut long = counted(&set, allowance(100, 10, true), &[message(11, 0)]);
        let error = long.frame().await.unwrap().unwrap_err();
        assert!(error.to_string().contains("11 bytes"), "{error}");
        let later = [message(10, 10), message(11, 11)];
        let mut later = counted(&set, allowance(100, 10, true), &later);
        later.frame().await.unwrap().unwrap();
    }

    /// Each byte alone, as on a slow network.
    #[tokio::test]
    async fn a_message_is_counted_however_it_is_cut() {
        let set = Arc::new(InFlight::default());
        let bytes = [message(3, 3), message(300, 2)].concat();
        let frames: Vec<Vec<u8>> = bytes.iter().rev().map(|byte| vec![*byte]).collect();
        let share = Share::new(Arc::clone(&set), allowance(10, 10, true));
        let mut body = Counted::new(Endless(frames), share);
        for _ in bytes {
            body.frame().await.unwrap().unwrap();
        }
        assert_eq!(set.bytes(), 2);
    }

    #[tokio::test]
    async fn a_request_that_never_ends_is_ended_and_a_stream_between_messages_is_not() {
        const SHORT: Duration = Duration::from_millis(20);
        let set = Arc::new(InFlight::default());
        let whole = message(4, 4);
        let one_and_a_half = [whole.clone(), message(4, 1)].concat();
        let one_and_a_prefix = [whole.clone(), vec![0]].concat();
        for (is_stream, bytes, ends) in [
            (false, vec![], true),
            (false, message(4, 3), true),
            // Its end is missing, although its only message has arrived.
            (false, whole.clone(), true),
            (true, vec![], true),
            (true, one_and_a_half, true),
            (true, one_and_a_prefix, true),
            (true, whole, false),
        ] {
            let allowance = Allowance {
                patience: SHORT,
                ..allowance(100, 100, is_stream)
            };
            let share = Share::new(Arc::clone(&set), allowance);
            let shown = format!("{is_stream} {bytes:?}");
            let mut body = Counted::new(Endless(vec![bytes]), share);
            body.frame().await.unwrap().unwrap();
            let next = tokio::time::timeout(SHORT * 5, body.frame()).await;
            let next = next.ok().flatten().map(|frame| frame.is_err());
            assert_eq!(next, ends.then_some(true), "{shown}");
        }
    }

    #[test]
    fn all_together_have_a_limit() {
        let set = InFlight::default();
        for number in 0..8 {
            assert!(set.add(&number.to_string(), usize::MAX, TOTAL / 8));
        }
        assert!(!set.add("another", usize::MAX, 1));
        set.release("0", 1);
        assert!(set.add("another", usize::MAX, 1));
    }
}
