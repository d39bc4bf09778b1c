//! The wait of `ctl master retire` for the next master: its current stage, its limit, and the
//! operator's options.

use std::path::Path;
use std::time::Duration;

use anyhow::Error;
use halite_api::{HandOver, HandOverPhase};
use halite_pillar::masters::STANDBY_OF;
use halite_proto::transport::{ConnectError, HandshakeError, MasterAlert};

use crate::masters::NoMaster;
use crate::output::Screen;
use crate::waiting::Waiting;

/// The longest wait for the next master, once the standby's copy is complete.
const MOVE: Duration = Duration::from_secs(300);
/// The longest wait for a master on a standby without one. A starting master asks silent hosts
/// before it serves, and reads a damaged store completely first.
const START: Duration = Duration::from_secs(300);

/// The current stage of the wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// The old host hands over: the standby of this name completes its copy. This ends without
    /// `ctl`, because the old host cancels when the standby makes no progress.
    Copies(String),
    /// The standby of this name has a complete copy, or the old host starts or stops.
    Takes(String),
    /// This host is a standby, perhaps only since a moment ago, and no master answers.
    Starts,
}

impl Stage {
    /// The stage on this host, whose master does not serve: `error` is the answer. `None` if the
    /// host neither hands over nor is a standby.
    pub fn on(directory: &Path, error: &Error) -> Option<Self> {
        if let Some(note) = note(directory) {
            let to = note.to.clone();
            return Some(if is_offered(&note) && refuses(error) {
                Self::Copies(to)
            } else {
                Self::Takes(to)
            });
        }
        directory.join(STANDBY_OF).exists().then_some(Self::Starts)
    }

    /// The stage of the move from this host to that standby. `error` is the old master's answer, if
    /// it does not serve. Without the note of the old host (`ctl` runs on another one), its refusal
    /// tells whether the standby's copy is complete; `is_recent` tells whether a refusal may mean
    /// that it is not. A master of an earlier version keeps refusing in the same way, and a master
    /// of any version refuses a revoked operator.
    pub fn of_move(
        directory: &Path,
        (from, to): (&str, &str),
        error: Option<&Error>,
        is_recent: bool,
    ) -> Self {
        let note = note(directory).filter(|note| note.from == from && note.to == to);
        let is_offered = note.map_or(is_recent, |note| is_offered(&note));
        if is_offered && error.is_some_and(refuses) {
            Self::Copies(to.to_owned())
        } else {
            Self::Takes(to.to_owned())
        }
    }

    /// The longest wait in this stage; `None` if something else ends it.
    fn limit(&self) -> Option<Duration> {
        match self {
            Self::Copies(_) => None,
            Self::Takes(_) => Some(MOVE),
            Self::Starts => Some(START),
        }
    }

    /// The awaited event, and the operator's options.
    fn words(&self) -> (String, String) {
        match self {
            Self::Copies(to) => (
                format!("{to} has a complete copy of the master"),
                format!(
                    "`journalctl -u halite-master` on both hosts shows the move; if {to} makes no progress, the old host ends \
                     the hand-over and continues as the master"
                ),
            ),
            Self::Takes(to) => (
                format!("the master on {to} serves"),
                format!(
                    "`journalctl -u halite-master` on {to} and on the old host shows the move; a hand-over that fails ends the \
                     wait, and the old host continues as the master; if {to} is dead, `ctl master promote --force --cluster \
                     NAME` on the old host takes the master back"
                ),
            ),
            Self::Starts => (
                "a master serves".to_owned(),
                "`ctl master list` shows what this standby knows; Ctrl-C ends the wait; if the master's host is dead, `ctl master \
                 promote` on this host takes its place"
                    .to_owned(),
            ),
        }
    }

    fn waiting(&self) -> Waiting {
        let (until, remedy) = self.words();
        match self.limit() {
            Some(limit) => Waiting::new(until, limit, remedy),
            None => Waiting::without_limit(until, remedy),
        }
    }

    /// The error when the wait on this host has lasted too long.
    pub fn late(&self) -> String {
        match self {
            Self::Copies(to) | Self::Takes(to) => format!(
                "this host hands the master over to {to}, which does not answer: start it; if it is dead, `ctl master promote \
                 --force --cluster NAME` on this host takes the master back"
            ),
            Self::Starts => format!(
                "cannot move the master: this host is a standby, and no master has answered for {} s; run the same command again \
                 when the master serves (`journalctl -u halite-master` on its host); if its host is dead, `ctl master promote` on \
                 this host takes its place",
                START.as_secs()
            ),
        }
    }
}

/// A wait whose stage may change. Each stage has its own limit, which starts with the stage.
pub struct Stages {
    stage: Stage,
    waiting: Waiting,
}

impl Stages {
    /// A wait that starts in this stage.
    pub fn new(stage: Stage) -> Self {
        let waiting = stage.waiting();
        Self { stage, waiting }
    }

    /// Enters a stage, unless it is the current one.
    pub fn enter(&mut self, stage: Stage) {
        if self.stage != stage {
            *self = Self::new(stage);
        }
    }

    /// Returns true if the limit of the stage has passed.
    pub fn is_over(&self) -> bool {
        self.waiting.is_over()
    }

    /// Prints a line on standard error if one is due.
    pub fn say(&mut self, screen: &mut Screen) {
        self.waiting.say(screen);
    }
}

/// Reads the record; `None` if no hand-over from this host is in progress.
pub fn note(directory: &Path) -> Option<HandOver> {
    let text = std::fs::read_to_string(directory.join(HandOver::FILE)).ok()?;
    let note: HandOver = serde_json::from_str(&text).ok()?;
    let is_under_way = note.phase != HandOverPhase::Failed && !directory.join(STANDBY_OF).exists();
    is_under_way.then_some(note)
}

/// Returns true until the standby's copy is complete.
fn is_offered(note: &HandOver) -> bool {
    note.phase == HandOverPhase::Offered
}

/// Returns true if a master answers but admits no operator: during a hand-over it admits only its
/// standbys. Once the standby's copy is complete, it sends another alert: the master has moved.
fn refuses(error: &Error) -> bool {
    let is_refusal = |source: &ConnectError| {
        matches!(
            source,
            ConnectError::Untrusted {
                source: HandshakeError::Refused(MasterAlert::NotAdmitted),
                ..
            }
        )
    };
    match error.downcast_ref::<NoMaster>() {
        Some(NoMaster::One { source, .. }) => is_refusal(source),
        Some(NoMaster::All(failures)) => failures.iter().any(|failure| is_refusal(&failure.source)),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::masters::Failure;
    use crate::reply_contract_tests::hand_over;

    fn one(source: HandshakeError) -> ConnectError {
        ConnectError::Untrusted {
            endpoint: "10.0.0.11:4550".to_owned(),
            source,
        }
    }

    /// The answer of a master whose standby has a complete copy.
    fn moved() -> Error {
        Error::new(NoMaster::One {
            address: "10.0.0.11:4550".to_owned(),
            source: one(HandshakeError::Refused(MasterAlert::Moved)),
        })
    }

    /// The answers of a master that hands over, and of a host without a master.
    fn answers() -> (Error, Error) {
        let address = "10.0.0.11:4550".to_owned();
        let refused = NoMaster::One {
            address: address.clone(),
            source: one(HandshakeError::Refused(MasterAlert::NotAdmitted)),
        };
        let silent = NoMaster::One {
            address,
            source: one(HandshakeError::Timeout),
        };
        (Error::new(refused), Error::new(silent))
    }

    /// Writes the record of a move from `cp-1` to `cp-2`.
    fn write(directory: &Path, phase: HandOverPhase) {
        let note = HandOver {
            from: "cp-1".to_owned(),
            phase,
            ..hand_over()
        };
        let text = serde_json::to_string(&note).unwrap();
        std::fs::write(directory.join(HandOver::FILE), text).unwrap();
    }

    #[test]
    fn a_master_that_hands_over_refuses_operators() {
        let (refused, silent) = answers();
        assert!(refuses(&refused) && !refuses(&silent) && !refuses(&moved()));
        assert!(!refuses(&anyhow::anyhow!(
            "halite-master.service is inactive"
        )));
        let failure = |source| Failure {
            address: String::new(),
            source,
        };
        let gone = ConnectError::Unreachable {
            endpoint: String::new(),
            source: io::Error::from(io::ErrorKind::ConnectionRefused),
        };
        let refusal = one(HandshakeError::Refused(MasterAlert::NotAdmitted));
        let all = NoMaster::All(vec![failure(gone), failure(refusal)]);
        assert!(refuses(&Error::new(all)));
    }

    #[test]
    fn the_wait_on_this_host_has_no_end_while_the_standby_takes_what_it_lacks() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let (refused, silent) = answers();
        assert_eq!(Stage::on(directory, &refused), None);
        write(directory, HandOverPhase::Offered);
        let stage = Stage::on(directory, &refused).unwrap();
        assert_eq!(stage, Stage::Copies("cp-2".to_owned()));
        assert_eq!(stage.limit(), None);
        for (phase, error) in [
            (HandOverPhase::Offered, &silent),
            (HandOverPhase::Decided, &refused),
        ] {
            write(directory, phase);
            let stage = Stage::on(directory, error).unwrap();
            assert_eq!(stage, Stage::Takes("cp-2".to_owned()), "{phase:?}");
            assert_eq!(stage.limit(), Some(MOVE));
        }
        write(directory, HandOverPhase::Failed);
        assert_eq!(Stage::on(directory, &silent), None);
    }

    /// A start on a machine three times slower than usual takes 40 s with one silent host, and more
    /// with a large store.
    #[test]
    fn a_standby_waits_for_a_slow_start_of_the_master_and_then_names_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(STANDBY_OF), "").unwrap();
        let stage = Stage::on(directory.path(), &answers().1).unwrap();
        assert_eq!(stage, Stage::Starts);
        let limit = stage.limit().unwrap();
        assert!(limit >= Duration::from_secs(120), "{limit:?}");
        let text = stage.late();
        for part in ["run the same command again", "`ctl master promote`"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_move_has_no_end_while_the_old_host_says_that_it_hands_over() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let (refused, silent) = answers();
        let moved = moved();
        let stage = |error, is_recent| {
            let stage = Stage::of_move(directory, ("cp-1", "cp-2"), error, is_recent);
            matches!(stage, Stage::Copies(_))
        };
        // Another host knows only the refusal, which tells when the standby's copy is complete.
        assert!(stage(Some(&refused), true));
        assert!(!stage(Some(&moved), true));
        assert!(!stage(Some(&refused), false));
        assert!(!stage(Some(&silent), true));
        assert!(!stage(None, true));
        // On the old host its note decides.
        write(directory, HandOverPhase::Offered);
        assert!(stage(Some(&refused), false));
        assert!(!stage(Some(&silent), false));
        write(directory, HandOverPhase::Decided);
        assert!(!stage(Some(&refused), true));
    }

    #[test]
    fn on_a_third_host_the_wait_for_a_next_master_that_is_lost_has_the_usual_limit() {
        let directory = tempfile::tempdir().unwrap();
        let hosts = ("cp-1", "cp-2");
        let stage = Stage::of_move(directory.path(), hosts, Some(&moved()), true);
        assert_eq!(stage, Stage::Takes("cp-2".to_owned()));
        assert_eq!(stage.limit(), Some(MOVE));
        let (_, remedy) = stage.words();
        assert!(remedy.contains("`ctl master promote"), "{remedy}");
    }

    #[test]
    fn the_limit_of_a_stage_begins_with_it() {
        let mut stages = Stages::new(Stage::Copies("cp-2".to_owned()));
        assert!(!stages.is_over());
        stages.enter(Stage::Takes("cp-2".to_owned()));
        assert_eq!(stages.stage.limit(), Some(MOVE));
        assert!(!stages.is_over());
    }
}
