//! The tutorial's blocks of commands, each with the machine on which it runs.

use anyhow::{Context as _, Result, bail, ensure};

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
        let mut script = String::new();
        let mut replaced = 0;
        for line in self.script.lines() {
            let assigned = line.split_once('=');
            let value = values
                .iter()
                .find(|(name, _)| assigned.is_some_and(|(own, _)| own == *name));
            match value {
                Some((name, value)) => {
                    let comment = line.find(" #").map_or("", |at| &line[at..]);
                    script.push_str(&format!("{name}={value}{comment}\n"));
                    replaced += 1;
                }
                None => script.push_str(&format!("{line}\n")),
            }
        }
        ensure!(
            replaced == values.len(),
            "{PAGE}: {replaced} of the variables {values:?} are in:\n{}",
            self.script
        );
        Ok(script)
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
    fn only_the_values_of_variables_are_replaced() {
        let script = "# On cp-1\ncat > site.env <<'END'\nA=1    # one\nB=2\nEND\n";
        let block = Block::parse(script.to_owned()).unwrap();
        let values = [("A", "10.0.0.1".to_owned())];
        let expected = "# On cp-1\ncat > site.env <<'END'\nA=10.0.0.1 # one\nB=2\nEND\n";
        assert_eq!(block.with_values(&values).unwrap(), expected);
        assert_eq!(block.value("B").unwrap(), "2");
        block.with_values(&[("C", String::new())]).unwrap_err();
        block.value("C").unwrap_err();
    }
}
