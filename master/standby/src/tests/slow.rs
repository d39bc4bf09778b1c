//! A slow standby, or unreadable files of the master, do not stop the master.

use std::sync::mpsc as threads;

use super::*;

/// Runs the feed until the stream ends.
fn feed(
    feed: Feed,
    hello: StandbyHello,
    epoch: Epoch,
) -> (JoinHandle<FeedError>, oneshot::Receiver<()>) {
    let (begun, following) = oneshot::channel();
    let feed = tokio::spawn(async move {
        let begun = || {
            let _ = begun.send(());
        };
        feed.run(&epoch, &hello, begun).await.unwrap_err()
    });
    (feed, following)
}

#[tokio::test]
async fn a_directory_of_documents_that_hangs_stops_no_task_and_no_commit() {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let store = master.store().await;
    let impatient = Times {
        // Long enough for the first rounds even on a busy machine.
        round: Duration::from_secs(15),
        files: Duration::from_secs(3600),
        ..PATIENT
    };
    let ends = ends(&master, &store, standby.receiver(), impatient, None);
    let files = ends.feed.beside();
    let (feed, following) = feed(ends.feed, ends.hello, super::epoch(&store));
    following.await.unwrap();
    // A thread holds the files and hangs, as if it waited for a file system.
    let (free, hangs) = threads::channel::<()>();
    let (locked, is_locked) = oneshot::channel();
    let hung = std::thread::spawn(move || {
        let _files = files.lock().unwrap();
        locked.send(()).unwrap();
        let _ = hangs.recv();
    });
    is_locked.await.unwrap();
    // This runtime has one thread, so the test itself would stop if the feed waited for the files
    // on it.
    write(&store, 1, 10).await;
    let error = feed.await.unwrap();
    assert!(matches!(error, FeedError::Hung(_)), "{error}");
    write(&store, 2, 10).await;
    drop(free);
    hung.join().unwrap();
    let mut again = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(again.following().await);
    again.cut().await;
    let (_scratch, copy) = taken_over(&standby).await;
    assert_eq!(numbers(&copy).await, [1, 2]);
}

#[tokio::test]
async fn a_standby_that_stores_each_change_just_in_time_is_cut_off_and_stays_so_for_a_while() {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let store = master.store().await;
    let (records, mut incoming) = mpsc::channel(4);
    let (stored, stored_receiver) = watch::channel(0);
    let line = Line {
        records,
        stored: stored_receiver,
    };
    let budget = Arc::new(Mutex::new(Budget::new(BudgetLimits {
        free: Duration::from_millis(1),
        most: Duration::from_millis(50),
        window: Duration::from_secs(3600),
    })));
    let slow = Feed::new(
        store.log(),
        master.config.clone(),
        line,
        PATIENT,
        Arc::default(),
    )
    .with_budget(Arc::clone(&budget));
    let mut receiver = standby.receiver();
    receiver.begin(ca_pem()).unwrap();
    let hello = receiver.hello();
    tokio::spawn(async move {
        while let Some(record) = incoming.recv().await {
            if let Some(number) = receiver.take(record).await.unwrap() {
                tokio::time::sleep(Duration::from_millis(10)).await;
                stored.send_replace(number);
            }
        }
    });
    let (feed, following) = feed(slow, hello, super::epoch(&store));
    following.await.unwrap();
    let mut number = 0;
    while !feed.is_finished() {
        number += 1;
        write(&store, number, 10).await;
    }
    let error = feed.await.unwrap();
    assert!(matches!(error, FeedError::Overspent(_)), "{error}");
    assert!(number <= 6, "{number} commits waited for it");
    let now = tokio::time::Instant::now();
    budget.lock().unwrap().check(now).unwrap_err();
}
