//! The compiler: SLS files, pillar and grains of one minion become its low state.
//!
//! Everything is rendered and checked before anything is sent to a host. All problems are reported
//! at once: a mistake in one file does not hide the mistakes in the next.

mod alternatives;
mod arguments;
mod call;
mod checks;
mod chunks;
mod conditions;
mod contents;
mod declaration;
mod formulas;
mod globals;
mod input;
mod keep;
mod load;
mod memo;
mod names;
mod order;
mod reference;
mod requisite;
mod requisite_words;
mod reserved;
mod rewrite;
mod slots;
mod sources;
mod spelling;
mod top;

use std::collections::BTreeMap;
use std::rc::Rc;

use call::Draft;
use formulas::FormulaRoots;
use halite_document::Problem;
use load::Names;
use memo::Memo;
use reserved::Origin;

use crate::low::{FORMAT, LowState, Position, Requisites};
use crate::template::Renderer;
use crate::tree::Tree;

pub use call::{Call, Provenance};
pub use input::Input;
pub use top::Assignment;

/// A compiled low state.
#[derive(Debug, Clone, PartialEq)]
pub struct Compiled {
    /// The ordered calls.
    pub low: LowState,
    /// Files of the state tree to which calls refer as `blob:SHA256`, by that digest.
    pub blobs: BTreeMap<String, Vec<u8>>,
    /// The origin of each call; as long as `low.chunks`.
    pub provenance: Vec<Provenance>,
    /// Parts that the author should change although they compile, sorted by place.
    pub warnings: Vec<Problem>,
}

/// Compiles everything that `top.sls` assigns to the minion.
///
/// # Errors
/// All problems, sorted by place.
pub fn highstate(input: &Input) -> Result<Compiled, Vec<Problem>> {
    Compiler::new(input.tree).highstate(input)
}

/// Compiles the named SLS files (dotted, `*` and `?` match) with what they include, for an
/// operator: one that only an orchestration may apply is refused.
///
/// # Errors
/// All problems, sorted by place.
pub fn sls(input: &Input, names: &[String]) -> Result<Compiled, Vec<Problem>> {
    Compiler::new(input.tree).named(input, names, Origin::Operator)
}

/// As [`sls`], for a step of a shipped orchestration, or to show what it would apply: also the SLS
/// files that only an orchestration may apply.
///
/// # Errors
/// All problems, sorted by place.
pub fn step(input: &Input, names: &[String]) -> Result<Compiled, Vec<Problem>> {
    Compiler::new(input.tree).named(input, names, Origin::Step)
}

/// The SLS files that `top.sls` assigns to the minion, in order, each with its line there.
///
/// # Errors
/// All problems of `top.sls`.
pub fn top(input: &Input) -> Result<Vec<Assignment>, Vec<Problem>> {
    let mut compiler = Compiler::new(input.tree);
    compiler.set_minion(input);
    compiler.assigned(input)
}

/// A compiler of one tree for many minions. It reads each file once, and renders a template again
/// only for a minion whose data differ where the template reads them. The results are the same as
/// those of a separate compiler for each minion.
pub struct Compiler {
    renderer: Renderer,
    names: Names,
    memo: Memo,
    formulas: FormulaRoots,
}

impl Compiler {
    /// A compiler of the current tree; later changes of the tree have no effect.
    #[must_use]
    pub fn new(tree: &dyn Tree) -> Self {
        Self {
            renderer: Renderer::new(tree),
            names: load::names(tree),
            memo: Memo::default(),
            formulas: FormulaRoots::new(tree),
        }
    }

    /// As [`highstate`]; `input.tree` must be the tree of [`Self::new`].
    ///
    /// # Errors
    /// All problems, sorted by place.
    pub fn highstate(&mut self, input: &Input) -> Result<Compiled, Vec<Problem>> {
        self.set_minion(input);
        let ordered = self.ordered(input, None, self.assigned(input)?, Origin::Top)?;
        Ok(ordered.compiled(input))
    }

    fn named(
        &mut self,
        input: &Input,
        names: &[String],
        origin: Origin,
    ) -> Result<Compiled, Vec<Problem>> {
        self.set_minion(input);
        let ordered = self.ordered(input, None, assignments(names), origin)?;
        Ok(ordered.compiled(input))
    }

    /// The calls of [`highstate`], or of [`step`] with names, in their order. For programs that
    /// compile for many minions and run nothing: a call that an earlier minion had too is the same
    /// object. `input.bundle` must answer the same each time, because its answers are cached.
    ///
    /// # Errors
    /// All problems, sorted by place.
    pub fn calls(
        &mut self,
        input: &Input,
        names: Option<&[String]>,
    ) -> Result<Vec<Rc<Call>>, Vec<Problem>> {
        self.set_minion(input);
        let (assigned, origin) = match names {
            None => (self.assigned(input)?, Origin::Top),
            Some(names) => (assignments(names), Origin::Step),
        };
        let Ordered { drafts, order, .. } =
            self.ordered(input, Some(&self.memo), assigned, origin)?;
        Ok(order
            .into_iter()
            .map(|at| drafts[at].call.clone())
            .collect())
    }

    fn set_minion(&mut self, input: &Input) {
        self.renderer
            .set_minion(input.minion, input.pillar, input.grains);
    }

    fn assigned(&self, input: &Input) -> Result<Vec<Assignment>, Vec<Problem>> {
        let mut problems = Vec::new();
        let assigned = top::assigned(input, &self.renderer, &mut problems);
        if problems.is_empty() {
            Ok(assigned)
        } else {
            Err(report(problems, &self.renderer))
        }
    }

    fn ordered(
        &self,
        input: &Input,
        memo: Option<&Memo>,
        assigned: Vec<Assignment>,
        origin: Origin,
    ) -> Result<Ordered, Vec<Problem>> {
        let renderer = &self.renderer;
        let mut problems = self.formulas.problems().to_vec();
        let from = (assigned, origin);
        let mut loaded = load::load(renderer, &self.names, memo, from, &mut problems);
        // If a file is missing, problems of references to it would only be noise.
        let complete = problems.is_empty();
        let declarations = rewrite::rewrite(&mut loaded, complete, &mut problems);
        let place = chunks::Surroundings {
            input,
            renderer,
            loaded: &loaded,
            formulas: &self.formulas,
        };
        let drafts = chunks::expand(&place, memo, &declarations, &mut problems);
        let edges = requisite::resolve(&loaded, &declarations, &drafts, complete, &mut problems);
        let order = order::order(&drafts, &edges, &loaded.high_order, &mut problems);
        if problems.is_empty() {
            Ok(Ordered {
                drafts,
                edges,
                order,
            })
        } else {
            Err(report(problems, renderer))
        }
    }
}

fn assignments(names: &[String]) -> Vec<Assignment> {
    names
        .iter()
        .map(|sls| Assignment {
            sls: sls.clone(),
            position: Position::default(),
        })
        .collect()
}

/// Calls without problems.
struct Ordered {
    drafts: Vec<Draft>,
    /// The requisites of each draft, as positions in `drafts`.
    edges: Vec<Requisites>,
    /// Positions in `drafts`.
    order: Vec<usize>,
}

impl Ordered {
    fn compiled(self, input: &Input) -> Compiled {
        let mut blobs = BTreeMap::new();
        let mut calls = chunks::assemble(self.drafts, &self.edges, &self.order);
        keep::add(&mut calls);
        let mut warnings: Vec<Problem> = calls
            .iter_mut()
            .flat_map(|call| std::mem::take(&mut call.warnings))
            .collect();
        warnings.sort();
        warnings.dedup();
        let calls = calls.into_iter();
        let (chunks, provenance) = calls
            .map(|call| {
                blobs.extend(call.blobs);
                (call.chunk, call.provenance)
            })
            .unzip();
        let low = LowState {
            format: FORMAT,
            minion: input.minion.to_owned(),
            chunks,
        };
        Compiled {
            low,
            blobs,
            provenance,
            warnings,
        }
    }
}

/// Sorts problems, drops repetitions and adds source lines.
fn report(mut problems: Vec<Problem>, renderer: &Renderer) -> Vec<Problem> {
    for problem in &mut problems {
        if let Some(text) = renderer.source(&problem.file) {
            *problem = std::mem::take(problem).excerpt_from(&text);
        }
    }
    problems.sort();
    problems.dedup();
    problems
}
