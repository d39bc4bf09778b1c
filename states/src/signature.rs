//! Types of signatures: the arguments of state functions as data. A wrong argument is an error of
//! the compiler, and the reference is generated from the signatures.

/// One state function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// Module, for example `file`.
    pub state: &'static str,
    /// Function, for example `managed`.
    pub fun: &'static str,
    /// One sentence.
    pub doc: &'static str,
    /// Arguments, without `name` and the global ones.
    pub args: &'static [Arg],
    /// The program that runs it.
    pub runs_on: RunsOn,
}

/// The place where a state function runs.
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
    /// The type of its value.
    pub kind: ArgumentKind,
    /// An SLS must give it.
    pub required: bool,
    /// Meaning, unit and default, in one sentence.
    pub doc: &'static str,
}

/// The type of an argument's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentKind {
    /// Text; a number or boolean only if YAML keeps its spelling (`8080`, not `0755` or `yes`).
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of these words; one word is a list of one.
    Words(&'static [&'static str]),
    /// An absolute path.
    Path,
    /// A list of IP addresses; one address is a list of one.
    Addresses,
    /// A text, number or boolean, whose value counts and not its spelling.
    Scalar,
    /// A whole number.
    Integer,
    /// A whole number from the first to the second one.
    Within(i64, i64),
    /// A whole number of 32 bits, or a list of them.
    Codes,
    /// true or false.
    Boolean,
    /// A file mode: `0644`, `'0644'` or `644`, always octal.
    Mode,
    /// One text, or a list of alternatives, of which the first that exists counts.
    Sources,
    /// A list of texts; one text is a list of one.
    TextList,
    /// A regular expression, or a part of the line to find, as [`LinePattern`] reads it.
    ///
    /// [`LinePattern`]: crate::pattern::LinePattern
    LinePattern,
    /// A list of patterns of relative paths, as [`PathPattern`] reads them; one is a list of one.
    ///
    /// [`PathPattern`]: crate::pattern::PathPattern
    PathPatterns,
    /// A mapping.
    Mapping,
    /// A list of mappings.
    Mappings,
    /// Variables of a command: a mapping of texts, or a list of such mappings.
    Variables,
    /// Packages: a list of names and of mappings of one name to its version.
    Packages,
    /// Any value.
    Any,
}

impl ArgumentKind {
    /// Tests whether a value is a text, or consists of texts.
    pub(crate) const fn is_text(self) -> bool {
        match self {
            Self::Text
            | Self::Word(_)
            | Self::Words(_)
            | Self::Path
            | Self::Addresses
            | Self::Sources
            | Self::TextList
            | Self::LinePattern
            | Self::PathPatterns
            | Self::Variables
            | Self::Packages => true,
            Self::Scalar
            | Self::Integer
            | Self::Within(..)
            | Self::Codes
            | Self::Boolean
            | Self::Mode
            | Self::Mapping
            | Self::Mappings
            | Self::Any => false,
        }
    }
}

/// A number of things or seconds, or an id: not negative, of 32 bits.
pub(crate) const COUNT: ArgumentKind = ArgumentKind::Within(0, u32::MAX as i64);

/// An optional argument.
pub(crate) const fn arg(name: &'static str, kind: ArgumentKind, doc: &'static str) -> Arg {
    Arg {
        name,
        kind,
        required: false,
        doc,
    }
}

/// An argument that must be given.
pub(crate) const fn required(name: &'static str, kind: ArgumentKind, doc: &'static str) -> Arg {
    Arg {
        name,
        kind,
        required: true,
        doc,
    }
}

/// A function that the minion runs.
pub(crate) const fn on_minion(
    state: &'static str,
    fun: &'static str,
    doc: &'static str,
    args: &'static [Arg],
) -> Signature {
    Signature {
        state,
        fun,
        doc,
        args,
        runs_on: RunsOn::Minion,
    }
}
