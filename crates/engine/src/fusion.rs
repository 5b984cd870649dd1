//! Runs of neighbouring operations that a backend does with one kernel each.
//!
//! A run is found by its pattern alone, and only where it changes nothing but the number of kernels: its operations are
//! executed at the same times, belong together by what they read and write, and nothing is given back before the last of
//! them. So storages may be taken before the run and given back after it, and no two of them share a buffer inside it.

use quadrille_step::{Op, Operation, Section, kind};

/// What one kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Statistics of rows that no axis cuts, and the norm by them: row sums, centered squares, norm; or row squares, norm.
    Norm,
    /// The sums that a norm's gradients need, of rows that no axis cuts, and the gradient of its input.
    NormBackward,
    /// The updates of several parameters whose states lie on the device.
    Updates,
}

/// Operations that are done at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// By which kernel.
    pub pattern: Pattern,
    /// How many, from the first on.
    pub len: usize,
}

/// The run that begins with an operation of a section; `None`: the operation is done by itself.
pub(crate) fn run_at(section: &Section, first: usize) -> Option<Run> {
    let ops = &section.ops[first..];
    let run = by_pattern(ops)?;
    let together = ops[1..run.len].iter().all(|op| op.when == ops[0].when);
    let deaths = &section.lifetimes.deaths[first..first + run.len - 1];
    (together && deaths.iter().all(Vec::is_empty)).then_some(run)
}

fn by_pattern(ops: &[Op]) -> Option<Run> {
    use Operation as Is;
    let at = |index: usize| ops.get(index).map(|op: &Op| &op.operation);
    let run = |pattern, len| Some(Run { pattern, len });
    match (at(0)?, at(1), at(2)) {
        (Is::RowSums(sums), Some(Is::CenteredSquares(squares)), Some(Is::Norm(norm))) => {
            let one = (sums.input, sums.output) == (squares.input, squares.sums);
            let fits = norm.input == sums.input && norm.sums == Some(sums.output) && norm.squares == squares.output;
            if one && fits { run(Pattern::Norm, 3) } else { None }
        }
        (Is::RowSquares(squares), Some(Is::Norm(norm)), _) => {
            let fits = norm.input == squares.input && norm.sums.is_none() && norm.squares == squares.output;
            if fits { run(Pattern::Norm, 2) } else { None }
        }
        (Is::NormBackwardSums(sums), Some(Is::NormBackward(norm)), _) => {
            if norm.reduced == sums.output && same_norm(sums, norm) { run(Pattern::NormBackward, 2) } else { None }
        }
        (Is::AdamW(_), Some(Is::AdamW(_)), _) => {
            let len =
                ops.iter().take_while(|op| matches!(op.operation, Is::AdamW(kind::AdamW { run: None, .. }))).count();
            if len > 1 { run(Pattern::Updates, len) } else { None }
        }
        _ => None,
    }
}

/// Whether both are of one norm, and read the same.
fn same_norm(sums: &kind::NormBackwardSums, norm: &kind::NormBackward) -> bool {
    let of_sums = (sums.of, sums.input, sums.sums, sums.squares, sums.gamma, sums.gradient);
    of_sums == (norm.of, norm.input, norm.sums, norm.squares, norm.gamma, norm.gradient)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use quadrille_spec::{Layout, LayoutRequest, Model};
    use quadrille_step::{ChunkProgram, StepProgram, When};

    use super::*;

    fn program(model: &str, grid: &str) -> StepProgram {
        let model = Model::preset(model).unwrap();
        let layout = Layout::new(&model, &LayoutRequest::new(grid.parse().unwrap(), 8)).unwrap();
        StepProgram::new(&model, &layout).unwrap()
    }

    fn sections(program: &StepProgram) -> Vec<&Section> {
        let stages = program.stages.iter();
        stages.flat_map(|stage| stage.chunks.iter().flat_map(ChunkProgram::sections).chain([&stage.update])).collect()
    }

    /// The runs of a section in their order, with the number of the first operation of each.
    fn runs(section: &Section) -> Vec<(usize, Run)> {
        let (mut found, mut first) = (Vec::new(), 0);
        while first < section.ops.len() {
            let run = run_at(section, first);
            found.extend(run.map(|run| (first, run)));
            first += run.map_or(1, |run| run.len);
        }
        found
    }

    /// How many runs of each length a program has, by pattern.
    fn counts(program: &StepProgram) -> BTreeMap<(String, usize), usize> {
        let mut counts = BTreeMap::new();
        for (_, run) in sections(program).into_iter().flat_map(runs) {
            *counts.entry((format!("{:?}", run.pattern), run.len)).or_default() += 1;
        }
        counts
    }

    fn of<const N: usize>(expected: [(&str, usize, usize); N]) -> BTreeMap<(String, usize), usize> {
        expected.into_iter().map(|(pattern, len, count)| ((pattern.to_owned(), len), count)).collect()
    }

    #[test]
    fn norms_and_updates_are_done_at_once_where_nothing_lies_between() {
        // Two blocks with two norms each, one before the head; 28 parameters.
        let whole = of([("Norm", 3, 5), ("NormBackward", 2, 5), ("Updates", 28, 1)]);
        assert_eq!(counts(&program("gpt-tiny", "x=1")), whole);
        assert_eq!(counts(&program("gpt-tiny", "x=2,data=2")), whole);
        // RMS norms have no sums of rows, and no biases.
        let runs = counts(&program("llama-tiny", "data=2"));
        assert_eq!((runs[&("Norm".to_owned(), 2)], runs[&("NormBackward".to_owned(), 2)]), (5, 5), "{runs:?}");
    }

    #[test]
    fn norms_of_rows_that_an_axis_cuts_are_not() {
        assert_eq!(counts(&program("gpt-tiny", "y=2")), of([("Updates", 28, 1)]));
    }

    #[test]
    fn a_run_is_broken_by_whatever_lies_between() {
        let program = program("gpt-tiny", "x=1");
        let whole = &program.stages[0].chunks[0].forward;
        let (first, run) = runs(whole)[0];
        assert_eq!((run.pattern, run.len), (Pattern::Norm, 3));
        // Something is given back inside; an operation is executed at other times; another one comes between.
        let mut broken = whole.clone();
        broken.lifetimes.deaths[first + 1].push(program.stages[0].values[0].storage);
        assert_eq!(run_at(&broken, first), None);
        let mut broken = whole.clone();
        broken.ops[first + 2].when = When::First;
        assert_eq!(run_at(&broken, first), None);
        let mut broken = whole.clone();
        broken.ops.swap(first + 1, first + 2);
        assert_eq!(run_at(&broken, first), None);
        // What the last operation gives back is given back after the run.
        let mut last = whole.clone();
        last.lifetimes.deaths[first + 2].push(program.stages[0].values[0].storage);
        assert_eq!(run_at(&last, first), Some(run));
    }

    #[test]
    fn operations_of_different_norms_are_no_run() {
        let program = program("gpt-tiny", "x=1");
        let chunk = &program.stages[0].chunks[0];
        let norms = |section: &Section, pattern| -> Vec<usize> {
            runs(section).into_iter().filter(|(_, run)| run.pattern == pattern).map(|(first, _)| first).collect()
        };
        let forward = norms(&chunk.forward, Pattern::Norm);
        for other in 0..3 {
            let mut mixed = chunk.forward.clone();
            mixed.ops[forward[0] + other] = chunk.forward.ops[forward[1] + other];
            assert_eq!(run_at(&mixed, forward[0]), None, "operation {other} is another norm's");
        }
        let backward = norms(&chunk.backward, Pattern::NormBackward);
        let mut mixed = chunk.backward.clone();
        mixed.ops[backward[0] + 1] = chunk.backward.ops[backward[1] + 1];
        assert_eq!(run_at(&mixed, backward[0]), None);
    }
}
