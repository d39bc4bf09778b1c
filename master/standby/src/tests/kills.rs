//! Kills of either side: everything that the master answered while a standby followed is in its
//! copy.

use std::sync::atomic::Ordering;

use super::*;

/// Numbers without a pattern, the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // These are the constants of Knuth's MMIX.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[tokio::test]
async fn an_answered_change_is_in_the_copy_wherever_the_standby_is_killed() {
    for killed_at in 1..16 {
        let (master, standby) = (MasterHost::new(), MasterHost::new());
        let store = master.store().await;
        write(&store, 0, 10).await;
        let mut link = link(
            &master,
            &store,
            standby.receiver(),
            PATIENT,
            Some(killed_at),
        );
        if !link.following().await {
            // Killed during the base: the host has no copy, and the master continues without it.
            write(&store, 1, 10).await;
            assert!(standby.receiver().copy().is_none() || killed_at > 4);
            continue;
        }
        let mut answered = vec![0];
        for number in 1..40 {
            write(&store, number, 3000).await;
            if !link.alive.load(Ordering::SeqCst) {
                break;
            }
            answered.push(number);
        }
        assert!(matches!(link.feed.await.unwrap(), FeedError::Gone));
        let (_scratch, copy) = taken_over(&standby).await;
        let found = numbers(&copy).await;
        assert!(
            answered.iter().all(|number| found.contains(number)),
            "{killed_at}: {answered:?} in {found:?}"
        );
        // There are no gaps.
        let expected: Vec<i64> = (0..).take(found.len()).collect();
        assert_eq!(found, expected);
    }
}

/// Writes of all sizes, checkpoints, kills of the standby at any record, restarts of the master.
async fn life(seed: u64) {
    let mut dice = Dice(seed);
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let mut store = master.store().await;
    let mut last = 0;
    for _ in 0..8 {
        let killed_at = 1 + dice.roll(120);
        let mut link = link(
            &master,
            &store,
            standby.receiver(),
            PATIENT,
            Some(killed_at),
        );
        let follows = link.following().await;
        let mut answered = Vec::new();
        for _ in 0..dice.roll(40) {
            last += 1;
            // Some are larger than the cache of the connection, so that they reach the log before
            // their commit; some are enough for a checkpoint.
            let size = [10, 3000, 30_000, 400_000][usize::try_from(dice.roll(4)).unwrap()];
            write(&store, last, size).await;
            if follows && link.alive.load(Ordering::SeqCst) {
                answered.push(last);
            }
            if dice.roll(10) == 0 {
                store.checkpoint().await.unwrap();
            }
        }
        let receiver = link.cut().await;
        drop(receiver);
        if standby.receiver().copy().is_some() {
            let (_scratch, copy) = taken_over(&standby).await;
            let found = numbers(&copy).await;
            let expected: Vec<i64> = (1..).take(found.len()).collect();
            assert_eq!(found, expected, "seed {seed}");
            let most = answered.last().copied().unwrap_or_default();
            assert!(
                found.last().copied().unwrap_or_default() >= most,
                "seed {seed}"
            );
        }
        if dice.roll(3) == 0 {
            store.close().await;
            store = master.store().await;
        }
    }
    let mut link = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(link.following().await);
    write(&store, last + 1, 10).await;
    link.cut().await;
    // After both logs are written into the files, the bytes must be equal.
    store.close().await;
    let (_scratch, copy) = taken_over(&standby).await;
    let original = std::fs::read(master.config.state_dir.join("store.db")).unwrap();
    assert!(std::fs::read(&copy).unwrap() == original, "seed {seed}");
}

#[tokio::test]
async fn whatever_happens_the_copy_is_the_store_at_some_moment_and_in_the_end_the_same_bytes() {
    for seed in 1..=5 {
        life(seed).await;
    }
}

#[tokio::test]
async fn a_base_is_taken_while_the_master_writes() {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let store = master.store().await;
    for number in 0..20 {
        write(&store, number, 200_000).await;
    }
    let writer = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for number in 20..200 {
                write(&store, number, 5000).await;
            }
        }
    });
    let mut link = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(link.following().await);
    writer.await.unwrap();
    link.cut().await;
    store.close().await;
    let (_scratch, copy) = taken_over(&standby).await;
    let original = std::fs::read(master.config.state_dir.join("store.db")).unwrap();
    assert!(std::fs::read(&copy).unwrap() == original);
}

#[tokio::test]
async fn commits_continue_without_a_silent_standby_and_it_returns_without_a_base() {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let store = master.store().await;
    let mut first = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(first.following().await);
    let receiver = first.cut().await;
    let position = receiver.copy().unwrap().position();
    // It receives the records and acknowledges none.
    let (records, mut incoming) = mpsc::channel(100);
    let (stored, stored_receiver) = watch::channel(0);
    let line = Line {
        records,
        stored: stored_receiver,
    };
    let impatient = Times {
        // Long enough for the first round even on a busy machine.
        round: Duration::from_secs(15),
        ..PATIENT
    };
    let feed = Feed::new(
        store.log(),
        master.config.clone(),
        line,
        impatient,
        Arc::default(),
    );
    let hello = receiver.hello();
    let (begun, following) = oneshot::channel();
    let epoch = super::epoch(&store);
    let feed = tokio::spawn(async move {
        let begun = || {
            let _ = begun.send(());
        };
        feed.run(&epoch, &hello, begun).await.unwrap_err()
    });
    // The round with the files is acknowledged, so that the standby follows.
    while let Some(record) = incoming.recv().await {
        if record.sync {
            stored.send_replace(record.number);
            break;
        }
    }
    following.await.unwrap();
    write(&store, 1, 10).await;
    assert!(matches!(feed.await.unwrap(), FeedError::Slow(_)));
    write(&store, 2, 10).await;
    let copies = || std::fs::read_dir(directory(&standby.config)).unwrap();
    let names = || -> Vec<String> {
        let mut names: Vec<String> = copies()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let before = names();
    let mut again = link(&master, &store, receiver, PATIENT, None);
    assert!(again.following().await);
    let receiver = again.cut().await;
    assert_eq!(names(), before, "the same copy");
    assert_ne!(receiver.copy().unwrap().position(), position);
    let (_scratch, copy) = taken_over(&standby).await;
    assert_eq!(numbers(&copy).await, [1, 2]);
}

#[tokio::test]
async fn a_log_that_began_again_without_the_standby_takes_a_base_and_otherwise_none() {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let store = master.store().await;
    let mut link_1 = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(link_1.following().await);
    let receiver = link_1.cut().await;
    let first = receiver.copy().unwrap().store();
    // The end of the checkpointed log is the end of the copy: the next log follows it.
    store.checkpoint().await.unwrap();
    write(&store, 1, 10).await;
    let mut link_2 = link(&master, &store, receiver, PATIENT, None);
    assert!(link_2.following().await);
    let receiver = link_2.cut().await;
    assert_eq!(receiver.copy().unwrap().store(), first);
    write(&store, 2, 10).await;
    store.checkpoint().await.unwrap();
    write(&store, 3, 10).await;
    let mut link_3 = link(&master, &store, receiver, PATIENT, None);
    assert!(link_3.following().await);
    let receiver = link_3.cut().await;
    assert_ne!(receiver.copy().unwrap().store(), first);
    assert!(!first.exists(), "the previous copy is removed");
    let (_scratch, copy) = taken_over(&standby).await;
    assert_eq!(numbers(&copy).await, [1, 2, 3]);
}
