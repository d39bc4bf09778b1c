//! The commands of the guide's page about upgrades that pause an upgrade, and lead back from it.

use anyhow::{Result, ensure};

use super::blocks_below;

/// The page, and the headings above these commands.
const PAGE: &str = "upgrade.md";
const HEADINGS: [&str; 2] = ["## Pause", "## Back"];
/// The bundle to which the page upgrades.
const BUNDLE: &str = "1.1";

/// The commands, without their comments.
fn commands() -> Result<Vec<String>> {
    let blocks = blocks_below(PAGE, "sh", &HEADINGS)?.concat();
    let without_comment = |line: &str| line.split(" #").next().map(|line| line.trim().to_owned());
    Ok(blocks.lines().filter_map(without_comment).collect())
}

/// The words of one of these commands, for another bundle, with further options.
///
/// # Errors
/// The page has no such command.
pub(crate) fn upgrade_command(
    command: &str,
    bundle: &str,
    options: &[&str],
) -> Result<Vec<String>> {
    ensure!(
        commands()?.iter().any(|own| own == command),
        "{PAGE} has no command {command:?} below {HEADINGS:?}"
    );
    let own = command
        .split(' ')
        .map(|word| if word == BUNDLE { bundle } else { word });
    let words = own.chain(options.iter().copied());
    Ok(words.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands that the tests run on hosts.
    #[test]
    fn the_page_has_the_commands_of_the_tests() {
        let wanted = [
            "ctl upgrade 1.1 --pause-after control-plane",
            "ctl upgrade status",
            "ctl upgrade pause",
            "ctl upgrade resume",
            "ctl upgrade back --test",
            "ctl upgrade back",
            "ctl bundle remove 1.1",
        ];
        assert_eq!(commands().unwrap(), wanted);
    }

    #[test]
    fn a_command_is_for_the_bundle_of_the_test() {
        let words = upgrade_command("ctl bundle remove 1.1", "2.0-x", &["--yes"]).unwrap();
        assert_eq!(words.join(" "), "ctl bundle remove 2.0-x --yes");
        upgrade_command("ctl bundle remove 1.0", "2.0-x", &[]).unwrap_err();
    }
}
