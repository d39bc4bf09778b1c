use halite_states::low::FORMAT;
use serde_json::json;

use super::*;

type Box = (tempfile::TempDir, Arc<Jobs>, mpsc::UnboundedReceiver<Body>);

fn minion() -> Box {
    let dir = tempfile::tempdir().unwrap();
    let reports = dir.path().join("reports");
    let config = Config {
        state_dir: dir.path().to_owned(),
        reports,
        ..Config::default()
    };
    crate::identity::make_directories(&config).unwrap();
    let (outbox, inbox) = mpsc::unbounded_channel();
    let jobs = Jobs::open(
        &config,
        "me".parse().unwrap(),
        outbox,
        watch::channel(None).1,
    )
    .unwrap();
    (dir, jobs, inbox)
}

fn id(number: u64) -> JobId {
    JobId::from_number(number)
}

fn job(number: u64, function: &str, args: &str) -> Job {
    Job {
        job: id(number).into(),
        function: function.into(),
        args_json: args.into(),
        ..Job::default()
    }
}

async fn answer(inbox: &mut mpsc::UnboundedReceiver<Body>) -> JobReturn {
    loop {
        if let Body::Returned(answer) = inbox.recv().await.unwrap() {
            return answer;
        }
    }
}

#[tokio::test]
async fn a_ping_writes_nothing() {
    let (dir, jobs, mut inbox) = minion();
    jobs.accept(job(1, "test.ping", "{}"));
    assert_eq!(answer(&mut inbox).await.return_json, "true");
    assert_eq!(
        std::fs::read_dir(dir.path().join("journal"))
            .unwrap()
            .count(),
        0
    );
}

#[tokio::test]
async fn a_command_runs_once_and_is_answered_until_stored() {
    let (dir, jobs, mut inbox) = minion();
    let line = format!("echo x >> {}/ran", dir.path().display());
    let args = json!({"cmd": line}).to_string();
    for _ in 0..3 {
        jobs.accept(job(1, "cmd.run", &args));
        assert_eq!(answer(&mut inbox).await.retcode, 0);
    }
    assert_eq!(
        std::fs::read_to_string(dir.path().join("ran")).unwrap(),
        "x\n"
    );
    jobs.resend_answers();
    assert_eq!(id(1), answer(&mut inbox).await.job.as_str());
    jobs.stored(&id(1));
    jobs.resend_answers();
    assert!(inbox.try_recv().is_err());
}

#[tokio::test]
async fn states_run_and_report_each() {
    let (_dir, jobs, mut inbox) = minion();
    let low = json!({"format": FORMAT, "minion": "me", "chunks": [{
        "state": "test", "fun": "succeed_without_changes", "id": "a", "name": "a", "sls": "s",
        "source": {"file": "s.sls", "line": 1, "column": 1}}]});
    let order = Job {
        low_json: low.to_string(),
        ..job(1, "state.apply", "{}")
    };
    jobs.accept(order);
    let mut seen = Vec::new();
    while let Some(body) = inbox.recv().await {
        match body {
            Body::Started(_) => seen.push("started"),
            Body::Progress(progress) => {
                assert_eq!((progress.index, progress.total), (0, 1));
                seen.push("progress");
            }
            Body::Returned(answer) => {
                assert_eq!(answer.retcode, 0, "{answer:?}");
                seen.push("returned");
                break;
            }
            _ => {}
        }
    }
    assert_eq!(seen, ["started", "progress", "returned"]);
}

#[tokio::test]
async fn a_new_report_of_scheduled_work_is_sent_once() {
    let (dir, jobs, mut inbox) = minion();
    jobs.grains().await;
    jobs.check_reports().await;
    assert!(inbox.try_recv().is_err(), "there is none yet");
    let reports = dir.path().join("reports");
    std::fs::create_dir(&reports).unwrap();
    for failure in [None, Some("no room")] {
        std::fs::write(
            reports.join("a.json"),
            json!({"failure": failure}).to_string(),
        )
        .unwrap();
        jobs.check_reports().await;
        let Ok(Body::Grains(sent)) = inbox.try_recv() else {
            panic!("not sent")
        };
        let grains: Value = serde_json::from_str(&sent.grains_json).unwrap();
        assert_eq!(grains["reports"]["a.json"]["failure"], json!(failure));
        assert_eq!(grains["id"], "me");
        jobs.check_reports().await;
        assert!(inbox.try_recv().is_err(), "sent twice");
    }
}

#[tokio::test]
async fn a_job_for_another_minion_is_refused() {
    let (_dir, jobs, mut inbox) = minion();
    let low = |format: u32, minion: &str| {
        json!({"format": format, "minion": minion, "chunks": []}).to_string()
    };
    for (number, low, expected) in [
        (1, low(FORMAT, "other"), "is for other"),
        (2, low(FORMAT + 1, "me"), "update the minion"),
        (3, "{".into(), "line 1"),
    ] {
        jobs.accept(Job {
            low_json: low,
            ..job(number, "state.apply", "{}")
        });
        let answer = answer(&mut inbox).await;
        assert!(
            answer.retcode == 1 && answer.error.contains(expected),
            "{answer:?}"
        );
    }
    jobs.accept(job(9, "cmd.exec_all", "{}"));
    assert!(
        answer(&mut inbox)
            .await
            .error
            .contains("no function `cmd.exec_all`")
    );
}

#[tokio::test]
async fn a_job_whose_id_is_none_is_refused_and_leaves_no_file() {
    let (dir, jobs, mut inbox) = minion();
    let args = json!({"cmd": format!("touch {}/ran", dir.path().display())}).to_string();
    for bad in ["", "..", "../x", "1", "2026112100000012300a"] {
        let order = Job {
            job: bad.into(),
            ..job(1, "cmd.run", &args)
        };
        jobs.accept(order);
        let answer = answer(&mut inbox).await;
        assert_eq!((answer.job.as_str(), answer.retcode), (bad, 1));
        assert!(answer.error.contains("20 decimal digits"), "{answer:?}");
    }
    assert!(!dir.path().join("ran").exists());
    let records = std::fs::read_dir(dir.path().join("journal")).unwrap();
    assert_eq!(records.count(), 0);
}

/// A job of one state that fails, and is retried for hours.
fn tried_for_hours(dir: &Path, number: u64) -> Job {
    let line = format!("echo x >> {}/ran; exit 1", dir.display());
    let low = json!({"format": FORMAT, "minion": "me", "chunks": [
        {"state": "cmd", "fun": "run", "id": "a", "name": line, "sls": "s",
         "source": {"file": "s.sls", "line": 1, "column": 1},
         "controls": {"retry": {"attempts": 100, "interval": 3600.0, "until": true}}},
        {"state": "cmd", "fun": "run", "id": "b", "name": line, "sls": "s",
         "source": {"file": "s.sls", "line": 2, "column": 1},
         "controls": {"onlyif": [line]}},
    ]});
    Job {
        low_json: low.to_string(),
        ..job(number, "state.apply", "{}")
    }
}

#[tokio::test]
async fn a_retry_ends_when_its_job_is_cancelled_or_the_minion_stops() {
    for stops in [false, true] {
        let (dir, jobs, mut inbox) = minion();
        jobs.accept(tried_for_hours(dir.path(), 1));
        let ran = dir.path().join("ran");
        while std::fs::read(&ran).unwrap_or_default().is_empty() {
            tokio::task::yield_now().await;
        }
        if stops {
            jobs.drain(Duration::from_secs(600)).await;
        } else {
            jobs.cancel(&id(1), "cancelled by anna", false);
        }
        // Only a failure waits so long.
        let answer = tokio::time::timeout(Duration::from_secs(60), answer(&mut inbox));
        let answer = answer.await.expect("the job still runs");
        let reason = if stops { STOPPING } else { "cancelled by anna" };
        assert!(answer.error.ends_with(reason), "{answer:?}");
        assert!(
            answer
                .return_json
                .contains(&format!("not tried again: {reason}")),
            "{answer:?}"
        );
        assert_eq!(
            std::fs::read_to_string(&ran).unwrap(),
            "x\n",
            "nothing follows"
        );
    }
}

#[tokio::test]
async fn a_long_output_loses_its_secrets_before_it_is_cut() {
    let line: String = (0..600).map(|n| format!("{n:05}")).collect();
    let lines: Vec<String> = (0..50).map(|n| format!("{n:04}").repeat(16)).collect();
    let lines = lines.join("\n");
    for (number, secret) in (1..).zip([line, lines]) {
        let (_dir, jobs, mut inbox) = minion();
        let low = json!({"format": FORMAT, "minion": "me", "chunks": [
            {"state": "cmd", "fun": "run", "id": "a", "name": "echo \"it was $S\" >&2; exit 3", "sls": "s",
             "source": {"file": "s.sls", "line": 1, "column": 1}, "sensitive": true,
             "args": {"env": [{"S": secret}]}},
            {"state": "cmd", "fun": "run", "id": "b", "name": "head -c 3000 /dev/zero | tr '\\0' x; exit 3", "sls": "s",
             "source": {"file": "s.sls", "line": 2, "column": 1}},
        ]});
        jobs.accept(Job {
            low_json: low.to_string(),
            ..job(number, "state.apply", "{}")
        });
        let answer = answer(&mut inbox).await;
        for piece in secret.as_bytes().windows(8) {
            let piece = std::str::from_utf8(piece).unwrap();
            assert!(!answer.return_json.contains(piece), "{piece}: {answer:?}");
        }
        let result: Value = serde_json::from_str(&answer.return_json).unwrap();
        let comment = |at: usize| result["states"][at]["comment"].as_str().unwrap().to_owned();
        assert!(
            comment(0).contains("exit code 3: it was <redacted"),
            "{answer:?}"
        );
        let cut = format!("[cut here]{}", "x".repeat(2000));
        assert!(
            comment(1).ends_with(&cut),
            "the master must see where it was cut: {answer:?}"
        );
    }
}
