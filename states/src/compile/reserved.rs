//! SLS files that take something from a host and say in their first line what may apply them:
//! `{#- only: orchestration -#}` or `{#- only: highstate, orchestration -#}`.
//!
//! Such a file is refused when an operator names it, also by a pattern, and when an SLS of another
//! formula includes it: `halite.leave.packages` may include `halite.leave.host`, `custom.web` may
//! not.

use halite_document::Problem;

use crate::low::Position;

/// The beginning and the end of the line.
const MARKS: (&str, &str) = ("{#- only: ", " -#}");

/// The origin of a request to apply an SLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin<'a> {
    /// `top.sls`.
    Top,
    /// An operator.
    Operator,
    /// A step of a shipped orchestration.
    Step,
    /// The SLS of this name, which includes it.
    Include(&'a str),
}

/// Refuses an origin that the first line of the SLS with this name and text does not allow.
pub(super) fn check(
    name: &str,
    text: &str,
    origin: Origin,
    position: &Position,
) -> Result<(), Problem> {
    let first = text.lines().next().unwrap_or_default();
    let Some(only) = first.strip_prefix(MARKS.0) else {
        return Ok(());
    };
    let in_highstate = match only.strip_suffix(MARKS.1) {
        Some("orchestration") => false,
        Some("highstate, orchestration") => true,
        _ => {
            let message = format!("cannot apply `{name}`: its first line is not understood");
            let hint =
                "write `{#- only: orchestration -#}` or `{#- only: highstate, orchestration -#}`";
            return Err(Problem::at(position, message).hint(hint));
        }
    };
    let is_allowed = match origin {
        Origin::Step => true,
        Origin::Top => in_highstate,
        Origin::Operator => false,
        Origin::Include(by) => formula(by) == formula(name),
    };
    if is_allowed {
        return Ok(());
    }
    let (message, hint) = if in_highstate {
        (
            format!(
                "cannot apply `{name}`: only a highstate and orchestrations of Halite apply it"
            ),
            "`ctl highstate` applies it to the hosts that it is for",
        )
    } else {
        (
            format!("cannot apply `{name}`: only orchestrations of Halite apply it"),
            "the commands that start them ask first: `ctl node remove`, `ctl node roles`, `ctl node reboot`, \
             `ctl etcd recover`, `ctl destroy`",
        )
    };
    Err(Problem::at(position, message).hint(hint))
}

/// The first part of a dotted name.
fn formula(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}
