//! Targeting: Salt's matchers, which select minions by an expression. A mistake in an expression is
//! an error, never a silent mismatch.

mod compound;
mod error;
pub(crate) mod pattern;

use std::net::IpAddr;

use halite_document::did_you_mean;
use halite_secrets::reference;
use ipnet::IpNet;
use pattern::Glob;
use serde_json::Value;

pub use error::TargetError;
pub use pattern::PatternError;

/// A minion that may match. Grains are the minion's own claims: never authorise with them.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The minion's id.
    pub id: &'a str,
    /// Its grains.
    pub grains: &'a Value,
    /// Its pillar view.
    pub pillar: &'a Value,
}

/// Kinds of expressions, as `match:` in `top.sls` and `tgt_type` name them.
pub const KINDS: &[&str] = &[
    "glob",
    "list",
    "pcre",
    "grain",
    "grain_pcre",
    "pillar",
    "pillar_pcre",
    "pillar_exact",
    "ipcidr",
    "compound",
];

/// The facts of a minion that an expression is about, in addition to its id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Its grains.
    pub grains: bool,
    /// Its pillar.
    pub pillar: bool,
}

/// The facts without which [`matches`] cannot decide an expression of a kind.
///
/// # Errors
/// An unknown kind, a bad compound expression.
pub fn needs(kind: &str, expression: &str) -> Result<Needs, TargetError> {
    let mut needs = Needs::default();
    match kind {
        "glob" | "pcre" | "list" => {}
        "grain" | "grain_pcre" | "ipcidr" => needs.grains = true,
        "pillar" | "pillar_pcre" | "pillar_exact" => needs.pillar = true,
        // Every matcher is evaluated, whatever the others return.
        "compound" => {
            compound::evaluate(expression, &mut |kind, expression| {
                let one = self::needs(kind, expression)?;
                needs.grains |= one.grains;
                needs.pillar |= one.pillar;
                Ok(true)
            })?;
        }
        _ => return Err(unknown(kind)),
    }
    Ok(needs)
}

fn unknown(kind: &str) -> TargetError {
    let hint = match did_you_mean(kind, KINDS.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", KINDS.join(", ")),
    };
    TargetError::UnknownKind {
        kind: kind.to_owned(),
        hint,
    }
}

/// Tests whether an expression of a kind matches this minion. An empty expression matches no
/// minion.
///
/// # Errors
/// An unknown kind, a bad pattern, a bad compound expression, or one about a secret.
pub fn matches(kind: &str, expression: &str, candidate: &Candidate) -> Result<bool, TargetError> {
    match kind {
        "glob" => Ok(Glob::new(expression)?.is_match(candidate.id)),
        "pcre" => Ok(pattern::anchored(expression)?.is_match(candidate.id)),
        "list" => Ok(expression
            .split(',')
            .map(str::trim)
            .any(|id| id == candidate.id)),
        "grain" => data(candidate.grains, expression, &glob(expression)?),
        "grain_pcre" => data(candidate.grains, expression, &regex),
        "pillar" => data(candidate.pillar, expression, &glob(expression)?),
        "pillar_pcre" => data(candidate.pillar, expression, &regex),
        "pillar_exact" => data(candidate.pillar, expression, &|wanted, text| {
            Ok(wanted == text)
        }),
        "ipcidr" => address(expression, candidate.grains),
        "compound" => compound::evaluate(expression, &mut |kind, expression| {
            matches(kind, expression, candidate)
        }),
        _ => Err(unknown(kind)),
    }
}

type Test<'a> = dyn Fn(&str, &str) -> Result<bool, TargetError> + 'a;

/// A test by shell pattern. The pattern is checked here, in case no value is compared with it.
fn glob(expression: &str) -> Result<impl Fn(&str, &str) -> Result<bool, TargetError>, TargetError> {
    Glob::new(expression)?;
    Ok(|wanted: &str, text: &str| Ok(Glob::new(wanted)?.is_match(text)))
}

fn regex(wanted: &str, text: &str) -> Result<bool, TargetError> {
    Ok(pattern::anchored(wanted)?.is_match(text))
}

/// Salt's `subdict_match`: every split of `a:b:c` into a path and a pattern is tried; lists match
/// by any member, dictionaries by their keys.
fn data(data: &Value, expression: &str, test: &Test) -> Result<bool, TargetError> {
    if !expression.contains(':') {
        return Err(TargetError::NoValue(expression.to_owned()));
    }
    for (at, _) in expression.match_indices(':') {
        let (path, wanted) = (&expression[..at], &expression[at + 1..]);
        if let Some(found) = traverse(data, path)
            && holds(found, wanted, test)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn holds(found: &Value, wanted: &str, test: &Test) -> Result<bool, TargetError> {
    match found {
        Value::Object(map) => {
            for key in map.keys() {
                if test(wanted, key)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Array(items) => {
            for item in items {
                if holds(item, wanted, test)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        // Every value matches `*`, and no other pattern can be compared with a reference.
        Value::String(text) if reference::mentions(text) && wanted != "*" => {
            Err(TargetError::Secret(wanted.to_owned()))
        }
        Value::String(text) => test(wanted, text),
        // Also as Python prints them, because Salt users write expressions that way.
        Value::Bool(true) => Ok(test(wanted, "True")? || test(wanted, "true")?),
        Value::Bool(false) => Ok(test(wanted, "False")? || test(wanted, "false")?),
        Value::Null => Ok(test(wanted, "None")? || test(wanted, "null")?),
        Value::Number(number) => test(wanted, &number.to_string()),
    }
}

/// Follows `a:b:0` through dictionaries and lists.
pub(crate) fn traverse<'a>(data: &'a Value, path: &str) -> Option<&'a Value> {
    path.split(':').try_fold(data, |at, part| match at {
        Value::Object(map) => map.get(part),
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

fn address(expression: &str, grains: &Value) -> Result<bool, TargetError> {
    let wanted: IpNet = expression
        .parse()
        .or_else(|_| expression.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| TargetError::Address(expression.to_owned()))?;
    Ok(["ipv4", "ipv6"]
        .iter()
        .filter_map(|grain| grains.get(grain)?.as_array())
        .flatten()
        .filter_map(|text| text.as_str()?.parse::<IpAddr>().ok())
        .any(|address| wanted.contains(&address)))
}

#[cfg(test)]
mod selection_tests;
#[cfg(test)]
mod tests;
