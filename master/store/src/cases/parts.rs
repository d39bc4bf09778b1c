//! Rules of a job's parts, which are read without the sent data.

use super::*;
use crate::samples::minion;

#[tokio::test]
async fn parts_and_returns_are_those_of_the_job() {
    let (store, _directory) = &fresh().await;
    let low = Some("{}".to_owned());
    let of = |number| {
        ["a", "b", "c"].map(|id| JobRow::queued(&job_id(number), &minion(id), low.clone()))
    };
    for number in [1, 2] {
        let stored = store.create_job(&job(number, None), &of(number)).await;
        stored.unwrap();
    }
    let (one, b) = (job_id(1), minion("b"));
    assert!(store.record_return(&one, &b, &answer(3)).await.unwrap());
    let c = minion("c");
    assert!(store.mark_lost(&one, &c, "no answer", 60).await.unwrap());
    let parts = store.parts(&one).await.unwrap();
    let mut whole = Vec::new();
    for part in &parts {
        let row = store.row(&one, &part.minion).await.unwrap().unwrap();
        assert_eq!(row.low_json, low, "{}", row.minion);
        assert_eq!(StoredPart::from(&row), *part);
        whole.push(row);
    }
    let states: Vec<_> = parts
        .iter()
        .map(|part| (part.state, part.retcode))
        .collect();
    let lost = (RowState::Lost, None);
    assert_eq!(
        states,
        [
            (RowState::Queued, None),
            (RowState::Returned, Some(3)),
            lost
        ]
    );
    let asked = [minion("c"), minion("b"), minion("unknown")];
    let returns = store.returns(&one, &asked).await.unwrap();
    for row in &mut whole {
        row.low_json = None;
    }
    assert_eq!(returns, whole[1..]);
    assert!(store.returns(&one, &[]).await.unwrap().is_empty());
}
