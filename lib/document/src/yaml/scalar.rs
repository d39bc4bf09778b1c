//! YAML 1.1 plain scalars as PyYAML resolves them, because that is how Salt reads an SLS.
//!
//! Numbers with leading zeros follow Salt, not YAML: `0644` is 644. Two other differences are
//! intended and described in `docs/coming-from-salt.md`:
//! base-60 numbers (`22:22`) and dates stay text.

use super::NodeKind;

/// The value of a plain (unquoted) scalar.
#[must_use]
pub fn resolve(raw: &str) -> NodeKind {
    match raw {
        "" | "~" | "null" | "Null" | "NULL" => return NodeKind::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return NodeKind::Bool(true);
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return NodeKind::Bool(false);
        }
        _ => {}
    }
    if let Some(number) = integer(raw) {
        return NodeKind::Int(number);
    }
    if let Some(number) = float(raw) {
        return NodeKind::Float(number);
    }
    NodeKind::Text(raw.to_owned())
}

/// A number whose digits begin with zeros (`0644`) as YAML 1.1 reads it, in octal; `None` for any
/// other scalar.
pub(super) fn octal(raw: &str) -> Option<i64> {
    let (_, digits) = sign(raw);
    let rest = digits.strip_prefix('0')?;
    let is_octal = !rest.is_empty() && !rest.starts_with(['b', 'x']);
    is_octal.then(|| yaml_1_1(raw)).flatten()
}

/// A whole number. For numbers that YAML 1.1 reads as octal, Salt drops the zeros
/// (`construct_scalar` of its loader) unless there is a sign.
fn integer(raw: &str) -> Option<i64> {
    let number = yaml_1_1(raw)?;
    if !raw.starts_with('0') || raw.starts_with("0b") || raw.starts_with("0x") {
        return Some(number);
    }
    let digits: String = raw.chars().filter(|c| *c != '_').collect();
    digits.parse().ok()
}

/// `[-+]?0b[01_]+`, `[-+]?0[0-7_]+`, `[-+]?0x[0-9a-fA-F_]+`, `[-+]?(0|[1-9][0-9_]*)`; beyond 64
/// bits it stays text.
fn yaml_1_1(raw: &str) -> Option<i64> {
    let (negative, digits) = sign(raw);
    let (radix, digits) = if let Some(rest) = digits.strip_prefix("0b") {
        (2, rest)
    } else if let Some(rest) = digits.strip_prefix("0x") {
        (16, rest)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    if digits.starts_with('_') && radix == 10 {
        return None;
    }
    let digits: String = digits.chars().filter(|c| *c != '_').collect();
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let sign = if negative { "-" } else { "" };
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

/// `[-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?`, `\.[0-9][0-9_]*…`, `[-+]?\.inf`, `\.nan`.
fn float(raw: &str) -> Option<f64> {
    let (negative, rest) = sign(raw);
    if matches!(rest, ".inf" | ".Inf" | ".INF") {
        return Some(if negative {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        });
    }
    if matches!(raw, ".nan" | ".NaN" | ".NAN") {
        return Some(f64::NAN);
    }
    let (whole, fraction) = rest.split_once('.')?;
    let (fraction, exponent) = match fraction.find(['e', 'E']) {
        Some(at) => (&fraction[..at], Some(&fraction[at + 1..])),
        None => (fraction, None),
    };
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '_');
    let starts = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let shaped = if whole.is_empty() {
        rest.len() == raw.len() && starts(fraction)
    } else {
        starts(whole)
    };
    if !shaped || !digits(whole) || !digits(fraction) {
        return None;
    }
    if let Some(exponent) = exponent {
        let figures = exponent.strip_prefix(['-', '+'])?;
        if figures.is_empty() || !figures.chars().all(|c| c.is_ascii_digit()) {
            return None;
        }
    }
    let mut text: String = raw.chars().filter(|c| *c != '_').collect();
    if text.ends_with('.') {
        text.push('0');
    }
    text.parse().ok()
}

fn sign(raw: &str) -> (bool, &str) {
    match raw.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, raw.strip_prefix('+').unwrap_or(raw)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_salt_does() {
        for (raw, wanted) in [
            ("0644", NodeKind::Int(644)),
            ("0_644", NodeKind::Int(644)),
            ("010", NodeKind::Int(10)),
            ("-010", NodeKind::Int(-8)),
            ("644", NodeKind::Int(644)),
            ("0", NodeKind::Int(0)),
            ("00", NodeKind::Int(0)),
            ("-12", NodeKind::Int(-12)),
            ("+12", NodeKind::Int(12)),
            ("1_000", NodeKind::Int(1000)),
            ("0x1F", NodeKind::Int(31)),
            ("0b101", NodeKind::Int(5)),
            ("yes", NodeKind::Bool(true)),
            ("Off", NodeKind::Bool(false)),
            ("1.5", NodeKind::Float(1.5)),
            ("1.", NodeKind::Float(1.0)),
            (".5", NodeKind::Float(0.5)),
            ("1.0e+3", NodeKind::Float(1000.0)),
            ("~", NodeKind::Null),
            ("", NodeKind::Null),
        ] {
            assert_eq!(resolve(raw), wanted, "{raw}");
        }
        for text in [
            "089",
            "08",
            "1e3",
            "1.2.3",
            "22:22",
            "2024-01-01",
            "y",
            "n",
            "_1",
            "0o17",
            "1.0e3",
            "-",
            "+",
            ".",
            "-.5",
            "v1.36.3",
            "99999999999999999999",
            "0x",
            "0b2",
        ] {
            assert_eq!(resolve(text), NodeKind::Text(text.to_owned()), "{text}");
        }
        assert_eq!(resolve("-.inf"), NodeKind::Float(f64::NEG_INFINITY));
    }

    #[test]
    fn zeros_mean_octal_where_yaml_is_read_as_kubernetes_reads_it() {
        assert_eq!(octal("0644"), Some(0o644));
        assert_eq!(octal("00"), Some(0));
        for raw in ["644", "0", "0x1F", "0b1", "089", "0.5", "0644x", ""] {
            assert_eq!(octal(raw), None, "{raw}");
        }
    }
}
