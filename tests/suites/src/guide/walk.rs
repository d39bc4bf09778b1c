//! A part of the guide that a suite follows: its blocks of shell commands, word for word and in
//! order.

use std::collections::VecDeque;

use anyhow::{Context as _, Result, ensure};
use halite_lab::host::Host;

use super::blocks_below;

/// The blocks below some headings of a page that have not run yet.
pub(crate) struct GuideWalk {
    page: &'static str,
    /// The block that begins each shell.
    enter: String,
    left: VecDeque<String>,
}

impl GuideWalk {
    /// All blocks of shell commands below the headings of a page.
    ///
    /// # Errors
    /// The page cannot be read, or lacks a heading.
    pub(crate) fn new(page: &'static str, headings: &[&str]) -> Result<Self> {
        Ok(Self {
            page,
            enter: String::new(),
            left: blocks_below(page, "sh", headings)?.into(),
        })
    }

    /// Runs the first block, which writes variables into a file, with these values on a host. The
    /// next one begins each shell from now on.
    ///
    /// # Errors
    /// The blocks are others, or the first one fails.
    pub(crate) fn with_variables(mut self, host: &Host, values: &[(&str, String)]) -> Result<Self> {
        let variables = self.next("<<'END'")?;
        host.sh(&with_values(&variables, values)?)?;
        self.enter = self.next(". ")?;
        Ok(self)
    }

    /// The same blocks, each of which starts in this directory of the host.
    pub(crate) fn inside(self, directory: &str) -> Self {
        let enter = format!("{}cd {directory}\n", self.enter);
        Self { enter, ..self }
    }

    /// The script of the next block, which must have this part.
    ///
    /// # Errors
    /// It is another block.
    pub(crate) fn next(&mut self, part: &str) -> Result<String> {
        let page = self.page;
        let block = self.left.pop_front();
        let block = block.with_context(|| format!("{page} has no block with {part:?} any more"))?;
        ensure!(
            block.contains(part),
            "the next block of {page} has no {part:?}: {block}"
        );
        Ok(format!("set -e\n{}{block}", self.enter))
    }

    /// Runs the next block, which must have this part, in a new shell on a host. Returns all of its
    /// output.
    ///
    /// # Errors
    /// It is another block, or a command fails.
    pub(crate) fn run(&mut self, host: &Host, part: &str) -> Result<String> {
        let script = self.next(part)?;
        let ran = host.sh(&format!("exec 2>&1\n{script}"));
        ran.with_context(|| format!("the block of {} with {part:?}", self.page))
    }

    /// Fails unless all blocks have been taken.
    ///
    /// # Errors
    /// Names the next one.
    pub(crate) fn end(self) -> Result<()> {
        match self.left.front() {
            None => Ok(()),
            Some(block) => anyhow::bail!("{} also has the block: {block}", self.page),
        }
    }
}

/// A block of variables with other values. Each variable must have one line of its own; its comment
/// stays.
///
/// # Errors
/// The block lacks a variable.
pub(crate) fn with_values(block: &str, values: &[(&str, String)]) -> Result<String> {
    let mut script = String::new();
    let mut replaced = 0;
    for line in block.lines() {
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
        "{replaced} of the variables {values:?} are in:\n{block}"
    );
    Ok(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(blocks: &[&str]) -> GuideWalk {
        GuideWalk {
            page: "page.md",
            enter: ". ~/env\n".to_owned(),
            left: blocks.iter().map(|block| (*block).to_owned()).collect(),
        }
    }

    #[test]
    fn blocks_are_taken_in_order_and_none_is_left_out() {
        let mut page = walk(&["ctl status\n", "ctl health\n"]);
        assert_eq!(
            page.next("status").unwrap(),
            "set -e\n. ~/env\nctl status\n"
        );
        let error = page.next("bundle").unwrap_err().to_string();
        assert!(error.contains("ctl health"), "{error}");
        assert!(page.next("status").is_err());
        page.end().unwrap();
        let error = walk(&["ctl job list\n"]).end().unwrap_err().to_string();
        assert!(error.contains("ctl job list"), "{error}");
    }

    #[test]
    fn each_block_starts_in_the_directory() {
        let mut page = walk(&["ls\n"]).inside("/root");
        let script = page.next("ls").unwrap();
        assert_eq!(script, "set -e\n. ~/env\ncd /root\nls\n");
    }

    #[test]
    fn only_the_values_of_variables_are_replaced() {
        let block = "cat > site.env <<'END'\nA=1    # one\nB=2\nEND\n";
        let values = [("A", "10.0.0.1".to_owned())];
        let expected = "cat > site.env <<'END'\nA=10.0.0.1 # one\nB=2\nEND\n";
        assert_eq!(with_values(block, &values).unwrap(), expected);
        with_values(block, &[("C", String::new())]).unwrap_err();
    }
}
