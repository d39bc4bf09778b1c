//! Updates of the minion, with a unit whose programs reach the master or do not.

use std::fs;

use super::*;

/// A unit whose later programs link or not, as the test says.
struct Scripted {
    paths: Paths,
    links: bool,
    /// The number of times that the first process, which has linked, is still seen after the
    /// restart.
    ends_after: u32,
    /// The number of times that systemd does not answer after the restart.
    unanswered: u32,
    ran: Vec<String>,
}

impl Scripted {
    fn stop_first(&self) {
        let linked = self.paths.runtime.join(LINKED);
        let _ = fs::remove_file(&linked);
        if self.links {
            fs::write(linked, format!("{}\n", self.ran.len())).unwrap();
        }
    }
}

impl Unit for Scripted {
    async fn restart(&mut self) -> HostResult<()> {
        let program = fs::read_to_string(&self.paths.program).unwrap();
        self.ran.push(program);
        if self.ends_after == 0 {
            self.stop_first();
        }
        Ok(())
    }

    async fn state(&mut self) -> HostResult<UnitNow> {
        let process = |pid: &str, run: usize| Process {
            pid: pid.to_owned(),
            invocation: format!("{run:032x}"),
        };
        if !self.ran.is_empty() && self.unanswered > 0 {
            self.unanswered -= 1;
            return Err(HostError::refused("systemd does not answer"));
        }
        let (process, state) = match self.ran.len() {
            0 => (process(FIRST, 0), "active"),
            _ if self.ends_after > 0 => {
                self.ends_after -= 1;
                if self.ends_after == 0 {
                    self.stop_first();
                }
                (process(FIRST, 0), "deactivating")
            }
            run => (process(&run.to_string(), run), "activating"),
        };
        let state = state.to_owned();
        Ok(UnitNow { process, state })
    }
}

fn scene(links: bool) -> (tempfile::TempDir, Scripted) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let paths = Paths {
        program: at("program"),
        previous: at("previous"),
        runtime: dir.path().to_owned(),
        record: at("record"),
    };
    fs::write(&paths.program, "new").unwrap();
    fs::write(&paths.previous, "old").unwrap();
    fs::write(at(LINKED), format!("{FIRST}\n")).unwrap();
    let unit = Scripted {
        paths,
        links,
        ends_after: 0,
        unanswered: 0,
        ran: Vec::new(),
    };
    (dir, unit)
}

/// The process that runs before the update.
const FIRST: &str = "999";

const LIMIT: UpdateLimits = UpdateLimits {
    stop: Duration::from_secs(2),
    link: Duration::from_secs(1),
};

/// For programs that reach the master: only a failure waits so long.
const PATIENT: UpdateLimits = UpdateLimits {
    stop: Duration::from_secs(60),
    link: Duration::from_secs(60),
};

#[tokio::test]
async fn a_program_that_reaches_the_master_stays() {
    let (_dir, mut unit) = scene(true);
    let paths = unit.paths.clone();
    fs::write(&paths.record, "of an earlier update").unwrap();
    assert!(carry_out(&mut unit, &paths, PATIENT).await.unwrap());
    assert_eq!(unit.ran, ["new"]);
    assert_eq!(fs::read_to_string(&paths.program).unwrap(), "new");
    assert!(!paths.record.exists());
}

#[tokio::test]
async fn a_program_that_does_not_is_replaced_by_the_one_before() {
    let (_dir, mut unit) = scene(false);
    let paths = unit.paths.clone();
    assert!(!carry_out(&mut unit, &paths, LIMIT).await.unwrap());
    assert_eq!(unit.ran, ["new", "old"]);
    let record: Reverted = serde_json::from_slice(&fs::read(&paths.record).unwrap()).unwrap();
    assert_eq!(record.program, sha256(b"new"));
    assert_eq!((record.seconds, record.unit.as_str()), (1, "activating"));
}

/// A full disk, for example.
#[tokio::test]
async fn a_record_that_cannot_be_written_does_not_prevent_the_rollback() {
    let (dir, mut unit) = scene(false);
    unit.paths.record = dir.path().join("missing/record");
    let paths = unit.paths.clone();
    assert!(!carry_out(&mut unit, &paths, LIMIT).await.unwrap());
    assert_eq!(unit.ran, ["new", "old"]);
    assert_eq!(fs::read_to_string(&paths.program).unwrap(), "old");
}

#[tokio::test]
async fn a_unit_whose_state_is_unknown_for_a_moment_is_queried_again() {
    for (links, limits, ran) in [
        (true, PATIENT, &["new"][..]),
        (false, LIMIT, &["new", "old"]),
    ] {
        let (_dir, mut unit) = scene(links);
        unit.unanswered = 2;
        let paths = unit.paths.clone();
        let reached = carry_out(&mut unit, &paths, limits).await;
        assert_eq!(reached.unwrap(), links);
        assert_eq!(unit.ran, ran);
    }
}

/// systemd has received the restart request, and the old minion finishes its state.
#[tokio::test]
async fn the_old_process_does_not_confirm_the_new_program() {
    let (_dir, mut unit) = scene(false);
    unit.ends_after = 3;
    let paths = unit.paths.clone();
    assert!(!carry_out(&mut unit, &paths, LIMIT).await.unwrap());
    assert_eq!(unit.ran, ["new", "old"]);
    assert_eq!(fs::read_to_string(&paths.program).unwrap(), "old");
}

#[tokio::test]
async fn the_time_of_the_new_program_begins_when_the_old_process_has_ended() {
    let (_dir, mut unit) = scene(true);
    // Longer than the new program may take.
    unit.ends_after = 7;
    let paths = unit.paths.clone();
    let limits = UpdateLimits {
        stop: PATIENT.stop,
        ..LIMIT
    };
    assert!(carry_out(&mut unit, &paths, limits).await.unwrap());
    assert_eq!(unit.ran, ["new"]);
}

#[tokio::test]
async fn an_update_fails_if_the_old_process_does_not_end() {
    let (_dir, mut unit) = scene(true);
    unit.ends_after = u32::MAX;
    let paths = unit.paths.clone();
    let limits = UpdateLimits {
        stop: LOOK,
        link: LOOK,
    };
    assert!(!carry_out(&mut unit, &paths, limits).await.unwrap());
    let record: Reverted = serde_json::from_slice(&fs::read(&paths.record).unwrap()).unwrap();
    assert_eq!(record.unit, "deactivating");
}

/// The kernel may give the new process the id of the old one.
#[tokio::test]
async fn a_new_process_with_the_old_id_confirms() {
    struct SameId(Scripted);
    impl Unit for SameId {
        async fn restart(&mut self) -> HostResult<()> {
            self.0.restart().await
        }
        async fn state(&mut self) -> HostResult<UnitNow> {
            let mut now = self.0.state().await?;
            now.process.pid = "1".to_owned();
            Ok(now)
        }
    }
    let (_dir, unit) = scene(true);
    let paths = unit.paths.clone();
    let reached = carry_out(&mut SameId(unit), &paths, PATIENT).await;
    assert!(reached.unwrap());
}

#[tokio::test]
async fn a_note_of_another_process_does_not_count() {
    let (dir, mut unit) = scene(false);
    let paths = unit.paths.clone();
    let linked = dir.path().join(LINKED);
    let late = async {
        tokio::time::sleep(LOOK).await;
        fs::write(&linked, format!("{FIRST}\n")).unwrap();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        reached = carry_out(&mut unit, &paths, LIMIT) => assert!(!reached.unwrap()),
        () = late => {}
    }
}
