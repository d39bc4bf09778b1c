//! `grains.filter_by`, `defaults.*` and `slsutil.*`: functions that merge dictionaries.

use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::super::error::{caused, invalid};
use super::super::filters::traverse;
use super::super::merge;
use super::super::merge::Form;
use super::super::values::{deep_copy, dictionary};
use super::arguments::Arguments;
use crate::target::pattern::Glob;

/// `grains.filter_by(lookup_dict, grain='os_family', merge=None, default='default', base=None)`.
pub(super) fn filter_by(grains: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let parameters = ["lookup_dict", "grain", "merge", "default", "base"];
    let args = Arguments::bind(name, &parameters, args)?;
    let table = args.required("lookup_dict")?;
    if table.kind() != ValueKind::Map {
        return Err(invalid("filter_by takes a dictionary"));
    }
    let row = |key: &str| -> Result<Option<Value>, Error> {
        let row = table.get_item(&Value::from(key))?;
        Ok((!row.is_undefined() && !row.is_none()).then_some(row))
    };
    let grain = args.text("grain")?;
    let grain = traverse(grains, grain.as_deref().unwrap_or("os_family"), ":")?;
    let mut found = match row_for(&table, grain)? {
        Some(found) => Some(found),
        None => row(args.text("default")?.as_deref().unwrap_or("default"))?,
    };
    if let Some(base) = args
        .text("base")?
        .as_deref()
        .map(row)
        .transpose()?
        .flatten()
    {
        found = Some(match found {
            None => base,
            Some(found) if base.kind() == ValueKind::Map => {
                merge::merged(&base, &found, Form::DEEP)?
            }
            Some(found) => found,
        });
    }
    // `pillar.get` of a missing key gives an empty text.
    let Some(over) = args.optional("merge").filter(Value::is_true) else {
        return Ok(found.unwrap_or_else(|| Value::from(())));
    };
    if over.kind() != ValueKind::Map {
        return Err(invalid(format!(
            "`merge` of filter_by takes a dictionary, not a {}",
            over.kind()
        )));
    }
    match found {
        None => Ok(over),
        // Salt changes the row of the table too.
        Some(row) if merge::changeable(&row).is_ok() => {
            merge::into(&row, &deep_copy(&over), Form::DEEP)?;
            Ok(row)
        }
        Some(row) => merge::merged(&row, &over, Form::DEEP),
    }
}

/// The first row whose key, a shell pattern, matches one of the values of a grain.
fn row_for(table: &Value, grain: Option<Value>) -> Result<Option<Value>, Error> {
    let values: Vec<Value> = match grain {
        Some(values) if values.kind() == ValueKind::Seq => values.try_iter()?.collect(),
        Some(value) => vec![value],
        None => Vec::new(),
    };
    for value in values {
        let value = value.to_string();
        for key in table.try_iter()? {
            let pattern = key.to_string();
            let matches = pattern == value
                || Glob::new(&pattern)
                    .map_err(|error| caused(format!("`{pattern}` is not a pattern"), error))?
                    .is_match(&value);
            if matches {
                let row = table.get_item(&key)?;
                if !row.is_none() {
                    return Ok(Some(row));
                }
                break;
            }
        }
    }
    Ok(None)
}

/// `defaults.merge(dest, src, merge_lists=False, in_place=True, convert_none=True)`.
pub(super) fn defaults_merge(name: &str, args: &[Value]) -> Result<Value, Error> {
    let parameters = ["dest", "src", "merge_lists", "in_place", "convert_none"];
    let args = Arguments::bind(name, &parameters, args)?;
    let form = Form {
        lists: args.switch("merge_lists", false),
        ..Form::DEEP
    };
    let (dest, src) = (args.required("dest")?, or_empty(&args, "src")?);
    if args.switch("in_place", true) {
        merge::into(&dest, &src, form)?;
        return Ok(dest);
    }
    merge::merged(&or_empty(&args, "dest")?, &src, form)
}

/// `defaults.update(dest, defaults, merge_lists=True, in_place=True, convert_none=True)`: the
/// defaults for each entry of `dest`.
pub(super) fn defaults_update(name: &str, args: &[Value]) -> Result<Value, Error> {
    let parameters = [
        "dest",
        "defaults",
        "merge_lists",
        "in_place",
        "convert_none",
    ];
    let args = Arguments::bind(name, &parameters, args)?;
    let form = Form {
        lists: args.switch("merge_lists", true),
        ..Form::DEEP
    };
    let nodes = if args.switch("in_place", true) {
        args.required("dest")?
    } else {
        deep_copy(&or_empty(&args, "dest")?)
    };
    let defaults = or_empty(&args, "defaults")?;
    let names: Vec<Value> = nodes.try_iter()?.collect();
    for name in names {
        let mut node = nodes.get_item(&name)?;
        if node.is_none() && args.switch("convert_none", true) {
            node = dictionary([]);
        }
        merge::set(&nodes, &name, merge::merged(&defaults, &node, form)?)?;
    }
    Ok(nodes)
}

/// `slsutil.merge(obj_a, obj_b, strategy='smart', renderer='yaml', merge_lists=False)`.
pub(super) fn slsutil_merge(name: &str, args: &[Value]) -> Result<Value, Error> {
    let parameters = ["obj_a", "obj_b", "strategy", "renderer", "merge_lists"];
    let args = Arguments::bind(name, &parameters, args)?;
    let renderer = args.text("renderer")?;
    if let Some(renderer) = renderer.filter(|name| name != "yaml" && name != "jinja|yaml") {
        return Err(invalid(format!(
            "`renderer={renderer}` of slsutil.merge does not exist here; leave it out"
        )));
    }
    merge::by_strategy(
        &args.required("obj_a")?,
        &args.required("obj_b")?,
        args.text("strategy")?.as_deref().unwrap_or("smart"),
        args.switch("merge_lists", false),
    )
}

/// `slsutil.update(dest, upd, recursive_update=True, merge_lists=False)`, in place.
pub(super) fn slsutil_update(name: &str, args: &[Value]) -> Result<Value, Error> {
    let parameters = ["dest", "upd", "recursive_update", "merge_lists"];
    let args = Arguments::bind(name, &parameters, args)?;
    let dest = args.required("dest")?;
    let form = Form {
        recursive: args.switch("recursive_update", true),
        lists: args.switch("merge_lists", false),
    };
    merge::into(&dest, &args.required("upd")?, form)?;
    Ok(dest)
}

/// An argument, or an empty dictionary if it is `None` and `convert_none` allows that.
fn or_empty(args: &Arguments, parameter: &str) -> Result<Value, Error> {
    let value = args.required(parameter)?;
    if value.is_none() && args.switch("convert_none", true) {
        return Ok(dictionary([]));
    }
    Ok(value)
}
