//! Changes on a fake, with a limit of a minute of its time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use halite_etcd::fake::{FakeCluster, FakePace};
use halite_etcd::{Changes, Members, Pace};

/// Runs one change on the cluster.
pub fn run<T>(cluster: &FakeCluster, change: impl AsyncFnOnce(Changes<'_>) -> T) -> T {
    let pace = FakePace::new(cluster);
    run_with(cluster, &pace, change)
}

/// Like [`run`], with the caller's time.
pub fn run_with<T>(
    members: &dyn Members,
    pace: &dyn Pace,
    change: impl AsyncFnOnce(Changes<'_>) -> T,
) -> T {
    let changes = Changes {
        members,
        pace,
        limit: Duration::from_secs(60),
        prefer: None,
    };
    finish(Box::pin(change(changes))).expect("the fake never waits")
}

/// Polls a future that is ready at once, unless its cluster has interrupted it.
pub fn finish<T>(mut future: Pin<Box<dyn Future<Output = T> + '_>>) -> Option<T> {
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}
