//! Runs of neighbouring operations that a backend does with one kernel each.
//!
//! A run is found by its pattern alone, and only where it changes nothing but the number of kernels: its operations are
//! executed at the same times, belong together by what they read and write, and nothing is given back before the last
//! of them. So storages may be taken before the run and given back after it, and no two of them share a buffer inside
//! it.

use std::ops::Range;

use quadrille_step::{GemmPass, Op, Operation, Section, StageProgram, StorageId, ValueId, Write, kind};

/// Operations that one kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Statistics of rows that no axis cuts, and the norm by them: row sums, centered squares, norm; or row squares,
    /// norm.
    Norm,
    /// The sums that a norm's gradients need, of rows that no axis cuts, and the gradient of its input.
    NormBackward,
    /// The updates of several parameters whose states lie on the device.
    Updates,
}

/// Operations that are done at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FusedRun {
    /// By which kernel.
    pub pattern: Pattern,
    /// Number of operations, from the first on.
    pub len: usize,
}

/// Outputs of products that have got their bias already: the next operation on each adds none. Several wait where
/// products and their biases interleave.
#[derive(Debug, Default)]
pub(crate) struct Biased(Vec<StorageId>);

impl Biased {
    /// A product has added the bias to its output.
    pub fn push(&mut self, output: StorageId) {
        self.0.push(output);
    }

    /// True if a product has added the bias to an output; known once.
    pub fn take(&mut self, output: StorageId) -> bool {
        let known = self.0.iter().position(|biased| *biased == output);
        known.map(|at| self.0.swap_remove(at)).is_some()
    }

    /// True if no bias waits for its operation.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Effects of fused kernels on later operations of a section.
#[derive(Debug, Default)]
pub(crate) struct FusionState {
    pub biased: Biased,
    /// Gradients whose squares are still to be summed, in their order, with the counted elements of each.
    pub squares: Vec<(ValueId, Vec<Range<usize>>)>,
}

/// The run that begins with an operation of a section; `None`: the operation is done by itself.
pub(crate) fn run_at(program: &StageProgram, section: &Section, first: usize) -> Option<FusedRun> {
    let ops = &section.ops[first..];
    let run = by_pattern(program, ops)?;
    let together = ops[1..run.len].iter().all(|op| op.when == ops[0].when);
    let deaths = &section.lifetimes.deaths[first..first + run.len - 1];
    (together && deaths.iter().all(Vec::is_empty)).then_some(run)
}

/// The bias that is added to what a product writes before anything else reads it; `None`: the operation is no such
/// product.
///
/// That is a question of values alone. Whatever else lies between the two, such as collectives of other values, moves
/// with the layout's overlap and from a pass to its recomputation, and must change no bit of either.
pub(crate) fn bias_of(program: &StageProgram, section: &Section, product: usize) -> Option<ValueId> {
    let op = &section.ops[product];
    let after = &section.ops[product + 1..];
    let Operation::Gemm(kind::Gemm { pass: GemmPass::Forward, output, write: Write::Overwrite, .. }) = op.operation
    else {
        return None;
    };
    let storage = |id: ValueId| program.value(id).storage;
    let uses = |op: &Op| op.operation.operands().all().iter().any(|id| storage(*id) == storage(output));
    let next = after.iter().position(uses)?;
    let (bias, sum) = match after[next].operation {
        Operation::Bias(kind::Bias { bias, output, .. }) => (bias, output),
        Operation::BiasActivation(kind::BiasActivation { bias: Some(bias), output, .. }) => (bias, output),
        _ => return None,
    };
    let writes_bias = |op: &Op| op.operation.operands().writes().iter().any(|id| storage(*id) == storage(bias));
    let fits = storage(sum) == storage(output)
        && program.value(sum).local_elements == program.value(output).local_elements
        && after[next].when == op.when;
    (fits && !after[..next].iter().any(writes_bias)).then_some(bias)
}

fn by_pattern(program: &StageProgram, ops: &[Op]) -> Option<FusedRun> {
    use Operation as Is;
    let at = |index: usize| ops.get(index).map(|op: &Op| &op.operation);
    let found = |fits: bool, pattern, len| fits.then_some(FusedRun { pattern, len });
    // A value whose sharding no collective has changed is another by name: what it is stored in is the same.
    let same = |a: ValueId, b: ValueId| program.value(a).storage == program.value(b).storage;
    match (at(0)?, at(1), at(2)) {
        (Is::RowSums(sums), Some(Is::CenteredSquares(squares)), Some(Is::Norm(norm))) => {
            let of_sums = same(sums.input, squares.input) && same(sums.output, squares.sums);
            let by_sums = norm.sums.is_some_and(|read| same(sums.output, read)) && same(squares.output, norm.squares);
            found(of_sums && by_sums && same(sums.input, norm.input), Pattern::Norm, 3)
        }
        (Is::RowSquares(squares), Some(Is::Norm(norm)), _) => {
            let fits = norm.sums.is_none() && same(squares.output, norm.squares) && same(squares.input, norm.input);
            found(fits, Pattern::Norm, 2)
        }
        (Is::NormBackwardSums(sums), Some(Is::NormBackward(norm)), _) => {
            let of_sums = (sums.of, sums.input, sums.sums, sums.squares, sums.gamma, sums.gradient);
            let fits = of_sums == (norm.of, norm.input, norm.sums, norm.squares, norm.gamma, norm.gradient);
            found(fits && same(sums.output, norm.reduced), Pattern::NormBackward, 2)
        }
        (Is::AdamW(_), ..) => {
            let is_update = |op: &&Op| matches!(op.operation, Is::AdamW(kind::AdamW { run: None, .. }));
            let len = ops.iter().take_while(is_update).count();
            found(len > 1, Pattern::Updates, len)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use quadrille_spec::{Layout, LayoutRequest, Model};
    use quadrille_step::{ChunkProgram, StepProgram, When};

    use super::*;

    fn program(model: &str, grid: &str) -> StepProgram {
        let model = Model::preset(model).unwrap();
        let layout = Layout::new(&model, &request(grid)).unwrap();
        StepProgram::new(&model, &layout).unwrap()
    }

    fn request(grid: &str) -> LayoutRequest {
        LayoutRequest::new(grid.parse().unwrap(), 8)
    }

    fn sections(stage: &StageProgram) -> impl Iterator<Item = &Section> {
        stage.chunks.iter().flat_map(ChunkProgram::sections).chain([&stage.update])
    }

    /// The runs of a section in their order, with the number of the first operation of each.
    fn runs(stage: &StageProgram, section: &Section) -> Vec<(usize, FusedRun)> {
        let mut found = Vec::new();
        let mut first = 0;
        while first < section.ops.len() {
            let run = run_at(stage, section, first);
            found.extend(run.map(|run| (first, run)));
            first += run.map_or(1, |run| run.len);
        }
        found
    }

    /// How many runs of each length a program has, by pattern.
    fn counts(program: &StepProgram) -> BTreeMap<(String, usize), usize> {
        let mut counts = BTreeMap::new();
        let stages = program.stages.iter();
        for (_, run) in stages.flat_map(|stage| sections(stage).flat_map(|section| runs(stage, section))) {
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
        let stage = &program.stages[0];
        let whole = &stage.chunks[0].forward;
        let (first, run) = runs(stage, whole)[0];
        assert_eq!((run.pattern, run.len), (Pattern::Norm, 3));
        // Something is given back inside; an operation is executed at other times; another one comes between.
        let mut broken = whole.clone();
        broken.lifetimes.deaths[first + 1].push(stage.values[0].storage);
        assert_eq!(run_at(stage, &broken, first), None);
        let mut broken = whole.clone();
        broken.ops[first + 2].when = When::First;
        assert_eq!(run_at(stage, &broken, first), None);
        let mut broken = whole.clone();
        broken.ops.swap(first + 1, first + 2);
        assert_eq!(run_at(stage, &broken, first), None);
        // What the last operation gives back is given back after the run.
        let mut last = whole.clone();
        last.lifetimes.deaths[first + 2].push(stage.values[0].storage);
        assert_eq!(run_at(stage, &last, first), Some(run));
    }

    #[test]
    fn operations_of_different_norms_are_no_run() {
        let program = program("gpt-tiny", "x=1");
        let stage = &program.stages[0];
        let chunk = &stage.chunks[0];
        let norms = |section: &Section, pattern| -> Vec<usize> {
            runs(stage, section).into_iter().filter(|(_, run)| run.pattern == pattern).map(|(first, _)| first).collect()
        };
        let forward = norms(&chunk.forward, Pattern::Norm);
        for other in 0..3 {
            let mut mixed = chunk.forward.clone();
            mixed.ops[forward[0] + other] = chunk.forward.ops[forward[1] + other];
            assert_eq!(run_at(stage, &mixed, forward[0]), None, "operation {other} is another norm's");
        }
        let backward = norms(&chunk.backward, Pattern::NormBackward);
        let mut mixed = chunk.backward.clone();
        mixed.ops[backward[0] + 1] = chunk.backward.ops[backward[1] + 1];
        assert_eq!(run_at(stage, &mixed, backward[0]), None);
    }

    /// The products of a section, by what they write, that add a bias, and those that do not.
    fn biased(stage: &StageProgram, section: &Section) -> (Vec<String>, Vec<String>) {
        let forward = |index: &usize| match section.ops[*index].operation {
            Operation::Gemm(kind::Gemm { pass: GemmPass::Forward, output, .. }) => Some((*index, output)),
            _ => None,
        };
        let products = (0..section.ops.len()).filter_map(|index| forward(&index));
        let (with, without): (Vec<_>, Vec<_>) =
            products.partition(|(index, _)| bias_of(stage, section, *index).is_some());
        let names = |of: Vec<(usize, ValueId)>| of.into_iter().map(|(_, id)| stage.value(id).name.clone()).collect();
        (names(with), names(without))
    }

    #[test]
    fn first_products_of_halves_of_a_block_add_their_bias_where_no_axis_cuts_their_sums() {
        for grid in ["x=1", "x=2,data=2", "z=2"] {
            let program = program("gpt-tiny", grid);
            let stage = &program.stages[0];
            let (with, without) = biased(stage, &stage.chunks[0].forward);
            // Of two blocks qkv and up; the other products are summed over ranks, or get their bias with the residual.
            assert_eq!((with.len(), without.len()), (4, 5), "{grid}: {with:?}, not {without:?}");
        }
        let program = program("gpt-tiny", "y=2");
        let stage = &program.stages[0];
        assert!(biased(stage, &stage.chunks[0].forward).0.is_empty());
        // There are none.
        let program = self::program("llama-tiny", "x=1");
        let stage = &program.stages[0];
        assert!(biased(stage, &stage.chunks[0].forward).0.is_empty());
    }

    #[test]
    fn recomputed_products_add_what_those_before_have_added() {
        let model = Model::preset("gpt-tiny").unwrap();
        for recompute in ["none", "selective", "full"] {
            for grid in ["x=1", "x=2,z=2", "data=2,pipe=2"] {
                let request = LayoutRequest { recompute: recompute.parse().unwrap(), ..request(grid) };
                let program = StepProgram::new(&model, &Layout::new(&model, &request).unwrap()).unwrap();
                for stage in &program.stages {
                    let of = |section: &Section| {
                        let (with, without) = biased(stage, section);
                        let set = |names: Vec<String>| names.into_iter().collect::<std::collections::BTreeSet<_>>();
                        (set(with), set(without))
                    };
                    for chunk in &stage.chunks {
                        let [(first, _), (_, again_without)] = [of(&chunk.forward), of(&chunk.backward)];
                        assert!(first.is_disjoint(&again_without), "{recompute} {grid}: {again_without:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn biases_of_products_that_interleave_are_each_added_once() {
        let program = program("gpt-tiny", "x=1");
        let stage = &program.stages[0];
        let mut section = stage.chunks[0].forward.clone();
        let found: Vec<usize> = (0..section.ops.len()).filter(|at| bias_of(stage, &section, *at).is_some()).collect();
        let pairs = [found[0], found[1]].map(|product| [section.ops[product], section.ops[product + 1]]);
        let [[first, of_first], [second, of_second]] = pairs;
        section.ops = vec![first, second, of_first, of_second];
        let mut biased = Biased::default();
        let storage = |op: &Op| stage.value(op.operation.operands().writes()[0]).storage;
        for product in 0..2 {
            assert!(bias_of(stage, &section, product).is_some());
            biased.push(storage(&section.ops[product]));
        }
        for sum in 2..4 {
            let output = match section.ops[sum].operation {
                Operation::Bias(kind::Bias { output, .. }) => output,
                Operation::BiasActivation(kind::BiasActivation { output, .. }) => output,
                _ => unreachable!("a bias follows its product"),
            };
            let output = stage.value(output).storage;
            assert!(!biased.is_empty() && biased.take(output) && !biased.take(output));
        }
        assert!(biased.is_empty());
    }

    #[test]
    fn a_bias_that_something_comes_before_is_added_apart() {
        let program = program("gpt-tiny", "x=1");
        let stage = &program.stages[0];
        let whole = &stage.chunks[0].forward;
        let product = (0..whole.ops.len()).find(|index| bias_of(stage, whole, *index).is_some()).unwrap();
        let at = product + 1;
        assert!(matches!(whole.ops[at].operation, Operation::Bias(_)));
        // What uses neither may lie between.
        let mut between = whole.clone();
        between.ops.insert(at, whole.ops[0]);
        assert_eq!(bias_of(stage, &between, product), bias_of(stage, whole, product));
        // What reads or writes the product may not, nor what writes the bias, nor another time.
        let Operation::Bias(kind::Bias { bias, output, .. }) = whole.ops[at].operation else { unreachable!() };
        for (input, output) in [(output, whole.ops[0].operation.operands().writes()[0]), (output, bias)] {
            let mut broken = whole.clone();
            let accumulate = kind::Accumulate { input, output, write: Write::Overwrite };
            broken.ops.insert(at, Op { operation: Operation::Accumulate(accumulate), ..whole.ops[0] });
            assert_eq!(bias_of(stage, &broken, product), None);
        }
        let mut broken = whole.clone();
        broken.ops[at].when = When::First;
        assert_eq!(bias_of(stage, &broken, product), None);
    }
}
