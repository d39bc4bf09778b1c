//! The commands about this program: `ctl version`, `ctl completion`, `ctl help`.

use anyhow::bail;
use clap::Command;
use halite_api::{Versions, to_value};

use crate::cli::{Global, Shell, Version, command, topic};
use crate::client;
use crate::complete::script;
use crate::output::Screen;

/// Runs `ctl version`.
///
/// # Errors
/// The master does not answer or refuses; the version of this program has been printed by then.
pub async fn version(global: &Global, args: &Version, screen: &mut Screen) -> anyhow::Result<u8> {
    let mut versions = Versions {
        ctl: env!("CARGO_PKG_VERSION").to_owned(),
        master: None,
    };
    let own = format!("ctl     {}", versions.ctl);
    if args.client {
        screen.answer(&to_value(&versions), |_| own + "\n")?;
        return Ok(0);
    }
    screen.line(own);
    let master = client::status(global).await?.version;
    versions.master = Some(master.clone());
    screen.answer(&to_value(&versions), |_| format!("master  {master}\n"))?;
    Ok(0)
}

/// Runs `ctl completion`.
///
/// # Errors
/// The script cannot be written.
pub fn completion(shell: Shell, screen: &mut Screen) -> anyhow::Result<u8> {
    screen.text(&script(shell)?)?;
    Ok(0)
}

/// Runs `ctl help`.
///
/// # Errors
/// There is no such command or topic.
pub fn help(words: &[String], screen: &mut Screen) -> anyhow::Result<u8> {
    if let [name] = words
        && let Some(text) = topic(name)
    {
        screen.text(text)?;
        return Ok(0);
    }
    let mut root = command();
    root.build();
    let mut at: &mut Command = &mut root;
    for word in words {
        at = match at.find_subcommand_mut(word) {
            Some(below) => below,
            None => bail!(
                "cannot find help about {:?}: neither a command nor a topic; `ctl --help` lists the commands, and \
                 `ctl help --help` the topics",
                words.join(" ")
            ),
        };
    }
    let text = at.render_long_help().to_string();
    screen.text(&text)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    #[test]
    fn help_knows_commands_and_topics() {
        let out = tempfile::NamedTempFile::new().unwrap();
        let help = |words: &[&str]| {
            let mut screen =
                Screen::on(Format::Table, out.reopen().unwrap(), out.reopen().unwrap());
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            out.as_file().set_len(0).unwrap();
            super::help(&words, &mut screen)?;
            anyhow::Ok(std::fs::read_to_string(out.path())?)
        };
        assert!(help(&[]).unwrap().contains("Watch and repair:"));
        let text = help(&["node", "add"]).unwrap();
        assert!(
            text.contains("ctl node add") && text.contains("--roles"),
            "{text}"
        );
        assert!(help(&["targets"]).unwrap().contains("-G os:Debian"));
        let error = help(&["node", "frobnicate"]).unwrap_err().to_string();
        assert!(error.contains("node frobnicate"), "{error}");
    }
}
