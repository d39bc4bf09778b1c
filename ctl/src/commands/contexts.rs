//! `ctl context`: the clusters that one user works with.

use serde_json::json;

use crate::FAILED;
use crate::cli::{Context, GlobalArgs};
use crate::context::{ClusterAccess, Contexts, file};
use crate::output::{Screen, table};

/// Runs `ctl context`.
///
/// # Errors
/// The contexts cannot be read or written, or the named one does not exist.
pub fn run(global: &GlobalArgs, command: Context, screen: &mut Screen) -> anyhow::Result<u8> {
    let place = file();
    let place = place.as_deref();
    let mut contexts = Contexts::read(place)?;
    let said = match command {
        Context::List => return list(&contexts, screen),
        Context::Use(context) => {
            contexts.get(&context.name)?;
            contexts.current = Some(context.name.clone());
            format!("{} is the current context", context.name)
        }
        Context::Set(context) => {
            let access = contexts.contexts.entry(context.name.clone()).or_default();
            change(access, global)?;
            // The first one is meant by all commands.
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
    let document =
        json!({"file": place, "current": contexts.current, "contexts": contexts.contexts});
    screen.answer(&document, |_| said + "\n")?;
    Ok(0)
}

/// Gives a context the values of the options.
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

fn list(contexts: &Contexts, screen: &mut Screen) -> anyhow::Result<u8> {
    let document = serde_json::to_value(contexts)?;
    let is_current = |name: &str| contexts.current.as_deref() == Some(name);
    screen.answer(&document, |_| {
        let row = |(name, access): (&String, &ClusterAccess)| {
            let identity = access.identity.as_ref();
            vec![
                if is_current(name) { "*" } else { "" }.to_owned(),
                name.clone(),
                access.masters.join(","),
                identity.map_or("-".to_owned(), |path| path.display().to_string()),
            ]
        };
        let heading = ["current", "name", "masters", "identity"];
        table::rows(&heading, contexts.contexts.iter().map(row))
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
