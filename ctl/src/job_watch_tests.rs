use super::*;

#[test]
fn a_wait_has_its_usual_time_and_a_remedy_if_there_are_any() {
    let mut data = json!({"step": "turn", "until": "it is free", "because": "a holds it", "seconds": 10,
        "usual": null, "remedy": ""});
    assert_eq!(
        waiting(&data),
        "turn: waiting for 10 s until it is free: a holds it"
    );
    (data["usual"], data["remedy"]) = (json!(4), json!("look there"));
    assert_eq!(
        waiting(&data),
        "turn: waiting for 10 s (usually 4 s here) until it is free: a holds it; look there"
    );
}

fn event(tag: &str, data: Value, last: bool) -> v1::Event {
    v1::Event {
        tag: tag.into(),
        data_json: data.to_string(),
        last,
        retcode: 0,
        ..v1::Event::default()
    }
}

fn take(watch: &mut JobWatch, event: &v1::Event, screen: &mut Screen) -> bool {
    watch.take(event, screen, &mut |_, _, _| {})
}

#[test]
fn a_job_is_collected_from_its_events() {
    let mut screen = Screen::new(crate::output::Format::Json);
    let mut watch = JobWatch::default();
    let state = json!({"function": "file.managed", "name": "/etc/x"});
    let prog = json!({"jid": "1", "minion": "w", "index": 0, "total": 2, "state": state});
    assert_eq!(progress(&prog), "w  1/2  file.managed /etc/x");
    assert!(!take(
        &mut watch,
        &event("halite/job/1/prog/w", prog, false),
        &mut screen
    ));
    let ret =
        json!({"jid": "1", "minion": "w", "success": true, "return": {"states": []}, "error": ""});
    assert!(!take(
        &mut watch,
        &event("halite/job/1/ret/w", ret, false),
        &mut screen
    ));
    assert!(take(
        &mut watch,
        &event("halite/job/1/done", json!({"jid": "1"}), true),
        &mut screen
    ));
    let document = job_document(&watch.done);
    assert_eq!(document["changed"], 0);
    assert_eq!(document["job"], "1");
    assert_eq!(document["minions"]["w"]["total"], 0);
}

#[test]
fn a_wait_for_hosts_is_printed_once_for_each_reason() {
    let mut watch = JobWatch::default();
    let mut is_news = |hosts: &str, because: &str| {
        watch.is_news(
            &json!({"jid": "1", "step": hosts, "until": "x", "because": because, "seconds": 10}),
        )
    };
    assert!(is_news("w1", "the job runs"));
    // The reports of two hosts take turns.
    assert!(is_news("w2", "the job runs"));
    assert!(!is_news("w1", "the job runs"));
    assert!(is_news("w1", "w1 is not connected"));
    assert!(is_news("w1", "the job runs"));
    // Of hosts that are reported together some return, or their number grows.
    let mut of_hosts = |hosts: &[&str], because: &str| {
        let step = hosts.join(", ");
        watch.is_news(&json!({"jid": "1", "step": step, "hosts": hosts, "because": because}))
    };
    assert!(of_hosts(&["a", "b", "c"], "the job runs"));
    assert!(!of_hosts(&["a", "c"], "the job runs"));
    assert!(of_hosts(&["a", "c", "d"], "the job runs"));
    assert!(of_hosts(&["a", "c"], "another reason"));
}

#[test]
fn a_wait_is_no_part_of_the_document() {
    let mut screen = Screen::new(crate::output::Format::Json);
    let mut watch = JobWatch::default();
    let before = job_document(&watch.done);
    let data = json!({"jid": "", "step": "w", "until": "w has returned", "because": "it hangs", "seconds": 10,
        "usual": 7, "limit": 3600, "remedy": "`ctl job cancel 1` ends the job"});
    assert!(!take(
        &mut watch,
        &event("halite/job/1/wait", data, false),
        &mut screen
    ));
    assert_eq!(job_document(&watch.done), before);
}

#[test]
fn hosts_that_are_done_side_by_side_are_in_the_report() {
    let mut screen = Screen::new(crate::output::Format::Json);
    let mut watch = JobWatch::default();
    assert!(job_document(&watch.done)["sideBySide"].is_null());
    let data = json!({"jid": "1", "hosts": ["cp-1", "cp-2"], "because": "etcd has no quorum and is repaired, not waited \
                     for: cp-2 does not answer"});
    assert_eq!(
        side_by_side(&data),
        "etcd has no quorum and is repaired, not waited for: cp-2 does not answer; done side by side: cp-1, cp-2"
    );
    assert!(!take(
        &mut watch,
        &event("halite/job/1/repair", data, false),
        &mut screen
    ));
    let document = job_document(&watch.done);
    assert_eq!(
        document["sideBySide"]["hosts"],
        json!(["cp-1", "cp-2"]),
        "{document}"
    );
}

#[test]
fn a_return_without_states_is_shown_as_it_is() {
    let mut screen = Screen::new(crate::output::Format::Json);
    let mut watch = JobWatch::default();
    let data = json!({"jid": "1", "minion": "w", "success": true, "return": true, "error": ""});
    take(
        &mut watch,
        &event("halite/job/1/ret/w", data, false),
        &mut screen,
    );
    let done = event("halite/job/1/done", json!({"jid": "1"}), true);
    assert!(take(&mut watch, &done, &mut screen));
    assert_eq!(
        job_document(&watch.done)["minions"]["w"]["return"],
        json!(true)
    );
}

#[test]
fn what_the_update_of_a_minion_changed_is_in_the_report_of_the_highstate() {
    let mut screen = Screen::new(crate::output::Format::Json);
    let mut watch = JobWatch::default();
    let state = |id: &str, result: bool, changes: Value| {
        json!({"index": 0, "__id__": id, "name": id, "function": "file.managed", "__sls__": "s", "result": result,
            "changes": changes, "comment": "", "start_time": "", "duration": 1.0, "__run_num__": 0,
            "__state_ran__": true})
    };
    let mut ret = |jid: &str, states: Value| {
        let data = json!({"jid": jid, "minion": "w", "success": true, "return": {"states": states}, "error": ""});
        take(
            &mut watch,
            &event(&format!("halite/job/{jid}/ret/w"), data, false),
            &mut screen,
        )
    };
    let first = json!([
        state("program", true, json!({"diff": "x"})),
        state("same", true, json!({})),
        state("bad", false, json!({"diff": "x"})),
    ]);
    // Repeated, after the connection broke.
    assert!(!ret("1", first.clone()) && !ret("1", first));
    assert!(!ret("2", json!([state("program", true, json!({}))])));
    let data = json!({"jid": "1", "hosts": ["w"], "because": "it is another program", "then": "it is updated first"});
    assert_eq!(
        minion_update(&data),
        "w: it is another program; it is updated first"
    );
    for _ in 0..2 {
        take(
            &mut watch,
            &event("halite/job/1/minion", data.clone(), false),
            &mut screen,
        );
    }
    take(
        &mut watch,
        &event("halite/job/2/done", json!({"jid": "2"}), true),
        &mut screen,
    );
    let document = job_document(&watch.done);
    assert_eq!(
        (&document["changed"], &document["failed"]),
        (&json!(1), &json!(0)),
        "{document}"
    );
    assert_eq!(
        (&document["states"], &document["job"]),
        (&json!(2), &json!("2"))
    );
    assert_eq!(document["minionUpdates"].as_array().unwrap().len(), 1);
}

#[test]
fn failures_name_the_state_that_failed_itself() {
    let state = |name: &str, ran: bool, comment: &str| {
        json!({"index": 0, "__id__": name, "name": name, "function": "pkg.installed", "__sls__": "halite.host.packages",
            "result": false, "changes": {}, "comment": comment, "start_time": "", "duration": 1.0,
            "__run_num__": 0, "__state_ran__": ran})
    };
    let data = json!({"minion": "w", "success": false, "error": "",
        "return": {"states": [state("a", true, "no such package"), state("b", false, "requisite failed")]}});
    assert_eq!(
        failures(&data),
        ["w: pkg.installed a (halite.host.packages): no such package"]
    );
    let lost = json!({"minion": "w", "success": false, "error": "not connected", "return": null});
    assert_eq!(failures(&lost), ["w: not connected"]);
}
