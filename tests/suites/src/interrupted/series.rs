//! Boundaries in series: one run of a command is interrupted at one after the other.

use std::fmt::Display;

use anyhow::{Context as _, Result, ensure};

use crate::test::Counts;

/// The number of runs in a row that are interrupted at no boundary before the test fails.
const IDLE: usize = 3;

/// Interrupts runs of a command until it was interrupted at each boundary. `run` carries out one
/// run with the boundaries that it is given, and returns those that it has missed: they are among
/// those of another run.
pub(crate) fn in_series<B: Clone>(
    boundaries: &[B],
    mut run: impl FnMut(&[B]) -> Result<Vec<B>>,
) -> Result<Counts> {
    let mut left = boundaries.to_vec();
    let mut idle = 0;
    while !left.is_empty() {
        let missed = run(&left)?;
        // A record may exist for only an instant.
        idle = if missed.len() < left.len() {
            0
        } else {
            idle + 1
        };
        ensure!(
            idle < IDLE,
            "{IDLE} runs were interrupted at none of their {} boundaries",
            left.len()
        );
        left = missed;
    }
    Ok(Counts {
        passed: boundaries.len(),
        failed: 0,
    })
}

/// Interrupts one run of a command at each boundary, in order, and returns those that were missed.
/// `interrupt` is given the place and the boundary. It returns `false` if the moment has passed
/// before it was noticed: a resumed run does not wait for `ctl`.
pub(crate) fn one_run<B: Clone + Display>(
    boundaries: &[B],
    mut interrupt: impl FnMut(usize, &B) -> Result<bool>,
) -> Result<Vec<B>> {
    let mut missed = Vec::new();
    for (place, boundary) in boundaries.iter().enumerate() {
        let is_interrupted =
            interrupt(place, boundary).with_context(|| format!("after {boundary}"))?;
        if is_interrupted {
            println!("  interrupted after {boundary}");
        } else {
            println!("  NOT interrupted after {boundary}, which was over before it was noticed");
            missed.push(boundary.clone());
        }
    }
    Ok(missed)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_missed_boundary_is_among_those_of_another_run() {
        let mut runs = Vec::new();
        let counts = in_series(&["turn", "host", "key"], |left| {
            runs.push(left.to_vec());
            // Each run resumes too early for its second boundary.
            one_run(left, |place, _| Ok(place != 1))
        });
        assert_eq!(counts.unwrap().passed, 3);
        assert_eq!(runs, [vec!["turn", "host", "key"], vec!["host"]]);
        let none = in_series(&["turn", "host"], |left| one_run(left, |_, _| Ok(false)));
        let text = none.unwrap_err().to_string();
        assert!(text.contains("none of their 2 boundaries"), "{text}");
    }

    #[test]
    fn the_error_names_the_boundary() {
        let failed = one_run(&["turn", "host"], |place, _| match place {
            0 => Ok(true),
            _ => bail!("it does not boot"),
        });
        let text = format!("{:#}", failed.unwrap_err());
        assert_eq!(text, "after host: it does not boot");
    }
}
