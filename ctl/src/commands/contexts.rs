//! `ctl context`: the clusters that one user works with.

use std::path::Path;

use halite_api::{ClusterContext, ContextList, to_value};

use crate::FAILED;
use crate::cli::{Context, GlobalArgs};
use crate::context::{ClusterAccess, Contexts, file};
use crate::output::{Screen, list as listed, or_dash, table};

/// Runs `ctl context`.
///
/// # Errors
/// The contexts cannot be read or written, or the named one does not exist.
pub fn run(global: &GlobalArgs, command: Context, screen: &mut Screen) -> anyhow::Result<u8> {
    let place = file();
    let place = place.as_deref();
    let mut contexts = Contexts::read(place)?;
    let said = match command {
        Context::List => return list(place, &contexts, screen),
        Context::Use(context) => {
            contexts.get(&context.name)?;
            contexts.current = Some(context.name.clone());
            format!("{} is the current context", context.name)
        }
        Context::Set(context) => {
            let access = contexts.contexts.entry(context.name.clone()).or_default();
            change(access, global)?;
            // All commands use the first context.
            if contexts.contexts.len() == 1 {
                contexts.current.get_or_insert(context.name.clone());
            }
            format!("the context {} is set", context.name)
        }
        Context::Delete(context) => {
            contexts.get(&context.name)?;
            contexts.contexts.remove(&context.name);
            contexts.current.take_if(|name| *name == context.name);
            format!("the context {} is removed", context.name)
        }
    };
    contexts.write(place)?;
    screen.answer(&to_value(&document(place, &contexts)), |_| said + "\n")?;
    Ok(0)
}

/// Changes a context to the values of the options.
fn change(access: &mut ClusterAccess, global: &GlobalArgs) -> anyhow::Result<()> {
    if let Some(master) = &global.master {
        access.masters = master.split(',').map(str::to_owned).collect();
    }
    if let Some(identity) = &global.identity {
        // The command may run in any directory later.
        access.identity = Some(std::path::absolute(identity)?);
    }
    Ok(())
}

/// The contexts as a document.
fn document(place: Option<&Path>, contexts: &Contexts) -> ContextList {
    let text = |path: &Path| path.display().to_string();
    let access = |access: &ClusterAccess| ClusterContext {
        masters: access.masters.clone(),
        identity: access.identity.as_deref().map(text),
    };
    let all = contexts.contexts.iter();
    ContextList {
        file: place.map(text),
        current: contexts.current.clone(),
        contexts: all.map(|(name, own)| (name.clone(), access(own))).collect(),
    }
}

fn list(place: Option<&Path>, contexts: &Contexts, screen: &mut Screen) -> anyhow::Result<u8> {
    let document = document(place, contexts);
    let is_current = |name: &str| contexts.current.as_deref() == Some(name);
    screen.answer(&to_value(&document), |_| {
        let row = |(name, access): (&String, &ClusterContext)| {
            vec![
                if is_current(name) { "*" } else { "" }.to_owned(),
                name.clone(),
                listed(&access.masters),
                or_dash(access.identity.as_ref()),
            ]
        };
        let heading = ["current", "name", "masters", "identity"];
        table::rows(&heading, document.contexts.iter().map(row))
    })?;
    let lost = contexts.current.as_ref();
    let lost = lost.filter(|name| !contexts.contexts.contains_key(*name));
    if let Some(name) = lost {
        screen.note(format!(
            "! the current context {name} does not exist; `ctl context use` selects another one"
        ));
        return Ok(FAILED);
    }
    Ok(0)
}
