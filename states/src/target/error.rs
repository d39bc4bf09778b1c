//! Errors of target expressions.

use super::pattern::PatternError;

/// A mistake in a target expression.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TargetError {
    /// The kind is not one of [`super::KINDS`].
    #[error("there is no target kind `{kind}`; {hint}")]
    UnknownKind {
        /// The kind as given.
        kind: String,
        /// The nearest kind, or all kinds.
        hint: String,
    },
    /// A shell pattern or regular expression that cannot be read.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A grain or pillar expression without `:`.
    #[error("`{0}` needs a key and a value, separated by `:`")]
    NoValue(String),
    /// A comparison with a secret, of which only a reference is known.
    #[error("`{0}` is compared with a secret; choose minions by a value that is not secret")]
    Secret(String),
    /// An `ipcidr` expression that is neither an address nor a network.
    #[error("`{0}` is neither an address nor a network like 10.0.0.0/24")]
    Address(String),
    /// A letter before `@` that no matcher has.
    #[error("there is no matcher `{letter}@`; there are {known}")]
    UnknownMatcher {
        /// The letter as given.
        letter: char,
        /// All matchers with their letters.
        known: String,
    },
    /// A closing parenthesis too many.
    #[error("a `)` without `(` in `{0}`")]
    Unopened(String),
    /// A closing parenthesis too few.
    #[error("a `(` without `)`")]
    Unclosed,
    /// Two adjacent matchers.
    #[error("an `and` or `or` is missing in `{0}`")]
    MissingOperator(String),
    /// An operator or parenthesis without its matcher.
    #[error("a minion or matcher is missing beside `and`, `or`, `not` or in `( )`")]
    MissingMatcher,
    /// A bound against expressions that would exhaust the stack.
    #[error("more than 32 nested parentheses")]
    TooDeep,
}
