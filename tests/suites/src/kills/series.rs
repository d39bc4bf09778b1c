//! Boundaries in series: one run of some commands is interrupted at one moment after the other, in
//! the order in which they come.

use std::fmt::Display;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::wait;

use crate::interrupted::{in_series, one_run};
use crate::test::Case;

/// Limit for the next moment to come; on a busy machine some take three or four minutes. The end of
/// the commands also ends the wait.
const MOMENT: Duration = Duration::from_secs(540);

/// Running commands with moments that can be observed from outside.
pub(crate) trait Interruptible {
    /// A moment and its victim.
    type Boundary: Copy + Display;

    /// Returns whether the moment has come.
    fn is_reached(&self, boundary: Self::Boundary) -> bool;

    /// Kills the victim.
    ///
    /// # Errors
    /// It does not run, or its host does not boot again.
    fn strike(&mut self, boundary: Self::Boundary) -> Result<()>;

    /// Runs those commands again that an interruption made fail. Returns whether all have
    /// succeeded.
    ///
    /// # Errors
    /// One has failed without an interruption.
    fn repeat(&mut self) -> Result<bool>;
}

/// Interrupts commands that were just started at these boundaries, and returns those whose moment
/// was missed. The first one cannot be missed.
///
/// # Errors
/// A command fails without an interruption, or all succeed before the first moment.
pub(crate) fn interrupt<I: Interruptible>(
    commands: &mut I,
    boundaries: &[I::Boundary],
) -> Result<Vec<I::Boundary>> {
    one_run(boundaries, |place, boundary| {
        let later = &boundaries[place + 1..];
        let has_come = comes(commands, *boundary, later, place == 0)?;
        if has_come {
            commands.strike(*boundary)?;
        }
        Ok(has_come)
    })
}

/// Waits for a moment. Returns `false` if it was missed: it had come before the wait, which an
/// interruption precedes, or a later one has come, too, or the commands have succeeded without it.
fn comes<I: Interruptible>(
    commands: &mut I,
    boundary: I::Boundary,
    later: &[I::Boundary],
    is_first: bool,
) -> Result<bool> {
    if !is_first && commands.is_reached(boundary) {
        return Ok(false);
    }
    let has_come = wait::promptly("the moment", MOMENT, || {
        let found = look(commands, boundary).transpose();
        found.context("it has not come")
    })??;
    ensure!(
        has_come || !is_first,
        "the commands succeeded without this moment"
    );
    let is_over = |other: &I::Boundary| commands.is_reached(*other);
    Ok(has_come && (is_first || !later.iter().any(is_over)))
}

/// Returns whether the moment has come, once that is known: it cannot come any more when all
/// commands have succeeded.
fn look<I: Interruptible>(commands: &mut I, boundary: I::Boundary) -> Result<Option<bool>> {
    let are_done = commands.repeat()?;
    let has_come = commands.is_reached(boundary);
    Ok((has_come || are_done).then_some(has_come))
}

/// One run of commands on a cluster, which is interrupted at these boundaries. Returns those that
/// it has missed.
pub(crate) type InterruptedRun<B> = fn(&Cluster, &[B]) -> Result<Vec<B>>;

/// A test of boundaries.
pub(crate) fn case<B: Copy + 'static>(
    name: String,
    boundaries: Vec<B>,
    run: InterruptedRun<B>,
) -> Case<Cluster> {
    Case::new(name, move |cluster: &Cluster| {
        in_series(&boundaries, |left| run(cluster, left))
    })
}

/// A test of each series: `kills: boundaries of ctl bootstrap, 0`.
pub(crate) fn numbered<B: Copy + 'static>(
    name: &str,
    series: Vec<Vec<B>>,
    run: InterruptedRun<B>,
) -> Vec<Case<Cluster>> {
    let all = series.into_iter().enumerate();
    all.map(|(number, boundaries)| case(format!("{name}, {number}"), boundaries, run))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Commands whose moments come in the order of their numbers.
    #[derive(Default)]
    struct Scripted {
        /// The number of moments that have come.
        come: usize,
        /// The same after each look at the commands; they succeed after the last one.
        looks: VecDeque<usize>,
        /// The same after each interruption.
        interruptions: VecDeque<usize>,
        struck: Vec<usize>,
    }

    impl Scripted {
        fn new(looks: &[usize], interruptions: &[usize]) -> Self {
            Self {
                looks: looks.iter().copied().collect(),
                interruptions: interruptions.iter().copied().collect(),
                ..Self::default()
            }
        }
    }

    impl Interruptible for Scripted {
        type Boundary = usize;

        fn is_reached(&self, boundary: usize) -> bool {
            boundary < self.come
        }

        fn strike(&mut self, boundary: usize) -> Result<()> {
            self.struck.push(boundary);
            self.come = self.interruptions.pop_front().unwrap_or(self.come);
            Ok(())
        }

        fn repeat(&mut self) -> Result<bool> {
            let next = self.looks.pop_front();
            self.come = next.unwrap_or(self.come);
            Ok(next.is_none())
        }
    }

    #[test]
    fn each_moment_that_is_noticed_in_time_is_interrupted() {
        let mut commands = Scripted::new(&[0, 1, 1, 2, 3], &[]);
        assert!(interrupt(&mut commands, &[0, 1, 2]).unwrap().is_empty());
        assert_eq!(commands.struck, [0, 1, 2]);
    }

    #[test]
    fn a_missed_moment_is_left_for_another_run() {
        // 1 and 2 come at once, 4 comes during the interruption at 3, and 5 never comes.
        let mut commands = Scripted::new(&[1, 3, 4], &[1, 5]);
        let missed = interrupt(&mut commands, &[0, 1, 2, 3, 4, 5]).unwrap();
        assert_eq!((commands.struck, missed), (vec![0, 3], vec![1, 2, 4, 5]));
        // The first moment of a run is not missed, however late it is noticed.
        let mut commands = Scripted::new(&[3], &[]);
        let missed = interrupt(&mut commands, &[1, 2]).unwrap();
        assert_eq!((commands.struck, missed), (vec![1], vec![2]));
    }

    #[test]
    fn commands_that_succeed_before_the_first_moment_are_an_error() {
        let failed = interrupt(&mut Scripted::new(&[0], &[]), &[0, 1]);
        let text = format!("{:#}", failed.unwrap_err());
        assert!(
            text.starts_with("after 0: ") && text.contains("without this moment"),
            "{text}"
        );
    }
}
