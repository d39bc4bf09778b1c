//! Low state: the compiled, ordered, fully rendered list of state calls for one minion.
//!
//! It is the contract between compiler and executor, as plain data: the master stores it, sends it
//! to the minion, and `ctl render` prints it. Low state and low chunk are Salt's terms.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use halite_document::Position;

/// The version of this format. A minion refuses a low state with a higher number.
pub const FORMAT: u32 = 1;

/// All state calls for one minion, in the order in which they run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LowState {
    /// Always [`FORMAT`] when written by this version.
    pub format: u32,
    /// The minion for which it was compiled.
    pub minion: String,
    /// The calls. Requisites refer to positions in this list.
    pub chunks: Vec<Chunk>,
}

/// One state call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    /// State module, for example `file`.
    pub state: String,
    /// Function of the module, for example `managed`.
    pub fun: String,
    /// The state's id in its SLS (`__id__`).
    pub id: String,
    /// The `name` argument; by default the id.
    pub name: String,
    /// The SLS that declares it, dotted, for example `halite.base.etcd`.
    pub sls: String,
    /// The call's position in the source.
    pub source: Position,
    /// Arguments of the function, without `name`, requisites and controls.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
    /// Resolved requisites.
    #[serde(default, skip_serializing_if = "Requisites::is_empty")]
    pub requisites: Requisites,
    /// Global arguments that control whether and how the call runs.
    #[serde(default, skip_serializing_if = "Controls::is_default")]
    pub controls: Controls,
    /// `true` if an argument contains, or was made from, a secret: no diff and no value of the call
    /// is shown or stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
}

impl Chunk {
    /// Salt's key of a return: `state_|-id_|-name_|-fun`.
    #[must_use]
    pub fn tag(&self) -> String {
        format!(
            "{}_|-{}_|-{}_|-{}",
            self.state, self.id, self.name, self.fun
        )
    }

    /// `state.fun`, as written in an SLS.
    #[must_use]
    pub fn function(&self) -> String {
        format!("{}.{}", self.state, self.fun)
    }
}

/// Requisites by kind, each a list of positions in [`LowState::chunks`]. `_in` forms and `use` are
/// already resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    missing_docs,
    reason = "the names are Salt's requisites; their semantics are those of Salt, see docs/coming-from-salt.md"
)]
pub struct Requisites {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub require_any: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub watch: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub watch_any: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub onchanges: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub onchanges_any: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub onfail: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub onfail_any: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub onfail_all: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prereq: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<usize>,
}

impl Requisites {
    /// `true` if the call depends on nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Salt's global state arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Controls {
    /// Skip when all hold (shell commands, or `{fun: …, args…}` calls).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unless: Vec<Value>,
    /// Run only when all hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub onlyif: Vec<Value>,
    /// Skip when all of these paths exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub creates: Vec<String>,
    /// Shell commands that must succeed afterwards (except for `file.managed`, whose `check_cmd` is
    /// an argument).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub check_cmd: Vec<String>,
    /// Further attempts after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// May run in parallel with the calls after it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub parallel: bool,
    /// A failure ends the run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failhard: bool,
    /// `false` in an `onfail` handler: a failure that it handles does not fail the run.
    #[serde(skip_serializing_if = "is_true")]
    pub onfail_stop: bool,
    /// User that runs the shell commands above and `cmd.*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runas: Option<String>,
}

impl Default for Controls {
    fn default() -> Self {
        Self {
            unless: Vec::new(),
            onlyif: Vec::new(),
            creates: Vec::new(),
            check_cmd: Vec::new(),
            retry: None,
            parallel: false,
            failhard: false,
            onfail_stop: true,
            runas: None,
        }
    }
}

impl Controls {
    /// `true` if nothing is set.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if passes references"
)]
fn is_true(value: &bool) -> bool {
    *value
}

/// `retry`: run again until the result is `until`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    /// All attempts, the first included.
    pub attempts: u32,
    /// Seconds between attempts.
    pub interval: f64,
    /// Result that ends the attempts.
    pub until: bool,
    /// Most seconds that are added to an interval, at random.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub splay: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if passes references"
)]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// The return of one state call, in the form of Salt's returns with an absolute start time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateReturn {
    /// The chunk's position in its low state.
    pub index: usize,
    /// The chunk's id.
    #[serde(rename = "__id__")]
    pub id: String,
    /// The chunk's name.
    pub name: String,
    /// `state.fun`.
    pub function: String,
    /// The chunk's SLS.
    #[serde(rename = "__sls__")]
    pub sls: String,
    /// `Some(true)`: as declared; `Some(false)`: failed; `None`: would change (test mode only).
    pub result: Option<bool>,
    /// Changes that were, or would be, made; empty if none.
    pub changes: Map<String, Value>,
    /// One sentence for people.
    pub comment: String,
    /// RFC 3339, UTC.
    pub start_time: String,
    /// Milliseconds.
    pub duration: f64,
    /// Position in the run, without gaps.
    #[serde(rename = "__run_num__")]
    pub run_num: usize,
    /// `false` if a requisite or a control prevented it from running.
    #[serde(rename = "__state_ran__")]
    pub ran: bool,
    /// `true` if a `false` result counts against the run; `false` once an `onfail` state with
    /// `onfail_stop: false` handled it.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub fail_run: bool,
}

fn yes() -> bool {
    true
}

/// The returns of a whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReturn {
    /// In the order in which they ran; `listen` calls come last.
    pub states: Vec<StateReturn>,
}

impl RunReturn {
    /// `true` if no state that counts against the run has failed.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.states
            .iter()
            .all(|s| s.result != Some(false) || !s.fail_run)
    }

    /// Number of states that changed something (or would, in test mode).
    #[must_use]
    pub fn changed(&self) -> usize {
        self.states
            .iter()
            .filter(|s| s.result.is_none() || !s.changes.is_empty())
            .count()
    }

    /// Number of failed states that count against the run.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.failures(true)
    }

    /// Number of failed states that an `onfail` state handled.
    #[must_use]
    pub fn handled(&self) -> usize {
        self.failures(false)
    }

    fn failures(&self, fail_run: bool) -> usize {
        self.states
            .iter()
            .filter(|s| s.result == Some(false) && s.fail_run == fail_run)
            .count()
    }
}
