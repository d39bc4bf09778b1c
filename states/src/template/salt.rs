//! `salt['module.function'](…)` in templates: the functions that only compute. Facts of a host are
//! grains.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Kwargs, Object, ObjectRepr, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use serde_json::Value as Json;

use super::error::{caused, invalid};
use super::filters::traverse;
use super::values::{from_json, to_json};
use crate::target;
use crate::target::pattern::Glob;

/// Functions that templates may call.
const FUNCTIONS: &[&str] = &[
    "config.get",
    "defaults.merge",
    "grains.filter_by",
    "grains.get",
    "grains.has_value",
    "grains.items",
    "match.compound",
    "match.glob",
    "match.grain",
    "match.list",
    "match.pcre",
    "match.pillar",
    "pillar.get",
    "pillar.items",
    "pillar.keys",
    "slsutil.merge",
    "slsutil.update",
    "test.echo",
];

/// The data of a minion that the functions read.
#[derive(Debug)]
pub(super) struct MinionValues {
    pub pillar: Value,
    pub grains: Value,
    pub opts: Value,
}

/// The object `salt`.
pub(super) struct Salt(pub Arc<MinionValues>);

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("salt")
    }
}

impl Object for Salt {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let name = key.as_str()?.to_owned();
        Some(Value::from_object(Function {
            name,
            known: self.0.clone(),
        }))
    }
}

/// `salt['pillar.get']`, or `salt.pillar`, whose methods are functions too.
struct Function {
    name: String,
    known: Arc<MinionValues>,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "salt['{}']", self.name)
    }
}

impl Object for Function {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let name = format!("{}.{}", self.name, key.as_str()?);
        Some(Value::from_object(Function {
            name,
            known: self.known.clone(),
        }))
    }

    fn call(self: &Arc<Self>, _: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        call(&self.name, &self.known, args)
    }

    fn call_method(
        self: &Arc<Self>,
        _: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        call(&format!("{}.{method}", self.name), &self.known, args)
    }
}

fn call(name: &str, known: &MinionValues, args: &[Value]) -> Result<Value, Error> {
    match name {
        "pillar.get" => get(&known.pillar, args),
        "grains.get" => get(&known.grains, args),
        "config.get" => {
            let lookup = path_args(args)?;
            let found = match traverse(&known.grains, &lookup.path, &lookup.delimiter)? {
                Some(found) => Some(found),
                None => traverse(&known.pillar, &lookup.path, &lookup.delimiter)?,
            };
            Ok(found.unwrap_or(lookup.default))
        }
        "pillar.items" => Ok(known.pillar.clone()),
        "grains.items" => Ok(known.grains.clone()),
        "pillar.keys" => {
            let (path,): (&str,) = from_args(args)?;
            let found = traverse(&known.pillar, path, ":")?
                .ok_or_else(|| invalid(format!("the pillar has no `{path}`")))?;
            Ok(found.try_iter()?.collect::<Vec<_>>().into())
        }
        "grains.has_value" => {
            let (path,): (&str,) = from_args(args)?;
            Ok(traverse(&known.grains, path, ":")?
                .is_some_and(|found| found.is_true())
                .into())
        }
        "grains.filter_by" => filter_by(known, args),
        "defaults.merge" | "slsutil.merge" | "slsutil.update" => {
            let (base, over, kwargs): (&Value, &Value, Kwargs) = from_args(args)?;
            let lists = kwargs.get::<Option<bool>>("merge_lists")?.unwrap_or(false);
            let mut merged = to_json(base)?;
            merge(&mut merged, to_json(over)?, lists);
            Ok(from_json(&merged))
        }
        "test.echo" => {
            let (value,): (Value,) = from_args(args)?;
            Ok(value)
        }
        _ if name.starts_with("match.") && FUNCTIONS.contains(&name) => {
            let (expression,): (&str,) = from_args(args)?;
            let (grains, pillar) = (to_json(&known.grains)?, to_json(&known.pillar)?);
            let id = known.opts.get_attr("id")?;
            let id = id.as_str().unwrap_or_default();
            let candidate = target::Candidate {
                id,
                grains: &grains,
                pillar: &pillar,
            };
            target::matches(&name[6..], expression, &candidate)
                .map(Value::from)
                .map_err(|error| caused(format!("cannot match `{expression}`"), error))
        }
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Error {
    let hint = match halite_document::did_you_mean(name, FUNCTIONS.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "templates are rendered on the master before any host is touched, so they can only compute; use a \
                 grain for a fact of the host"
            .to_owned(),
    };
    Error::new(
        ErrorKind::UnknownFunction,
        format!("salt['{name}'] cannot be called in a template: {hint}"),
    )
}

/// The arguments of `pillar.get`, `grains.get` and `config.get`.
struct Lookup {
    path: String,
    default: Value,
    delimiter: String,
    merge: bool,
}

fn path_args(args: &[Value]) -> Result<Lookup, Error> {
    let (path, default, kwargs): (&str, Option<Value>, Kwargs) = from_args(args)?;
    let default = match default {
        Some(default) => default,
        None => kwargs
            .get::<Option<Value>>("default")?
            .unwrap_or_else(|| Value::from("")),
    };
    let delimiter: Option<String> = kwargs.get("delimiter")?;
    let merge: Option<bool> = kwargs.get("merge")?;
    kwargs.assert_all_used()?;
    Ok(Lookup {
        path: path.to_owned(),
        default,
        delimiter: delimiter.unwrap_or_else(|| ":".to_owned()),
        merge: merge.unwrap_or(false),
    })
}

/// `pillar.get` and `grains.get`: `a:b:c`, a default (`""`), and `merge=True` to merge the value
/// found over the default.
fn get(data: &Value, args: &[Value]) -> Result<Value, Error> {
    let Lookup {
        path,
        default,
        delimiter,
        merge: merged,
    } = path_args(args)?;
    let Some(found) = traverse(data, &path, &delimiter)? else {
        return Ok(default);
    };
    if merged && default.kind() == ValueKind::Map && found.kind() == ValueKind::Map {
        let mut json = to_json(&default)?;
        merge(&mut json, to_json(&found)?, false);
        return Ok(from_json(&json));
    }
    Ok(found)
}

/// `grains.filter_by(table, grain='os_family', merge=None, default='default', base=None)`.
fn filter_by(known: &MinionValues, args: &[Value]) -> Result<Value, Error> {
    let (table, grain, kwargs): (&Value, Option<&str>, Kwargs) = from_args(args)?;
    let grain = match grain {
        Some(grain) => grain.to_owned(),
        None => kwargs
            .get::<Option<String>>("grain")?
            .unwrap_or_else(|| "os_family".to_owned()),
    };
    let over: Option<Value> = kwargs.get("merge")?;
    let default: Option<String> = kwargs.get("default")?;
    let base: Option<String> = kwargs.get("base")?;
    kwargs.assert_all_used()?;
    let table = to_json(table)?;
    let Json::Object(rows) = &table else {
        return Err(invalid("filter_by takes a dictionary"));
    };
    let found = traverse(&known.grains, &grain, ":")?;
    let values: Vec<String> = match &found {
        Some(value) if value.kind() == ValueKind::Seq => {
            value.try_iter()?.map(|item| item.to_string()).collect()
        }
        Some(value) => vec![value.to_string()],
        None => Vec::new(),
    };
    let row = values
        .iter()
        .find_map(|value| {
            rows.get(value.as_str()).or_else(|| {
                rows.iter()
                    .find(|(key, _)| Glob::new(key).is_ok_and(|glob| glob.is_match(value)))
                    .map(|(_, row)| row)
            })
        })
        .or_else(|| rows.get(default.as_deref().unwrap_or("default")));
    let mut result = base
        .as_deref()
        .and_then(|base| rows.get(base))
        .cloned()
        .unwrap_or(Json::Null);
    for layer in [row.cloned(), over.as_ref().map(to_json).transpose()?]
        .into_iter()
        .flatten()
    {
        if result.is_null() {
            result = layer;
        } else if !layer.is_null() {
            merge(&mut result, layer, false);
        }
    }
    Ok(from_json(&result))
}

/// Merges `over` into `base`: dictionaries deeply, everything else replaced; lists are joined only
/// with `lists`.
fn merge(base: &mut Json, over: Json, lists: bool) {
    match (base, over) {
        (Json::Object(base), Json::Object(over)) => {
            for (key, value) in over {
                match base.get_mut(&key) {
                    Some(place) => merge(place, value, lists),
                    None => {
                        base.insert(key, value);
                    }
                }
            }
        }
        (Json::Array(base), Json::Array(over)) if lists => {
            for item in over {
                if !base.contains(&item) {
                    base.push(item);
                }
            }
        }
        (place, over) => *place = over,
    }
}
