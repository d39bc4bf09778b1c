//! Comparisons and conditions whose result would be wrong.
//!
//! A template sees a reference in place of a secret, so `pillar.custom.mode == 'strict'` would
//! silently be false. And the engine puts values of different types in an order, so `'9' > 10`
//! would be true, which is an error in Python. The template engine has no hook for its operators.
//! Therefore a template that read a secret, or asks for an order, is rendered once more, with the
//! operands inside calls of [`GUARD`] and [`ORDER`], which refuse such values. The text of that
//! rendering is not used.

use std::cell::Cell;

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, Value};

use super::error::invalid;
use super::expression::{Token, tokens};
use super::lines::replace_tags;
use super::tags::parts;
use super::values::{Secret, holds_secret};

/// The function around each operand.
const GUARD: &str = "__no_secret";

/// The function in place of a comparison by order.
const ORDER: &str = "__ordered";

/// Comparisons of two values by order.
const ORDERS: &[&str] = &["<", ">", "<=", ">="];

/// The use of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Compared,
    /// On the right of `in`.
    Searched,
    /// A condition, or an operand of `and`, `or` and `not`.
    Tested,
    Iterated,
}

impl Use {
    fn word(self) -> &'static str {
        match self {
            Self::Compared => "compared",
            Self::Searched => "searched",
            Self::Tested => "tested",
            Self::Iterated => "iterated over",
        }
    }

    /// Tests whether this use of a value would read a secret.
    fn reads_secret(self, value: &Value) -> bool {
        match (self, value.kind()) {
            // `in` looks for a key.
            (Self::Searched, ValueKind::Map) => false,
            (Self::Compared | Self::Searched, _) => holds_secret(value),
            (Self::Tested | Self::Iterated, ValueKind::String) => holds_secret(value),
            (Self::Tested | Self::Iterated, _) => value.downcast_object_ref::<Secret>().is_some(),
        }
    }
}

/// Adds the function that refuses secrets.
pub(super) fn add(env: &mut Environment<'static>) {
    env.add_function(
        GUARD,
        |value: &Value, word: &str| -> Result<Value, Error> {
            let all = [Use::Compared, Use::Searched, Use::Tested, Use::Iterated];
            let reads = |known: &Use| known.word() == word && known.reads_secret(value);
            if all.iter().any(reads) {
                return Err(invalid(format!(
                    "a secret cannot be {word} in a template, which sees only a reference to it; decide by a value \
                     that is not secret, or test it with `is defined` or `is not none`"
                )));
            }
            Ok(value.clone())
        },
    );
    env.add_function(
        ORDER,
        |left: &Value, sign: &str, right: &Value| -> Result<bool, Error> {
            if !have_order(left, right) {
                return Err(invalid(format!(
                    "`{sign}` cannot compare {} with {}; convert one of them, for example with `| int`",
                    left.kind(),
                    right.kind()
                )));
            }
            Ok(match sign {
                "<" => left < right,
                ">" => left > right,
                "<=" => left <= right,
                _ => left >= right,
            })
        },
    );
}

/// Tests whether Python puts two values in an order. Of booleans and numbers it does, but not the
/// engine's.
fn have_order(left: &Value, right: &Value) -> bool {
    let is_ordered = matches!(
        left.kind(),
        ValueKind::Number
            | ValueKind::Bool
            | ValueKind::String
            | ValueKind::Seq
            | ValueKind::Iterable
    );
    is_ordered && left.kind() == right.kind() && left.is_tuple() == right.is_tuple()
}

/// Tests whether a template asks for an order.
pub(super) fn asks_for_order(text: &str) -> bool {
    let found = Cell::new(false);
    replace_tags(text, |tag| {
        let (_, inside, _) = parts(tag)?;
        if inside.contains(['<', '>']) {
            let asks = |token: &Token| ORDERS.iter().any(|sign| token.is(sign));
            found.set(found.get() || tokens(inside)?.iter().any(asks));
        }
        None
    });
    found.get()
}

/// A prepared template with a guard around each operand; its lines do not change.
pub(super) fn guarded(text: &str) -> String {
    replace_tags(text, |tag| {
        let (open, inside, close) = parts(tag)?;
        let tokens = tokens(inside)?;
        let mut rest = tokens.as_slice();
        Some(format!("{open}{}{close}", expression(&mut rest, true)))
    })
}

/// A separator of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Separator {
    Comparison,
    In,
    /// The `in` of a `for`.
    ForIn,
    /// `and`, `or`.
    Logic,
    Not,
    /// `if`, `elif`.
    If,
    Other,
}

/// An operand with the separator behind it.
struct Part {
    operand: String,
    separator: Separator,
    /// The separator's text.
    text: String,
    /// The operand is in a condition.
    condition: bool,
}

impl Part {
    fn is_order(&self) -> bool {
        ORDERS.contains(&self.text.trim())
    }
}

/// Rewrites tokens up to a closing bracket or the end.
fn expression(rest: &mut &[Token], outer: bool) -> String {
    let parts = split(rest, outer);
    let mut out = String::new();
    let mut left = Separator::Other;
    let mut at = 0;
    while let Some(part) = parts.get(at) {
        let chained = |left| left == Separator::Comparison;
        let (blank, operand) = guard(part, left);
        out.push_str(blank);
        match parts.get(at + 1) {
            Some(next) if part.is_order() && !chained(left) && !chained(next.separator) => {
                let (_, right) = guard(next, part.separator);
                let sign = part.text.trim();
                out.push_str(&format!(
                    "{ORDER}({operand}, '{sign}', {right}){}",
                    next.text
                ));
                left = next.separator;
                at += 2;
            }
            _ => {
                out.push_str(&operand);
                out.push_str(&part.text);
                left = part.separator;
                at += 1;
            }
        }
    }
    out
}

/// Splits tokens up to a closing bracket or the end; what is in brackets is rewritten.
fn split(rest: &mut &[Token], outer: bool) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut operand = String::new();
    let mut condition = false;
    let mut is_for = outer && rest.first().is_some_and(|token| token.is_name("for"));
    let mut after_dot = false;
    let next = |rest: &mut &[Token], into: &mut String| {
        if let Some((next, after)) = rest.split_first() {
            into.push_str(&next.blank);
            into.push_str(&next.text);
            *rest = after;
        }
    };
    while let Some(token) = rest.first() {
        if token.closes() {
            break;
        }
        let mut text = String::new();
        next(rest, &mut text);
        let was_dot = std::mem::replace(&mut after_dot, token.is("."));
        let separator = match () {
            () if token.opens() => {
                operand.push_str(&text);
                operand.push_str(&expression(rest, false));
                next(rest, &mut operand);
                continue;
            }
            () if token.is_name("is") && !was_dot => {
                // The name of a test may be a word of the language: `x is not in y`.
                operand.push_str(&text);
                let negated = rest.first().is_some_and(|next| next.is_name("not"));
                for _ in 0..1 + usize::from(negated) {
                    next(rest, &mut operand);
                }
                continue;
            }
            () if token.is("==") || token.is("!=") => Separator::Comparison,
            () if ORDERS.iter().any(|sign| token.is(sign)) => Separator::Comparison,
            () if [",", "=", ":", ""].iter().any(|sign| token.is(sign)) => Separator::Other,
            () if was_dot || !token.is_word() => {
                operand.push_str(&text);
                continue;
            }
            () if token.is_name("in") && is_for => {
                is_for = false;
                Separator::ForIn
            }
            () if token.is_name("in") => Separator::In,
            () if token.is_name("not") && rest.first().is_some_and(|next| next.is_name("in")) => {
                next(rest, &mut text);
                Separator::In
            }
            () if token.is_name("not") => Separator::Not,
            () if token.is_name("and") || token.is_name("or") => Separator::Logic,
            () if token.is_name("if") || token.is_name("elif") => Separator::If,
            () => Separator::Other,
        };
        parts.push(Part {
            operand: std::mem::take(&mut operand),
            separator,
            text,
            condition,
        });
        condition = match separator {
            Separator::If => true,
            Separator::Other | Separator::ForIn => false,
            _ => condition,
        };
    }
    parts.push(Part {
        operand,
        separator: Separator::Other,
        text: String::new(),
        condition,
    });
    parts
}

/// The blanks before an operand, and the operand, in a call of the guard if what is next to it
/// would read it.
fn guard(part: &Part, left: Separator) -> (&str, String) {
    let inside = part.operand.trim_start();
    let blank = &part.operand[..part.operand.len() - inside.len()];
    let used = match (left, part.separator) {
        _ if inside.is_empty() => None,
        (Separator::Comparison, _) | (_, Separator::Comparison) => Some(Use::Compared),
        (Separator::In, _) => Some(Use::Searched),
        (_, Separator::In) => Some(Use::Compared),
        (Separator::ForIn, _) => Some(Use::Iterated),
        (Separator::Not, _) | (_, Separator::Logic) => Some(Use::Tested),
        (Separator::If | Separator::Logic, _) if part.condition => Some(Use::Tested),
        _ => None,
    };
    let operand = match used {
        Some(used) => format!("{GUARD}({inside}, '{}')", used.word()),
        None => inside.to_owned(),
    };
    (blank, operand)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_found() {
        for (text, wanted) in [
            (
                "{% if a.b == 'x' and not c %}",
                "{% if C(a.b) == C('x') and not T(c) %}",
            ),
            ("{{ a or b }}", "{{ T(a) or b }}"),
            ("{% elif a or b -%}", "{% elif T(a) or T(b) -%}"),
            ("{{ a if b else c }}", "{{ a if T(b) else c }}"),
            (
                "{% for x in a.in if x not in [y, z == 1] %}",
                "{% for x in I(a.in) if C(x) not in S([y, C(z) == C(1)]) %}",
            ),
            ("{% if a is not in b %}", "{% if T(a is not in b) %}"),
            (
                "{% if x is defined and x %}",
                "{% if T(x is defined) and T(x) %}",
            ),
            (
                "{% set x = f(k=a, l=b < c)\n | d %}",
                "{% set x = f(k=a, l=__ordered(C(b), '<', C(c)))\n | d %}",
            ),
            (
                "{{ 'x' if a >= 1 and b else 'y' }}",
                "{{ 'x' if __ordered(C(a), '>=', C(1)) and T(b) else 'y' }}",
            ),
            ("{{ 1 < a < 3 }}", "{{ C(1) < C(a) < C(3) }}"),
            (
                "{# a == b #}{% raw %}{{ a < b }}{% endraw %}",
                "{# a == b #}{% raw %}{{ a < b }}{% endraw %}",
            ),
        ] {
            let mut found = guarded(text);
            for (used, letter) in [
                (Use::Compared, "C"),
                (Use::Searched, "S"),
                (Use::Tested, "T"),
                (Use::Iterated, "I"),
            ] {
                // The innermost calls first.
                let end = format!(", '{}')", used.word());
                while let Some(at) = found.find(&end) {
                    let start = found[..at].rfind(GUARD).unwrap();
                    let operand = found[start + GUARD.len()..at].to_owned();
                    found.replace_range(start..at + end.len(), &format!("{letter}{operand})"));
                }
            }
            assert_eq!(found, wanted, "{text}");
        }
        assert!(asks_for_order("a < b {{ a < b }}"));
        assert!(!asks_for_order("a < b {{ '<' ~ b }}{# a < b #}"));
    }
}
