//! Python's methods of dictionaries, lists and strings that Salt's templates use.

use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::error::invalid;
use super::trace::OPTS;
use super::values::{Dict, has_pillar_keys, new_dictionary};
use super::{lists, mutators};

/// Calls a method that the template engine itself does not have.
pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Map => dict(state, value, method, args),
        ValueKind::Seq => list(value, method, args),
        ValueKind::String => text(value.as_str().unwrap_or_default(), method, args),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn dict(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match method {
        "get" => {
            let (key, default): (&Value, Option<Value>) = from_args(args)?;
            let found = value.get_item(key)?;
            if found.is_undefined() && is_options(value) {
                return Err(invalid(format!(
                    "`opts.get` has no `{key}`, only `id` and `saltenv`: templates are rendered on the master, in the same \
                     way for a test and for a run"
                )));
            }
            Ok(if found.is_undefined() {
                default.unwrap_or_else(|| Value::from(()))
            } else {
                found
            })
        }
        "items" => state.apply_filter("items", std::slice::from_ref(value)),
        "keys" => Ok(value.try_iter()?.collect::<Vec<Value>>().into()),
        "values" => {
            let values: Result<Vec<Value>, Error> =
                value.try_iter()?.map(|key| value.get_item(&key)).collect();
            Ok(values?.into())
        }
        "copy" => {
            let entries = value
                .try_iter()?
                .map(|key| Ok((value.get_item(&key)?, key)));
            let entries: Vec<(Value, Value)> = entries.collect::<Result<_, Error>>()?;
            let entries = entries.into_iter().map(|(item, key)| (key, item));
            Ok(new_dictionary(has_pillar_keys(value), entries))
        }
        _ => mutators::dict(value, method, args)
            .unwrap_or_else(|| Err(Error::from(ErrorKind::UnknownMethod))),
    }
}

/// Tests whether a dictionary has the options of a minion, of which there are only some.
fn is_options(value: &Value) -> bool {
    let dict = value.downcast_object_ref::<Dict>();
    dict.is_some_and(|dict| dict.place() == Some(OPTS))
}

fn list(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match method {
        "count" => {
            let (wanted,): (&Value,) = from_args(args)?;
            Ok(value
                .try_iter()?
                .filter(|item| item == wanted)
                .count()
                .into())
        }
        "index" => {
            let (wanted,): (&Value,) = from_args(args)?;
            value
                .try_iter()?
                .position(|item| item == *wanted)
                .map(Value::from)
                .ok_or_else(|| invalid(format!("{wanted:?} is not in the list")))
        }
        "copy" if !value.is_tuple() => Ok(lists::list(value.try_iter()?)),
        _ => mutators::list(value, method, args)
            .unwrap_or_else(|| Err(Error::from(ErrorKind::UnknownMethod))),
    }
}

fn text(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    Ok(match method {
        "upper" => text.to_uppercase().into(),
        "lower" => text.to_lowercase().into(),
        "title" => text
            .split_inclusive(|c: char| !c.is_alphanumeric())
            .map(capitalize)
            .collect::<String>()
            .into(),
        "capitalize" => capitalize(text).into(),
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            let matches =
                |c: char| chars.map_or_else(|| c.is_whitespace(), |chars| chars.contains(c));
            match method {
                "strip" => text.trim_matches(matches),
                "lstrip" => text.trim_start_matches(matches),
                _ => text.trim_end_matches(matches),
            }
            .into()
        }
        "startswith" => any_of(args, |part| text.starts_with(part))?,
        "endswith" => any_of(args, |part| text.ends_with(part))?,
        "removeprefix" => {
            let (part,): (&str,) = from_args(args)?;
            text.strip_prefix(part).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (part,): (&str,) = from_args(args)?;
            text.strip_suffix(part).unwrap_or(text).into()
        }
        "replace" => {
            let (from, to, count): (&str, &str, Option<usize>) = from_args(args)?;
            match count {
                Some(count) => text.replacen(from, to, count),
                None => text.replace(from, to),
            }
            .into()
        }
        "split" | "rsplit" => split(text, method == "rsplit", args)?,
        "splitlines" => lists::list(text.lines().map(Value::from)),
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let first = method == "partition";
            let cut = if first {
                text.split_once(separator)
            } else {
                text.rsplit_once(separator)
            };
            let parts = match cut {
                Some((a, b)) => [a, separator, b],
                None if first => [text, "", ""],
                None => ["", "", text],
            };
            Value::from(Tuple::from(parts.map(Value::from).to_vec()))
        }
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            items
                .try_iter()?
                .map(|item| item.to_string())
                .collect::<Vec<_>>()
                .join(text)
                .into()
        }
        "find" => {
            let (part,): (&str,) = from_args(args)?;
            text.find(part)
                .map_or(Value::from(-1), |at| text[..at].chars().count().into())
        }
        "count" => {
            let (part,): (&str,) = from_args(args)?;
            text.matches(part).count().into()
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            format!(
                "{}{text}",
                "0".repeat(width.min(1000).saturating_sub(text.chars().count()))
            )
            .into()
        }
        "isdigit" | "isnumeric" => (!text.is_empty() && text.chars().all(char::is_numeric)).into(),
        "isalpha" => (!text.is_empty() && text.chars().all(char::is_alphabetic)).into(),
        "isalnum" => (!text.is_empty() && text.chars().all(char::is_alphanumeric)).into(),
        "islower" => {
            (text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase)).into()
        }
        "isupper" => {
            (text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase)).into()
        }
        "format" => format(text, args)?.into(),
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    })
}

fn capitalize(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + &chars.as_str().to_lowercase()
    })
}

/// `startswith` and `endswith` take one text or several.
fn any_of(args: &[Value], holds: impl Fn(&str) -> bool) -> Result<Value, Error> {
    let (parts,): (&Value,) = from_args(args)?;
    Ok(match parts.as_str() {
        Some(part) => holds(part),
        None => parts
            .try_iter()?
            .any(|part| part.as_str().is_some_and(&holds)),
    }
    .into())
}

/// `split(sep=None, maxsplit=-1)` and `rsplit`.
fn split(text: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (separator, limit, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = match separator {
        Some(separator) => Some(separator),
        None => kwargs.get("sep")?,
    };
    let limit = match limit {
        Some(limit) => Some(limit),
        None => kwargs.get("maxsplit")?,
    };
    kwargs.assert_all_used()?;
    let pieces = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .map_or(usize::MAX, |limit| limit.saturating_add(1));
    let mut parts: Vec<&str> = match separator.as_ref().and_then(Value::as_str) {
        Some("") => {
            return Err(invalid("split needs a separator that is not empty"));
        }
        Some(separator) if from_right => text.rsplitn(pieces, separator).collect(),
        Some(separator) => text.splitn(pieces, separator).collect(),
        None => words(text, pieces, from_right),
    };
    if from_right {
        parts.reverse();
    }
    Ok(lists::list(parts.into_iter().map(Value::from)))
}

/// At most `pieces` words; the last one is the rest of the text.
fn words(text: &str, pieces: usize, from_right: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        rest = if from_right {
            rest.trim_end()
        } else {
            rest.trim_start()
        };
        if rest.is_empty() {
            return parts;
        }
        let cut = if from_right {
            rest.rsplit_once(char::is_whitespace)
                .map(|(left, word)| (word, left))
        } else {
            rest.split_once(char::is_whitespace)
        };
        match cut {
            Some((word, left)) if parts.len() + 1 < pieces => {
                parts.push(word);
                rest = left;
            }
            _ => {
                parts.push(rest);
                return parts;
            }
        }
    }
}

/// `'{} {0} {name}'.format(…)`, without format specifications.
fn format(text: &str, args: &[Value]) -> Result<String, Error> {
    let (named, positional): (Vec<&Value>, Vec<&Value>) =
        args.iter().partition(|value| value.is_kwargs());
    let mut out = String::new();
    let mut next = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' if chars.peek() == Some(&'{') => {
                chars.next();
                out.push('{');
            }
            '}' => {
                if chars.peek() == Some(&'}') {
                    chars.next();
                }
                out.push('}');
            }
            '{' => {
                let field: String = chars.by_ref().take_while(|c| *c != '}').collect();
                let found = if field.is_empty() {
                    next += 1;
                    positional.get(next - 1).map(|value| (*value).clone())
                } else if let Ok(number) = field.parse::<usize>() {
                    positional.get(number).map(|value| (*value).clone())
                } else {
                    named
                        .first()
                        .and_then(|named| named.get_attr(&field).ok())
                        .filter(|v| !v.is_undefined())
                };
                let value = found.ok_or_else(|| {
                    invalid(format!(
                        "`format` has no argument for `{{{field}}}`; format specifications are not supported"
                    ))
                })?;
                out.push_str(&value.to_string());
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::template::trace::Recorder;
    use crate::template::values::recorded;

    fn render(text: &str) -> String {
        let mut env = minijinja::Environment::new();
        env.set_unknown_method_callback(call);
        env.render_str(text, ())
            .unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn an_option_that_is_not_there_is_an_error() {
        let recorder = Arc::new(Recorder::default());
        let options = json!({"id": "web-1", "saltenv": "base"});
        let mut env = minijinja::Environment::new();
        env.set_unknown_method_callback(call);
        env.add_global("opts", recorded(&options, OPTS, &recorder));
        let render = |text: &str| env.render_str(text, ());
        assert_eq!(render("{{ opts.get('id', 'x') }}").unwrap(), "web-1");
        for text in ["{{ opts.get('test') }}", "{{ opts.get('test', false) }}"] {
            let error = render(text).unwrap_err().to_string();
            assert!(error.contains("`opts.get` has no `test`"), "{error}");
        }
    }

    #[test]
    fn methods_are_pythons() {
        for (text, wanted) in [
            (
                "{{ 'a.b.c'.split('.')[0] }} {{ 'a b  c'.split()|length }}",
                "a 3",
            ),
            ("{{ 'a.b.c'.rsplit('.', 1) }}", "['a.b', 'c']"),
            ("{{ ' x '.strip() }}{{ 'xxaxx'.strip('x') }}", "xa"),
            (
                "{{ 'v1.36.3'.startswith('v') }} {{ 'a'.endswith(['b', 'a']) }}",
                "True True",
            ),
            (
                "{{ '{}-{0}-{name}-{{}}'.format('a', name='n') }}",
                "a-a-n-{}",
            ),
            ("{{ ','.join(['a', 'b']) }}", "a,b"),
            (
                "{{ {'a': 1}.get('b', 2) }} {{ {'a': 1}.get('b') }}",
                "2 None",
            ),
            (
                "{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% endfor %}",
                "a=1",
            ),
            (
                "{{ 'hello world'.title() }} {{ 'abc'.find('c') }} {{ '7'.zfill(3) }}",
                "Hello World 2 007",
            ),
        ] {
            assert_eq!(render(text), wanted, "{text}");
        }
        assert!(
            render("{% set l = [] %}{% do l.append(1) %}")
                .contains("cannot be changed in a template")
        );
    }
}
