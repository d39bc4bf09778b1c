//! `salt['module.function'](…)` in templates: the functions that only compute. Facts of a host are
//! grains.

mod addresses;
mod arguments;
mod lookup;
mod merging;
mod options;
mod paths;
mod serialization;
mod versions;

use std::fmt;
use std::sync::Arc;

use arguments::Arguments;
use minijinja::value::{Object, ObjectRepr};
use minijinja::{Error, ErrorKind, State, Value};

use super::error::{caused, invalid};
use super::files::Files;
use super::filters::traverse;
use super::values::{deep_copy, to_json};
use crate::target;

/// Functions that templates may call.
const FUNCTIONS: &[&str] = &[
    "config.get",
    "config.option",
    "cp.list_master",
    "cp.list_master_dirs",
    "cp.list_states",
    "defaults.deepcopy",
    "defaults.merge",
    "defaults.update",
    "file.basename",
    "file.dirname",
    "file.join",
    "grains.filter_by",
    "grains.get",
    "grains.has_value",
    "grains.items",
    "log.critical",
    "log.debug",
    "log.error",
    "log.exception",
    "log.info",
    "log.warning",
    "match.compound",
    "match.glob",
    "match.grain",
    "match.list",
    "match.pcre",
    "match.pillar",
    "network.calc_net",
    "network.ip_in_subnet",
    "network.is_loopback",
    "network.is_private",
    "pillar.get",
    "pillar.items",
    "pillar.keys",
    "pkg.version_cmp",
    "slsutil.merge",
    "slsutil.serialize",
    "slsutil.update",
    "test.echo",
];

/// The data that the functions read: of a minion, and of the state tree.
#[derive(Debug)]
pub(super) struct MinionValues {
    pub files: Arc<Files>,
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
    let bind = |parameters: &[&'static str]| Arguments::bind(name, parameters, args);
    match name {
        "pillar.get" => lookup::pillar(&known.pillar, name, args),
        "grains.get" => lookup::grains(&known.grains, name, args),
        "config.get" => lookup::config(known, name, args),
        "config.option" => options::option(known, name, args),
        "pillar.items" | "grains.items" => {
            bind(&[])?;
            let of_pillar = name == "pillar.items";
            Ok(if of_pillar {
                &known.pillar
            } else {
                &known.grains
            }
            .clone())
        }
        "cp.list_master" => {
            let prefix = bind(&["saltenv", "prefix"])?.text("prefix")?;
            Ok(known.files.paths(&prefix.unwrap_or_default()).into())
        }
        "cp.list_master_dirs" => paths::master_directories(&known.files, name, args),
        "cp.list_states" => {
            bind(&["saltenv"])?;
            Ok(known.files.states().into())
        }
        "file.basename" => Ok(paths::basename(&bind(&["path"])?.required_text("path")?).into()),
        "file.dirname" => Ok(paths::dirname(&bind(&["path"])?.required_text("path")?).into()),
        "file.join" => paths::join(args),
        _ if name.starts_with("log.") && FUNCTIONS.contains(&name) => {
            // Salt writes it to the minion's log.
            bind(&["message"])?.required("message")?;
            Ok(true.into())
        }
        "pillar.keys" => {
            let path = bind(&["key"])?.required_text("key")?;
            let found = traverse(&known.pillar, &path, ":")?
                .ok_or_else(|| invalid(format!("the pillar has no `{path}`")))?;
            Ok(found.try_iter()?.collect::<Vec<_>>().into())
        }
        "grains.has_value" => {
            let path = bind(&["key"])?.required_text("key")?;
            Ok(traverse(&known.grains, &path, ":")?.is_some().into())
        }
        "grains.filter_by" => merging::filter_by(&known.grains, name, args),
        "defaults.deepcopy" => Ok(deep_copy(&bind(&["source"])?.required("source")?)),
        "defaults.merge" => merging::defaults_merge(name, args),
        "defaults.update" => merging::defaults_update(name, args),
        "network.calc_net" => addresses::network(name, args),
        "network.ip_in_subnet" => addresses::is_in_network(name, args),
        "network.is_loopback" => addresses::is_loopback(name, args),
        "network.is_private" => addresses::is_private(name, args),
        "pkg.version_cmp" => versions::compare(&known.grains, name, args),
        "slsutil.serialize" => serialization::serialize(name, args),
        "slsutil.merge" => merging::slsutil_merge(name, args),
        "slsutil.update" => merging::slsutil_update(name, args),
        "test.echo" => bind(&["text"])?.required("text"),
        _ if name.starts_with("match.") && FUNCTIONS.contains(&name) => {
            let expression = bind(&["tgt"])?.required_text("tgt")?;
            let (grains, pillar) = (to_json(&known.grains)?, to_json(&known.pillar)?);
            let id = known.opts.get_attr("id")?;
            let id = id.as_str().unwrap_or_default();
            let candidate = target::Candidate {
                id,
                grains: &grains,
                pillar: &pillar,
            };
            target::matches(&name[6..], &expression, &candidate)
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
