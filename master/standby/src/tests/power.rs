//! A power cut of the standby's host: acknowledged data are on its disk.

use super::*;
use crate::disk::power::cut;

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_power_cut() {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    std::fs::write(master.config.config_dir.join("cluster.yaml"), "first").unwrap();
    let store = master.store().await;
    let mut last = 0;
    let mut receiver = standby.receiver();
    for round in 1..=6 {
        let mut link = link(&master, &store, receiver, PATIENT, None);
        assert!(link.following().await);
        for size in [10, 3000, 30_000] {
            last += 1;
            write(&store, last, size).await;
        }
        if round % 2 == 0 {
            // The next log starts, and the previous one is written into the standby's file.
            store.checkpoint().await.unwrap();
            last += 1;
            write(&store, last, 10).await;
        }
        let text = format!("round {round}");
        std::fs::write(master.config.config_dir.join("cluster.yaml"), &text).unwrap();
        last += 1;
        write(&store, last, 10).await;
        drop(link.cut().await);
        // After the base, SQLite writes the file of the store.
        let by_sqlite: &[&str] = if round == 1 { &[] } else { &["store.db"] };
        cut(&directory(&standby.config), by_sqlite);
        receiver = standby.receiver();
        let copy = receiver.copy().unwrap();
        assert!(copy.damage().is_empty(), "{round}: {:?}", copy.damage());
        assert!(copy.position().is_some(), "{round}");
        let (_, path, _) = copy
            .files()
            .find(|(place, _, _)| *place == "config/cluster.yaml")
            .unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), text);
        let (_scratch, taken) = taken_over(&standby).await;
        let expected: Vec<i64> = (1..=last).collect();
        assert_eq!(numbers(&taken).await, expected, "{round}");
    }
}
