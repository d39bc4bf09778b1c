//! Macros that use `varargs` or `kwargs`: the arguments that their head does not name. The template
//! engine refuses such arguments, so these macros get two more parameters, and a function in front
//! that fills them.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr, Tuple};
use minijinja::{Environment, Error, State, Value};

use super::expression::tokens;
use super::lines::replace_tags;
use super::tags::parts;
use super::values::dictionary;

/// The function around a macro.
const FRONT: &str = "__variadic";

/// Names of the additional parameters.
const MORE: [&str; 2] = ["varargs", "kwargs"];

/// Adds the function that puts itself in front of a macro.
pub(super) fn add(env: &mut Environment<'static>) {
    env.add_function(FRONT, |of: &Value| Value::from_object(Front(of.clone())));
}

/// A template with its variadic macros rewritten; lines do not change.
pub(super) fn rewrite(text: String) -> String {
    if !MORE.iter().any(|name| text.contains(name)) {
        return text;
    }
    let uses = uses(&text);
    if !uses.contains(&true) {
        return text;
    }
    let mut number = 0;
    let mut open: Vec<Option<String>> = Vec::new();
    let state = std::cell::RefCell::new((&mut number, &mut open));
    replace_tags(&text, |tag| {
        let (start, inside, end) = parts(tag)?;
        if !start.starts_with("{%") {
            return None;
        }
        let (number, open) = &mut *state.borrow_mut();
        let word = first_word(inside);
        if word == "macro" {
            let variadic = uses.get(**number).copied().unwrap_or_default();
            **number += 1;
            let name = variadic.then(|| macro_name(inside)).flatten();
            open.push(name.clone());
            name?;
            let (head, rest) = inside.split_at(inside.rfind(')')?);
            let separator = if head.trim_end().ends_with(['(', ',']) {
                ""
            } else {
                ", "
            };
            return Some(format!(
                "{start}{head}{separator}varargs=none, kwargs=none{rest}{end}"
            ));
        }
        if word == "endmacro" {
            let name = open.pop().flatten()?;
            let plain_end = end.trim_start_matches(['-', '+']);
            return Some(format!(
                "{start}{inside}{plain_end}{{% set {name} = {FRONT}({name}) {end}"
            ));
        }
        None
    })
}

/// For each macro in order, whether its body uses one of the names.
fn uses(text: &str) -> Vec<bool> {
    let found = std::cell::RefCell::new((Vec::new(), Vec::<usize>::new()));
    replace_tags(text, |tag| {
        let (start, inside, _) = parts(tag)?;
        let (uses, open) = &mut *found.borrow_mut();
        let word = if start.starts_with("{%") {
            first_word(inside)
        } else {
            ""
        };
        if word == "macro" {
            open.push(uses.len());
            uses.push(false);
        } else if word == "endmacro" {
            open.pop();
        } else if let Some(inner) = open.last() {
            let tokens = tokens(inside).unwrap_or_default();
            let used = |(at, token): (usize, &super::expression::Token)| {
                MORE.iter().any(|name| token.is_name(name))
                    && !at
                        .checked_sub(1)
                        .is_some_and(|before| tokens[before].is("."))
            };
            uses[*inner] |= tokens.iter().enumerate().any(used);
        }
        None
    });
    found.into_inner().0
}

fn first_word(inside: &str) -> &str {
    inside
        .split([' ', '\t', '\n', '\r', '('])
        .find(|word| !word.is_empty())
        .unwrap_or_default()
}

fn macro_name(inside: &str) -> Option<String> {
    let rest = inside.trim_start().strip_prefix("macro")?;
    Some(rest.split('(').next()?.trim().to_owned())
}

/// A macro behind a call that packs the arguments that its head does not name.
struct Front(Value);

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl Object for Front {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let value = self.0.get_item(key).ok()?;
        (!value.is_undefined()).then_some(value)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Str(&["name", "arguments", "caller"])
    }

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        let (args, named) = match args.split_last() {
            Some((last, before)) if last.is_kwargs() => {
                (before, Some(Kwargs::try_from(last.clone())?))
            }
            _ => (args, None),
        };
        let parameters: Vec<String> = self
            .0
            .get_attr("arguments")?
            .try_iter()?
            .map(|name| name.to_string())
            .filter(|name| !MORE.contains(&name.as_str()))
            .collect();
        let (own, more) = args.split_at(args.len().min(parameters.len()));
        let mut passed: Vec<(String, Value)> = Vec::new();
        let mut others: Vec<(Value, Value)> = Vec::new();
        for name in named.iter().flat_map(Kwargs::args) {
            let value: Value = named
                .as_ref()
                .map_or(Ok(Value::UNDEFINED), |all| all.get(name))?;
            if name == "caller" || parameters.iter().any(|known| known == name) {
                passed.push((name.to_owned(), value));
            } else {
                others.push((Value::from(name), value));
            }
        }
        passed.push((MORE[0].to_owned(), Value::from(Tuple::from(more.to_vec()))));
        passed.push((MORE[1].to_owned(), dictionary(others)));
        let mut all = own.to_vec();
        all.push(Value::from(passed.into_iter().collect::<Kwargs>()));
        self.0.call(state, &all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_macros_that_use_the_names_are_changed() {
        let rewritten = rewrite(
            "{% macro a(x) %}{{ x.kwargs }}{% endmacro %}{%- macro b(x, y=f(1)) -%}\n{{ varargs }}{%- endmacro -%} z"
                .to_owned(),
        );
        assert_eq!(
            rewritten,
            "{% macro a(x) %}{{ x.kwargs }}{% endmacro %}{%- macro b(x, y=f(1), varargs=none, kwargs=none) -%}\n\
             {{ varargs }}{%- endmacro %}{% set b = __variadic(b) -%} z"
        );
    }
}
