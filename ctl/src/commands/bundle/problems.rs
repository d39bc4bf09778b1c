//! The report about a bundle that cannot be used.

use halite_api::{RefusedBundle, to_value};

use crate::FAILED;
use crate::output::Screen;

/// Prints the problems of a bundle, and that nothing was changed; returns the exit code.
///
/// # Errors
/// The answer cannot be printed.
pub fn refuse(problems: &[String], screen: &mut Screen) -> anyhow::Result<u8> {
    let document = RefusedBundle {
        problems: problems.to_vec(),
        changed: false,
    };
    screen.answer(&to_value(&document), |paint| {
        let mut text: String = problems
            .iter()
            .map(|problem| format!("{} {problem}\n", paint.bad("✗")))
            .collect();
        text.push_str("Nothing was changed.\n");
        text
    })?;
    Ok(FAILED)
}
