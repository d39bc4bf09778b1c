use crate::samples::fresh;

#[tokio::test]
async fn the_last_ledger_of_the_notifications_is_stored() {
    let (store, _directory) = &fresh().await;
    assert_eq!(store.notifications().await.unwrap(), None);
    for ledger in ["{}", "{\"sinks\":{}}"] {
        store.put_notifications(ledger).await.unwrap();
        assert_eq!(
            store.notifications().await.unwrap().as_deref(),
            Some(ledger)
        );
    }
}
