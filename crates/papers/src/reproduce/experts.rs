//! Mixtures of experts by our own programs: parameters, bytes of states, collectives of a block and what they send.

use quadrille_spec::{
    Activations, Axis, CollectiveKind, Dispatch, ElementType, Layout, LayoutRequest, MemoryClass, Model, Recompute,
    SpecError, Zero,
};
use quadrille_step::{Layer, Operation, StepProgram};

use crate::ted::Sent;

/// The base model with experts in the place of every second perceptron, of which a token chooses one; as many places as
/// equal loads need.
pub fn mixture(base: &str, experts: usize) -> Result<Model, SpecError> {
    let experts = experts.to_string();
    let fields = [("experts", &*experts), ("experts_per_token", "1"), ("expert_every", "2"), ("capacity", "1.0")];
    let fields = fields.map(|(field, value)| (field.to_owned(), value.to_owned()));
    Model::from_toml(Model::preset_text(base)?, &fields)
}

/// Bytes of the states that a rank has of the model, values and gradients in 16 bits, on a grid, with ZeRO's first stage.
/// Axis `expert` spreads experts, `expert` and `data` are replicas of everything else.
pub fn state_bytes(model: &Model, grid: &str) -> Result<f64, SpecError> {
    let grid: quadrille_spec::Grid = grid.parse()?;
    let request = LayoutRequest {
        zero: Zero::Optimizer,
        dtype: ElementType::F16,
        gradients: Some(ElementType::F16),
        ..LayoutRequest::new(grid, grid.batch_shares())
    };
    let program = program(model, &replicated(request))?;
    let allocated = program.of_rank(0).allocated();
    let states = [MemoryClass::Parameters, MemoryClass::Gradients, MemoryClass::Optimizer];
    Ok(states.into_iter().filter_map(|class| allocated.get(&class)).sum::<u64>() as f64)
}

/// Every rank along x has all rows, as Megatron-LM's tensor parallelism and TED have it.
fn replicated(request: LayoutRequest) -> LayoutRequest {
    LayoutRequest { activations: Activations::Replicated, dispatch: Dispatch::Duplicated, ..request }
}

fn program(model: &Model, request: &LayoutRequest) -> Result<StepProgram, SpecError> {
    StepProgram::new(model, &Layout::new(model, request)?).map_err(|error| {
        SpecError::invalid("grid", request.grid, error.to_string(), "correct the published figures' file")
    })
}

/// A block with experts on a tensor parallel group and an expert parallel group, each token's choice in its place.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    /// Ranks of the tensor parallel group.
    pub tensor: usize,
    /// Ranks of the expert parallel group, each with an expert.
    pub expert: usize,
    /// Elements of all experts' rows from a tensor parallel group.
    pub elements: usize,
}

/// Columns of [`Block`]'s model for each rank of the tensor parallel group.
const COLUMNS_A_RANK: usize = 3;

impl Block {
    /// The program of a model of one such block.
    fn program(&self, change: impl FnOnce(&mut LayoutRequest)) -> Result<StepProgram, SpecError> {
        let Self { tensor, expert, elements } = *self;
        let hidden = COLUMNS_A_RANK * tensor;
        let text = format!(
            "name = \"block\"\nlayers = 1\nhidden = {hidden}\nheads = {tensor}\nvocab = 32\nseq_len = {}\nbiases = false\n\
             experts = {expert}\nexperts_per_token = 1\ncapacity = 1.0\ncapacity_group = {expert}",
            elements / hidden,
        );
        let grid: quadrille_spec::Grid = format!("{}={tensor},{}={expert}", Axis::X, Axis::Expert).parse()?;
        let mut request = LayoutRequest::new(grid, grid.batch_shares());
        change(&mut request);
        program(&Model::from_toml(&text, &[])?, &request)
    }

    /// Elements that a rank sends for rows at experts, forward and backward, as rings.
    pub fn sent(&self, activations: Activations, dispatch: Dispatch) -> Result<Sent, SpecError> {
        let program = self.program(|request| (request.activations, request.dispatch) = (activations, dispatch))?;
        let of = |issued: &[Issued]| issued.iter().map(|it| it.sent).sum();
        let rows: Vec<Issued> = issued(&program).into_iter().filter(|it| it.of_rows).collect();
        let (all_to_all, tensor): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|it| it.kind == CollectiveKind::AllToAll);
        Ok(Sent { all_to_all: of(&all_to_all), tensor: of(&tensor) })
    }

    /// What a rank's all-to-alls send where activations are recomputed; `kept` by communication-aware checkpointing.
    pub fn recomputed_all_to_alls(&self, dispatch: Dispatch, kept: bool) -> Result<f64, SpecError> {
        let issued = issued(&self.recomputed(dispatch, kept)?);
        Ok(issued.iter().filter(|it| it.kind == CollectiveKind::AllToAll).map(|it| it.sent).sum())
    }

    /// The block's all-to-alls, and all-reduces over the tensor parallel group alone, where activations are recomputed.
    pub fn recomputed_collectives(&self) -> Result<[usize; 2], SpecError> {
        let issued = issued(&self.recomputed(Dispatch::Duplicated, false)?);
        let of = |kind: CollectiveKind| issued.iter().filter(|it| it.kind == kind).count();
        Ok([of(CollectiveKind::AllToAll), of(CollectiveKind::AllReduce)])
    }

    fn recomputed(&self, dispatch: Dispatch, kept: bool) -> Result<StepProgram, SpecError> {
        self.program(|request| {
            (request.activations, request.dispatch) = (Activations::Replicated, dispatch);
            (request.recompute, request.keep_communicated) = (Recompute::Full { every: 1 }, kept);
        })
    }
}

/// A collective of the block.
struct Issued {
    kind: CollectiveKind,
    /// Elements that a rank sends, as a ring.
    sent: f64,
    /// Whether it is of rows at experts.
    of_rows: bool,
}

/// The block's collectives over the axes x and expert.
fn issued(program: &StepProgram) -> Vec<Issued> {
    let stage = program.of_rank(0);
    let ops = stage.chunks.iter().flat_map(|chunk| chunk.forward.ops.iter().chain(&chunk.backward.ops));
    let of_block = ops.filter(|op| matches!(op.layer, Layer::Block(_)));
    let collectives = of_block.filter_map(|op| match op.operation {
        Operation::Issue(it) if it.axes == Axis::X.only() || it.axes == Axis::Expert.only() => Some(it),
        _ => None,
    });
    let of_rows = ["dispatched", "experts down", "d results", "d dispatched"];
    let describe = collectives.map(|it| {
        let input = stage.value(it.input).local_elements;
        let output = stage.value(it.output).local_elements;
        let ranks = program.layout.grid.size_of(it.axes) as f64;
        let times = if it.kind == CollectiveKind::AllReduce { 2.0 } else { 1.0 };
        let sent = times * (1.0 - 1.0 / ranks) * input.max(output) as f64;
        Issued { kind: it.kind, sent, of_rows: of_rows.contains(&stage.value(it.output).name.as_str()) }
    });
    describe.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ted;

    /// Four by four ranks and 192 elements, which 16 tokens of 12 columns have.
    const BLOCK: Block = Block { tensor: 4, expert: 4, elements: 192 };

    #[test]
    fn programs_send_what_the_forms_say() {
        let sent = |activations, dispatch| BLOCK.sent(activations, dispatch).unwrap();
        let by_form = |dispatch: ted::Dispatch| dispatch.sent(192.0, 4, 4).times(ted::passes(false, false));
        assert_eq!(sent(Activations::Replicated, Dispatch::Duplicated), by_form(ted::Dispatch::Duplicated));
        assert_eq!(sent(Activations::Replicated, Dispatch::Dropped), by_form(ted::Dispatch::DroppedAndScattered));
        assert_eq!(sent(Activations::Scattered, Dispatch::Dropped), Sent { all_to_all: 144.0, tensor: 576.0 });
    }

    #[test]
    fn recomputation_and_what_it_keeps_by_hand() {
        let all_to_alls = |dispatch, kept| BLOCK.recomputed_all_to_alls(dispatch, kept).unwrap();
        assert_eq!([false, true].map(|kept| all_to_alls(Dispatch::Duplicated, kept)), [864.0, 576.0]);
        assert_eq!([false, true].map(|kept| all_to_alls(Dispatch::Dropped, kept)), [216.0, 144.0]);
    }

    #[test]
    fn states_by_hand() {
        let model = mixture("gpt-tiny", 2).unwrap();
        let experts = model.expert_parameters() as f64;
        let all = model.parameters() as f64;
        assert!(experts > 0.0);
        let bytes = state_bytes(&model, "expert=2").unwrap();
        // An expert's states are its rank's alone, 16 bytes; of others 4 bytes are and half of 12. Vectors are in f32.
        let least = 16.0 * experts / 2.0 + 10.0 * (all - experts);
        assert!(bytes >= least && bytes < 1.1 * least, "{bytes} {least}");
    }
}
