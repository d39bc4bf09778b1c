//! Signatures of state functions, as data: a wrong argument is a compile error, and the reference
//! is generated from them.

/// One state function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// Module, for example `file`.
    pub state: &'static str,
    /// Function, for example `managed`.
    pub fun: &'static str,
    /// One sentence.
    pub doc: &'static str,
    /// Arguments besides `name` and the global ones.
    pub args: &'static [Arg],
    /// Who runs it.
    pub runs_on: RunsOn,
}

/// Where a state function is implemented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunsOn {
    /// On a managed host, by the minion.
    Minion,
    /// On the master: Kubernetes objects.
    Master,
    /// On the master, as a step of an orchestration.
    Orchestration,
}

/// One argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arg {
    /// Its name in the SLS.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Whether it must be given.
    pub required: bool,
    /// Meaning, unit and default, in one sentence.
    pub doc: &'static str,
}

/// What an argument takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text; numbers and booleans are taken as they were written.
    Text,
    /// A whole number.
    Integer,
    /// true or false.
    Boolean,
    /// A file mode: `0644`, `'0644'` or `644`, always octal.
    Mode,
    /// A list of texts; one text is a list of one.
    TextList,
    /// A mapping.
    Mapping,
    /// Any value.
    Any,
}
