//! The time that a step usually takes at this site, from the stored runs of the same orchestration.

use std::collections::BTreeMap;
use std::time::Duration;

use halite_store::{Run, Step, StepStatus, Store, StoreError};

/// The number of newest runs that are searched for runs of the same orchestration.
const RUNS: u32 = 20;
/// The number of samples that are enough.
const ENOUGH: usize = 5;

/// The median time of the newest successful steps of this name; `None` without any.
///
/// # Errors
/// The store fails.
pub(super) async fn usual(
    store: &Store,
    run: &Run,
    name: &str,
) -> Result<Option<Duration>, StoreError> {
    let mut times = Vec::new();
    for before in store.runs(RUNS).await? {
        if before.id == run.id || before.sls != run.sls || before.test {
            continue;
        }
        let steps = store.steps(&before.id).await?;
        times.extend(steps.iter().filter(|step| step.name == name).find_map(time));
        if times.len() >= ENOUGH {
            break;
        }
    }
    times.sort_unstable();
    Ok(times.get(times.len() / 2).copied())
}

/// The median time of the newest successful steps of an orchestration, by name.
///
/// # Errors
/// The store fails.
pub async fn usual_steps(
    store: &Store,
    sls: &str,
) -> Result<BTreeMap<String, Duration>, StoreError> {
    let mut times: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    let enough = u32::try_from(ENOUGH).unwrap_or(u32::MAX);
    for run in store.newest_runs_of(sls, enough).await? {
        for step in store.steps(&run.id).await? {
            if let Some(time) = time(&step) {
                times.entry(step.name).or_default().push(time);
            }
        }
    }
    let median = |(name, mut times): (String, Vec<Duration>)| {
        times.sort_unstable();
        let middle = times.get(times.len() / 2).copied();
        Some((name, middle?))
    };
    Ok(times.into_iter().filter_map(median).collect())
}

/// The time that a step has taken, if it succeeded.
fn time(step: &Step) -> Option<Duration> {
    let millis = step.ended?.checked_sub(step.started?)?;
    let millis = u64::try_from(millis).ok()?;
    (step.status == StepStatus::Succeeded).then(|| Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use halite_proto::ids::JobId;
    use halite_store::RunStatus;

    use super::*;

    fn run(id: &str, sls: &str) -> Run {
        Run {
            id: id.parse().unwrap(),
            sls: sls.to_owned(),
            pillar_json: "{}".to_owned(),
            test: false,
            operator: "root".to_owned(),
            request_id: None,
            low_json: "{}".to_owned(),
            status: RunStatus::Succeeded,
            current: 0,
            cancelled_by: None,
            paused_by: None,
            created: 0,
            changed: 0,
        }
    }

    fn step(run: &JobId, name: &str, status: StepStatus, millis: i64) -> Step {
        Step {
            run: run.clone(),
            index: 0,
            name: name.to_owned(),
            status,
            detail_json: "{}".to_owned(),
            started: Some(1_000),
            ended: Some(1_000 + millis),
        }
    }

    #[tokio::test]
    async fn the_usual_time_is_the_median_of_steps_that_succeeded_in_runs_of_the_same_kind() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("store.db");
        let store = &Store::open(&file).await.unwrap();
        let add = "halite.orchestrate.add_node";
        let own = run("20261121000000123009", add);
        assert_eq!(usual(store, &own, "kubelet").await.unwrap(), None);
        for (index, (sls, status, millis)) in [
            (add, StepStatus::Succeeded, 4_000),
            (add, StepStatus::Succeeded, 5_000),
            (add, StepStatus::Succeeded, 90_000),
            (add, StepStatus::Failed, 600_000),
            ("halite.orchestrate.remove_node", StepStatus::Succeeded, 1),
        ]
        .into_iter()
        .enumerate()
        {
            let before = run(&format!("2026112100000012300{index}"), sls);
            let steps = [step(&before.id, "kubelet", status, millis)];
            store.create_run(&before, &steps).await.unwrap();
        }
        let all = usual_steps(store, add).await.unwrap();
        assert_eq!(
            all.into_iter().collect::<Vec<_>>(),
            [("kubelet".to_owned(), Duration::from_secs(5))]
        );
        let own_steps = [step(&own.id, "kubelet", StepStatus::Succeeded, 7)];
        store.create_run(&own, &own_steps).await.unwrap();
        assert_eq!(usual(store, &own, "ready").await.unwrap(), None);
        let found = usual(store, &own, "kubelet").await.unwrap();
        assert_eq!(found, Some(Duration::from_secs(5)));
    }
}
