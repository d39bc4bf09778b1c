//! The tutorial's blocks of commands, each with the machine on which it runs.

use anyhow::{Context as _, Result, bail};

use crate::guide;

/// The page.
const PAGE: &str = "tutorial.md";
/// The end of the first line of a block that a reader may run again.
const REPEATABLE: &str = "; may be repeated";

/// The machine on which a block runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TutorialMachine {
    /// The connected machine.
    Builder,
    /// The first host of the cluster.
    First,
    /// The block prepares each new shell on both.
    Either,
}

/// A block of commands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) machine: TutorialMachine,
    pub(super) is_repeatable: bool,
    pub(super) script: String,
}

impl Block {
    /// Reads the machine from the block's first line.
    fn parse(script: String) -> Result<Self> {
        let first = script.lines().next().unwrap_or_default();
        let (name, is_repeatable) = match first.strip_suffix(REPEATABLE) {
            Some(name) => (name, true),
            None => (first, false),
        };
        let machine = match name {
            "# On the builder's machine" => TutorialMachine::Builder,
            "# On cp-1" => TutorialMachine::First,
            "# On either machine" => TutorialMachine::Either,
            other => {
                bail!("{PAGE}: a block of commands begins with {other:?}, not with its machine")
            }
        };
        Ok(Self {
            machine,
            is_repeatable,
            script,
        })
    }

    /// The block with other values of variables. Each must have one line of its own; its comment
    /// stays.
    pub(super) fn with_values(&self, values: &[(&str, String)]) -> Result<String> {
        guide::with_values(&self.script, values).context(PAGE)
    }

    /// The value of a variable.
    pub(super) fn value(&self, name: &str) -> Result<&str> {
        let mut lines = self.script.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let value = line.and_then(|line| line.split_whitespace().next());
        value.with_context(|| format!("{PAGE} has no variable {name}"))
    }
}

/// All blocks of the page, in order.
pub(super) fn blocks() -> Result<Vec<Block>> {
    guide::shell_blocks(PAGE)?
        .into_iter()
        .map(Block::parse)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_block_names_its_machine() {
        let parse = |script: &str| Block::parse(script.to_owned());
        let first = parse("# On cp-1; may be repeated\nctl status\n").unwrap();
        assert_eq!(
            (first.machine, first.is_repeatable),
            (TutorialMachine::First, true)
        );
        let builder = parse("# On the builder's machine\nctl bundle init\n").unwrap();
        assert_eq!(
            (builder.machine, builder.is_repeatable),
            (TutorialMachine::Builder, false)
        );
        let error = parse("ctl status\n").unwrap_err().to_string();
        assert!(error.contains("\"ctl status\""), "{error}");
    }

    #[test]
    fn a_variable_is_found_by_its_name() {
        let script = "# On cp-1\ncat > site.env <<'END'\nA=1    # one\nB=2\nEND\n";
        let block = Block::parse(script.to_owned()).unwrap();
        assert_eq!(block.value("A").unwrap(), "1");
        assert_eq!(block.value("B").unwrap(), "2");
        block.value("C").unwrap_err();
    }
}
