//! `pkg.version_cmp`: the order of two versions, as the package manager of the host has it.

use std::cmp::Ordering;

use halite_versions::{deb, rpm};
use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::super::error::{caused, invalid};
use super::arguments::Arguments;
use crate::serialized::float;

/// `pkg.version_cmp(pkg1, pkg2, ignore_epoch=False)`: -1, 0 or 1, or `None` if dpkg refuses one of
/// them.
pub(super) fn compare(grains: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let parameters = ["pkg1", "pkg2", "ignore_epoch"];
    let args = Arguments::bind(name, &parameters, args)?.without_secrets()?;
    let (one, other) = (version(&args, "pkg1")?, version(&args, "pkg2")?);
    let family = grains.get_attr("os_family")?;
    let order = match family.as_str() {
        Some("Debian") => debian(&one, &other),
        Some(family) if family.eq_ignore_ascii_case("redhat") => Some(red_hat(&one, &other)?),
        family => {
            return Err(invalid(format!(
                "salt['{name}'] compares versions where the grain `os_family` is `Debian` or `RedHat`, and here it is {}",
                family.map_or_else(|| "missing".to_owned(), |family| format!("`{family}`"))
            )));
        }
    };
    Ok(match order {
        Some(Ordering::Less) => Value::from(-1),
        Some(Ordering::Equal) => Value::from(0),
        Some(Ordering::Greater) => Value::from(1),
        None => Value::from(()),
    })
}

/// A version as Python's `str` writes it.
fn version(args: &Arguments, parameter: &str) -> Result<String, Error> {
    let value = args.required(parameter)?;
    let text = match value.kind() {
        ValueKind::String | ValueKind::Bool | ValueKind::None => value.to_string(),
        ValueKind::Number if value.is_integer() => value.to_string(),
        ValueKind::Number => float(f64::try_from(value)?),
        other => {
            return Err(invalid(format!(
                "`{parameter}` of pkg.version_cmp takes a version, and this is a value of type {other}"
            )));
        }
    };
    if let Some(c) = text.chars().find(|c| !matches!(c, ' '..='~' | '\t')) {
        return Err(invalid(format!(
            "`{parameter}` of pkg.version_cmp contains the character {c:?}, which is not allowed in a version"
        )));
    }
    if args.switch("ignore_epoch", false)
        && let Some((_, rest)) = text.split_once(':')
    {
        return Ok(rest.to_owned());
    }
    Ok(text)
}

/// Compares versions as `dpkg --compare-versions` does, called by Salt once for each operator.
fn debian(one: &str, other: &str) -> Option<Ordering> {
    // dpkg's names for the version of a package that is not installed, which is the first.
    let is_none = |text: &str| text.is_empty() || text == "<unknown>";
    let is_refused = |text: &str| !is_none(text) && !deb::is_version(text);
    // dpkg takes the first version for an option if it begins with a dash.
    if one.starts_with('-') || is_refused(one) || is_refused(other) {
        return None;
    }
    if is_none(one) || is_none(other) {
        return Some(is_none(other).cmp(&is_none(one)));
    }
    let blanks = [' ', '\t'];
    Some(deb::compare(
        one.trim_matches(blanks),
        other.trim_matches(blanks),
    ))
}

/// Compares versions as `rpm_lowpkg.version_cmp` does.
fn red_hat(one: &str, other: &str) -> Result<Ordering, Error> {
    let (one, other) = (Evr::new(one)?, Evr::new(other)?);
    let releases = if one.release.is_empty() || other.release.is_empty() {
        Ordering::Equal
    } else {
        rpm::compare(one.release, other.release)
    };
    let epochs = one.epoch.cmp(&other.epoch);
    Ok(epochs
        .then_with(|| rpm::compare(one.version, other.version))
        .then(releases))
}

/// The parts of a version, as Salt's `version_to_evr` finds them.
struct Evr<'a> {
    epoch: i128,
    version: &'a str,
    release: &'a str,
}

impl<'a> Evr<'a> {
    fn new(text: &'a str) -> Result<Self, Error> {
        let (colon, dash) = (text.find(':'), text.find('-'));
        let start = colon.map_or(0, |at| at + 1);
        let end = dash.unwrap_or(text.len());
        let epoch = colon.and_then(|at| text.get(..at));
        Ok(Self {
            epoch: epoch.map_or(Ok(0), whole)?,
            // A dash before the colon leaves no version.
            version: text.get(start..end).unwrap_or_default(),
            release: dash.and_then(|at| text.get(at + 1..)).unwrap_or_default(),
        })
    }
}

/// A number as Python's `int` reads it, and 0 for any other text.
fn whole(text: &str) -> Result<i128, Error> {
    let text = text.trim();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = digits
        .split('_')
        .all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()));
    if !is_number {
        return Ok(0);
    }
    text.replace('_', "")
        .parse::<i128>()
        .map_err(|error| caused(format!("the epoch `{text}` is too large"), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers are those of Salt 3008.3.
    #[test]
    fn versions_of_debian_are_dpkgs() {
        for (one, other, order) in [
            ("1:1.0", "2.0", Some(Ordering::Greater)),
            ("1.0~rc1", "1.0", Some(Ordering::Less)),
            ("", "~", Some(Ordering::Less)),
            ("1", "", Some(Ordering::Greater)),
            ("", "<unknown>", Some(Ordering::Equal)),
            ("1.0 ", "1.0", Some(Ordering::Equal)),
            ("+1:1", "1:1", Some(Ordering::Equal)),
            ("1_0", "1", Some(Ordering::Greater)),
            ("1 0", "1", None),
            ("-1", "1", None),
            ("1", "1-", None),
        ] {
            assert_eq!(debian(one, other), order, "{one} {other}");
        }
    }

    /// The answers are those of Salt 3008.3.
    #[test]
    fn versions_of_red_hat_are_rpms() {
        for (one, other, order) in [
            ("0.2-001", "0.2.0.1-002", Ordering::Less),
            ("1.0", "1.0-5", Ordering::Equal),
            ("1.0-5", "1.0-6", Ordering::Less),
            ("1.0^git", "1.0", Ordering::Greater),
            ("x:1", "1", Ordering::Equal),
            ("1_0:1", "1", Ordering::Greater),
            (" 1:1", "1:1", Ordering::Equal),
            ("-1:1", "1", Ordering::Less),
            ("a-1:2", "2", Ordering::Less),
            ("1:1:2", "1:1", Ordering::Greater),
            ("1.0-1-2", "1.0-1-3", Ordering::Less),
        ] {
            assert_eq!(red_hat(one, other).unwrap(), order, "{one} {other}");
        }
    }
}
