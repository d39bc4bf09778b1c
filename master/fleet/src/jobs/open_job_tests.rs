use halite_core::clock::ManualClock;
use halite_core::names::minion;
use halite_store::JobStatus;

use super::*;

/// The number of minions of a large job.
const MANY: usize = 1000;
const NOW: Steady = Steady(1);

fn names(prefix: &str, number: usize) -> Vec<MinionId> {
    let names = (0..number).map(|number| minion(&format!("{prefix}-{number}")));
    names.collect()
}

fn open(order: Vec<Vec<MinionId>>, minions: &[MinionId], gates: &[MinionId]) -> OpenJob {
    let job = Job {
        job_id: "20261121000000000001".parse().unwrap(),
        function: "state.highstate".to_owned(),
        args_json: "{}".to_owned(),
        test: false,
        operator: "root".to_owned(),
        target: "*".to_owned(),
        minions: minions.to_vec(),
        order,
        created: 0,
        deadline: None,
        steady_deadline: None,
        request_id: None,
        status: JobStatus::Running,
        retcode: None,
        finished: None,
        bundle: None,
    };
    let parts: Vec<StoredPart> = minions
        .iter()
        .map(|minion| StoredPart {
            minion: minion.clone(),
            state: RowState::Queued,
            retcode: None,
            error: String::new(),
            ended: None,
        })
        .collect();
    OpenJob::new(
        Function::find("state.highstate").unwrap(),
        &Arc::new(job),
        &parts,
        gates.iter().cloned().collect(),
        &ManualClock::at(0),
    )
}

/// Ends the parts of these minions; returns the minions that this releases.
fn end_all(job: &mut OpenJob, minions: &[MinionId]) -> Vec<MinionId> {
    let mut released = Vec::new();
    for minion in minions {
        job.end(minion, PartEnd::Succeeded);
        released.extend(job.make_ready(NOW));
    }
    released
}

#[test]
fn the_parts_of_a_job_without_an_order_are_inspected_once() {
    let all = names("worker", MANY);
    let mut job = open(Vec::new(), &all, &[]);
    assert_eq!(job.ready_since.len(), MANY);
    assert!(end_all(&mut job, &all).is_empty());
    assert!(job.begin_end());
    assert!(job.inspected <= 2 * MANY, "{}", job.inspected);
}

#[test]
fn the_groups_of_an_ordered_job_are_inspected_once() {
    // The groups of a large cluster: a few hosts one after the other, then all others.
    let (first, others) = (names("cp", 3), names("worker", MANY));
    let mut order: Vec<Vec<MinionId>> = first.iter().map(|host| vec![host.clone()]).collect();
    order.push(others.clone());
    let last = names("last", 1);
    order.push(last.clone());
    let all = [first.clone(), others.clone(), last.clone()].concat();
    let mut job = open(order, &all, &[]);
    assert_eq!(end_all(&mut job, &first[..1]), first[1..2]);
    assert_eq!(end_all(&mut job, &first[1..2]), first[2..]);
    let mut released = end_all(&mut job, &first[2..]);
    released.sort();
    let mut sorted = others.clone();
    sorted.sort();
    assert_eq!(released, sorted);
    assert_eq!(end_all(&mut job, &others), last);
    assert!(end_all(&mut job, &last).is_empty());
    assert!(job.begin_end());
    assert!(job.inspected <= 3 * all.len(), "{}", job.inspected);
}

#[test]
fn hosts_at_a_gate_are_released_one_by_one_and_the_next_group_after_them() {
    let (group, next) = (names("cp", 2), names("worker", 2));
    let order = vec![group.clone(), next.clone()];
    let all = [group.clone(), next.clone()].concat();
    let mut job = open(order, &all, &group);
    assert!(job.ready_since.is_empty());
    assert_eq!(job.begin_gate().as_ref(), Some(&group[0]));
    assert_eq!(job.begin_gate(), None);
    assert_eq!(job.pass_gate(&group[0], NOW), group[..1]);
    assert_eq!(job.begin_gate().as_ref(), Some(&group[1]));
    assert!(end_all(&mut job, &group[..1]).is_empty());
    assert_eq!(job.pass_gate(&group[1], NOW), group[1..]);
    assert_eq!(end_all(&mut job, &group[1..]), next);
}

#[test]
fn a_repair_in_parallel_releases_the_hosts_of_later_groups() {
    let (first, hosts, next) = (names("free", 1), names("cp", 2), names("worker", 2));
    let order = vec![first.clone(), hosts.clone(), next.clone()];
    let all = [first.clone(), hosts.clone(), next.clone()].concat();
    let mut job = open(order, &all, &hosts);
    assert_eq!(job.ready_since.len(), 1);
    assert_eq!(
        job.repair(NOW),
        hosts,
        "although the first group has not ended"
    );
    assert!(end_all(&mut job, &hosts).is_empty());
    assert_eq!(end_all(&mut job, &first), next);
}

/// The compilation of a large job takes minutes, of which the hosts must lose none after a boot.
#[test]
fn a_reboot_after_a_long_compilation_takes_no_time_from_the_hosts() {
    let clock = ManualClock::at(0);
    let job = open(Vec::new(), &names("worker", 1), &[]).job;
    clock.advance(20 * 60_000);
    let time = JobTime::from_now(&clock, 60);
    let steady = time.steady_deadline.clone();
    let of_another_boot = SteadyDeadline {
        boot: "another".to_owned(),
        ..steady.clone()
    };
    for known in [Some(steady), Some(of_another_boot), None] {
        let job = Job {
            created: time.created,
            deadline: Some(time.deadline),
            steady_deadline: known,
            ..Job::clone(&job)
        };
        assert_eq!(deadline(&job, &clock), Some(clock.steady() + 60_000));
    }
}
