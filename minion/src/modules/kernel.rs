//! `sysctl.*` and `kmod.*`

use halite_states::args::{Args, scalar};
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::lines::EditedLines;
use super::paths::{absolute, parents};
use super::{Failure, Plan, fail, replace};
use crate::host::Host;
use crate::host::effect::{Effect, Meta};

/// Sorts after `99-sysctl.conf`, the link to `/etc/sysctl.conf` on Debian and Red Hat: the last
/// file wins.
const SYSCTLS: &str = "/etc/sysctl.d/zz-halite.conf";
const MODULES: &str = "/etc/modules-load.d/halite.conf";

pub(super) async fn parameter_present(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let key = dotted(&chunk.name);
    let Some(value) = args.any("value") else {
        return Ok(Plan::nothing(format!("Sysctl value {key} is left alone")));
    };
    let value = match value {
        serde_json::Value::Bool(flag) => u8::from(*flag).to_string(),
        value => match scalar(value) {
            Some(text) => normal(&text),
            None => {
                return fail(format!(
                    "sysctl.present: {key}: `value` must be a text or a number"
                ));
            }
        },
    };
    let live = host.sysctl(&key).await?;
    if live.is_none() && !host.uncertain() {
        return fail(format!(
            "this kernel has no parameter {key}; if it belongs to a module, load that first, with kmod.present"
        ));
    }
    let path = absolute(&args.text("config")?.unwrap_or_else(|| SYSCTLS.to_owned()))?;
    let (content, mut effects) = replace::read(host, &path).await?;
    let content = content.unwrap_or_default();
    let text = String::from_utf8_lossy(&content);
    let kept = with_parameter(&text, &key, &value);
    if kept != text {
        effects.extend(parents(host, &path, true, &Meta::default()).await?);
        effects.push(replace::rewritten(&path, &content, kept)?);
    }
    if live.map(|live| normal(&live)).as_ref() != Some(&value) {
        effects.push(Effect::Sysctl {
            key: key.clone(),
            value: value.clone(),
        });
    }
    if effects.is_empty() {
        return Ok(Plan::nothing(format!(
            "Sysctl value {key} = {value} is already set"
        )));
    }
    Ok(Plan::change(
        Map::from_iter([(key.clone(), json!(value))]),
        effects,
        format!("Sysctl option {key} set to be changed to {value}"),
        format!("Updated sysctl value {key} = {value}"),
    ))
}

/// `net/ipv4/ip_forward` and `-net.ipv4.ip_forward` are the same parameter, by sysctl.d(5).
fn dotted(key: &str) -> String {
    let key = key.trim().trim_start_matches('-');
    // If a slash comes first, slashes separate and dots belong to names (an interface with a dot).
    match key.find(['/', '.']) {
        Some(at) if key.get(at..=at) == Some("/") => key
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => key.to_owned(),
    }
}

fn normal(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The file with exactly one line for `key`; everything else stays.
fn with_parameter(text: &str, key: &str, value: &str) -> String {
    let is_it = |line: &str| {
        !line.trim_start().starts_with(['#', ';'])
            && line.split_once('=').is_some_and(|(k, _)| dotted(k) == key)
    };
    let holds = |line: &str| {
        line.split_once('=')
            .is_some_and(|(_, v)| normal(v) == value)
    };
    let mut done = false;
    let mut lines = EditedLines::read(text);
    lines.retain_mut(|line| {
        if !is_it(line) {
            return true;
        }
        if !holds(line) {
            *line = format!("{key} = {value}");
        }
        !std::mem::replace(&mut done, true)
    });
    if !done {
        lines.push(format!("{key} = {value}"));
    }
    lines.to_string()
}

pub(super) async fn module_present(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let modules = args
        .maybe_list("mods")?
        .unwrap_or_else(|| vec![chunk.name.clone()]);
    let persist = args.flag("persist", false)?;
    let (content, room) = replace::read(host, MODULES).await?;
    let content = content.unwrap_or_default();
    let text = String::from_utf8_lossy(&content).into_owned();
    let mut lines = EditedLines::read(&text);
    let same = |a: &str, b: &str| a.trim().replace('-', "_") == b.replace('-', "_");
    let mut changes = Map::new();
    let mut loads = Vec::new();
    let mut added = false;
    for module in &modules {
        if !host.kernel_module(module).await? {
            loads.push(Effect::LoadModule {
                name: module.clone(),
            });
            changes.insert(module.clone(), json!("loaded"));
        }
        if persist && !lines.iter_mut().any(|line| same(line, module)) {
            lines.push(module.clone());
            added = true;
            changes
                .entry(module.clone())
                .or_insert(json!("added at boot"));
        }
    }
    let names = modules.join(", ");
    if changes.is_empty() {
        return Ok(Plan::nothing(format!(
            "Kernel module {names} is already present"
        )));
    }
    let mut effects = Vec::new();
    if added {
        effects = room;
        effects.extend(parents(host, MODULES, true, &Meta::default()).await?);
        effects.push(replace::rewritten(MODULES, &content, lines.to_string())?);
    }
    effects.append(&mut loads);
    let comment = format!("Kernel module {names} is set to be loaded");
    Ok(Plan::change(
        changes,
        effects,
        comment,
        format!("Loaded kernel module {names}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_has_one_line_and_the_rest_stays() {
        let text = "# ours\nnet.a = 1\nother=2\nnet/a=3\n";
        assert_eq!(
            with_parameter(text, "net.a", "5"),
            "# ours\nnet.a = 5\nother=2\n"
        );
        assert_eq!(with_parameter("net.a=5\n", "net.a", "5"), "net.a=5\n");
        assert_eq!(with_parameter("", "net.a", "5 6"), "net.a = 5 6\n");
        assert_eq!(with_parameter("net.a=5", "net.a", "5"), "net.a=5");
        let dos = "# ours\r\nnet.a = 1\r\nother=2\r\n";
        assert_eq!(
            with_parameter(dos, "net.a", "5"),
            "# ours\r\nnet.a = 5\r\nother=2\r\n"
        );
        assert_eq!(dotted("net/ipv4/conf/eth0.1/x"), "net.ipv4.conf.eth0/1.x");
        assert_eq!(normal("1\t2  3"), "1 2 3");
    }
}
