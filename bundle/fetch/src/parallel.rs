//! Parallel work on many items.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::error::Error;

/// Calls `work` for each item on at most `threads` threads; returns the results in the order of the
/// items, or every error.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let (mut results, mut errors) = (Vec::new(), Vec::new());
    for result in run(items, threads, work) {
        match result {
            Ok(result) => results.push(result),
            Err(error) => errors.push(error),
        }
    }
    Error::all(errors)?;
    Ok(results)
}

/// Calls `work` for each item on at most `threads` threads; returns the results in the order of the
/// items.
pub fn run<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        while let Some((index, item)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, item))
        } {
            done.push((index, work(item)));
        }
        done
    };
    let mut done: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.clamp(1, items.len().max(1)))
            .map(|_| scope.spawn(run))
            .collect();
        let joined = workers.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .flat_map(|worker| worker.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_keep_their_order_and_errors_are_all_there() {
        let items: Vec<usize> = (0..100).collect();
        assert_eq!(
            each(&items, 7, |item| Ok(item * 2)).unwrap(),
            (0..200).step_by(2).collect::<Vec<_>>()
        );
        assert!(each(&[] as &[usize], 7, |_| Ok(())).unwrap().is_empty());
        let error = each(&items, 3, |item| match item % 50 {
            7 => Err(Error::Setting(item.to_string())),
            _ => Ok(()),
        });
        assert_eq!(error.unwrap_err().to_string(), "7\n57");
    }

    #[test]
    fn as_many_run_at_once_as_threads_were_given() {
        let (together, most, now) = (Barrier::new(3), AtomicUsize::new(0), AtomicUsize::new(0));
        // Each call waits for two others, so the test ends only if three run at once.
        each(&[(); 9], 3, |()| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            together.wait();
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        })
        .unwrap();
        assert_eq!(most.load(Ordering::SeqCst), 3);
    }
}
