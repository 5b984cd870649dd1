//! Experts: the choice, the rows that travel, and the losses of unequal loads.

use quadrille_spec::{BalanceScope, DropOrder, Experts, RouterScores};
use quadrille_step::{BlockKind, GemmPass, Layer, Places, ValueId, kind};
use quadrille_tensor::{RouterLosses, RouterRule, RouterShape, Slots, SpreadShape, TokenGroups};

use super::Done;
use crate::backend::{View, ViewMut};
use crate::samples::BatchCounts;
use crate::{Backend, EngineError, RankEngine};

type Swept = Result<usize, EngineError>;

/// How the logits of these experts become weights.
fn rule(experts: &Experts) -> RouterRule {
    let router = &experts.router;
    let sigmoid = router.scores == RouterScores::Sigmoid;
    let (groups, chosen_groups) = router.groups.map_or((1, 1), |groups| (groups.count, groups.chosen));
    RouterRule { sigmoid, normalize: router.normalize, scale: router.scale, groups, chosen_groups }
}

impl<B: Backend> RankEngine<'_, B> {
    fn experts(&self, block: BlockKind) -> Experts {
        let experts = block.of(&self.program.model).feed_forward.experts();
        *experts.expect("blocks that route have experts")
    }

    /// Of the rank's rows of a value of tokens.
    fn router_shape(&self, block: BlockKind, tokens: ValueId) -> RouterShape {
        let experts = self.experts(block);
        RouterShape { rows: self.value(tokens).local_rows, experts: experts.count, per_token: experts.per_token }
    }

    /// Between tokens, of whose rows `tokens` is, and places at experts, of whose rows `placed` is.
    fn spread_shape<'s>(
        &self,
        block: BlockKind,
        tokens: ValueId,
        placed: ValueId,
        starts: &'s Option<Vec<usize>>,
    ) -> SpreadShape<'s> {
        let RouterShape { rows, experts, per_token } = self.router_shape(block, tokens);
        let cols = self.value(tokens).local_cols;
        let slots = match starts {
            Some(starts) => Slots::Queues(starts),
            None => {
                let slots = self.value(placed).local_rows / experts;
                let pieces = slots / self.value(placed).extents[0].places_of_rank(&self.program.layout);
                Slots::Blocks { slots, pieces }
            }
        };
        SpreadShape { rows, cols, experts, per_token, slots }
    }

    /// Where the queues of experts begin in a value at tokens whose rows they are.
    fn queue_starts(&self, placed: ValueId) -> Option<Vec<usize>> {
        Some(self.queues_of(placed)?.starts(&self.program.layout, self.place))
    }

    pub(super) fn router(&mut self, op: &kind::Router) -> Done {
        let kind::Router { pass, left, right, output, write } = *op;
        let product = op.product(self.program);
        self.write(output, |rank, c| {
            let a = rank.read(left)?;
            let b = rank.read(right)?;
            let add = rank.accumulates(write);
            let shape = |rows, experts| RouterShape { rows, experts, per_token: 0 };
            let backend = &rank.backend;
            match pass {
                GemmPass::Forward => backend.router_forward(shape(product.m, product.n), product.k, a, b, c),
                GemmPass::InputGradient => {
                    backend.router_input_gradient(shape(product.m, product.k), product.n, a, b, c)
                }
                GemmPass::WeightGradient => {
                    backend.router_weight_gradient(shape(product.k, product.n), product.m, a, b, c, add)
                }
            }
        })?;
        let flops = 2 * (product.m * product.n * product.k) as u64;
        self.count_flops(pass, flops);
        Ok(())
    }

    pub(super) fn route(&mut self, op: &kind::Route) -> Swept {
        let kind::Route { block, logits, bias, output } = *op;
        let experts = self.experts(block);
        let rows = self.value(logits).local_rows;
        // Without a capacity all of a rank's tokens have places.
        let all = Places { group: rows, slots: rows };
        let Places { group, slots } =
            Places::of(&experts, self.program.purpose, self.program.layout.seq_len).unwrap_or(all);
        let by_score = experts.capacity.is_some_and(|capacity| capacity.drop == DropOrder::Score);
        let slots_per_token = experts.capacity.map_or(f64::INFINITY, |capacity| capacity.slots_per_token(&experts));
        let groups = TokenGroups { rows: group, slots, slots_per_token, by_score };
        self.write(output, |rank, routes| {
            let shape = rank.router_shape(block, logits);
            let of = rank.sample_rows(logits);
            let logits = rank.read(logits)?;
            rank.backend.route(
                shape,
                rule(&experts),
                groups,
                &rank.samples,
                of,
                logits,
                rank.read_some(bias)?,
                routes,
            )?;
            Ok(logits.elements())
        })
        .and_then(|swept| self.note_choices(output).map(|()| swept))
    }

    /// The number of the scope of the balance loss that a row belongs to, among those that the rank counts.
    fn scope(&self, block: BlockKind, tokens: ValueId) -> impl Fn(usize) -> usize + Sync + use<B> {
        let rows = self.rows_of(tokens);
        let by_sequence = self.experts(block).router.balance == BalanceScope::Sequence;
        move |row| if by_sequence { (rows.first + row) / rows.part.tokens(rows.seq_len) } else { 0 }
    }

    pub(super) fn count_choices(&mut self, op: &kind::CountChoices) -> Swept {
        let kind::CountChoices { block, routes, output } = *op;
        self.write(output, |rank, counts| {
            let shape = rank.router_shape(block, routes);
            let scope = rank.scope(block, routes);
            let routes = rank.read(routes)?;
            rank.backend.count_choices(shape, routes, scope, counts, false)?;
            Ok(routes.elements())
        })
    }

    pub(super) fn count_loads(&mut self, op: &kind::CountLoads) -> Swept {
        let kind::CountLoads { block, routes, output, write } = *op;
        self.write(output, |rank, loads| {
            let shape = rank.router_shape(block, routes);
            let routes = rank.read(routes)?;
            rank.backend.count_choices(shape, routes, |_| 0, loads, rank.accumulates(write))?;
            Ok(routes.elements())
        })
    }

    pub(super) fn follow_loads(&mut self, op: &kind::FollowLoads) -> Swept {
        let kind::FollowLoads { block, loads, bias } = *op;
        let experts = self.experts(block);
        let valid = self.program.valid_elements(loads, self.place);
        let choices = experts.per_token * self.tokens() as usize;
        self.write(bias, |rank, bias| {
            let mut bias = B::part(bias, 0..valid);
            let loads = rank.read(loads)?.part(0..valid);
            rank.backend.follow_loads(experts.router.bias_rate, choices, experts.count, loads, &mut bias)?;
            Ok(valid)
        })
    }

    /// Factors of the losses of a block's router.
    fn router_losses(&self, block: BlockKind) -> RouterLosses {
        let router = self.experts(block).router;
        let is_balanced = router.balance != BalanceScope::None;
        RouterLosses { balance: if is_balanced { router.balance_loss } else { 0.0 }, z: router.z_loss }
    }

    /// Tokens of the step's global batch, padding left out.
    pub(crate) fn tokens(&self) -> f64 {
        let all = self.program.layout.tokens_per_step() as f64;
        self.step_counts.map_or(all, |counts| counts.tokens)
    }

    pub(super) fn router_loss(&mut self, op: &kind::RouterLoss) -> Swept {
        let kind::RouterLoss { block, logits, routes, counts } = *op;
        let shape = self.router_shape(block, logits);
        let rule = rule(&self.experts(block));
        let losses = self.router_losses(block);
        let scope = self.scope(block, logits);
        let logits = self.read(logits)?;
        let routes = self.read(routes)?;
        let counts = self.read_some(counts)?;
        let first = match self.layer {
            Layer::Block(block) => self.program.model.routed_experts(block),
            _ => 0,
        };
        self.backend.router_losses(first, shape, rule, losses, logits, routes, counts, scope)?;
        Ok(logits.elements())
    }

    /// Factor of the gradients of a router's losses, which are means over tokens: the optimizer divides all gradients by the
    /// targets of the step that count, in the place of those of its layout.
    fn router_loss_scale(&self) -> f64 {
        let per_token = match self.step_counts {
            // A step without tokens ends with an error, not with losses that are no numbers.
            Some(BatchCounts { tokens, targets }) => targets / tokens.max(1.0),
            None => self.program.model.patch_values.unwrap_or(1) as f64,
        };
        self.loss_scale() * per_token
    }

    pub(super) fn route_backward(&mut self, op: &kind::RouteBackward) -> Swept {
        let kind::RouteBackward { block, routes, counts, gradient, output, .. } = *op;
        self.write(output, |rank, logits| {
            let shape = rank.router_shape(block, output);
            let rule = rule(&rank.experts(block));
            let losses = rank.router_losses(block);
            let scope = rank.scope(block, output);
            let factor = rank.router_loss_scale();
            let routes = rank.read(routes)?;
            let counts = rank.read_some(counts)?;
            let gradient = rank.read(gradient)?;
            rank.backend.route_backward(shape, rule, losses, factor, logits, routes, counts, gradient, scope)?;
            Ok(logits.elements())
        })
    }

    pub(super) fn dispatch(&mut self, op: &kind::Dispatch) -> Swept {
        let kind::Dispatch { block, input, routes, output } = *op;
        self.write(output, |rank, placed| {
            let starts = rank.queue_starts(output);
            let shape = rank.spread_shape(block, input, output, &starts);
            rank.backend.spread(shape, rank.read(input)?, rank.read(routes)?, placed)?;
            Ok(placed.elements())
        })
    }

    pub(super) fn dispatch_backward(&mut self, op: &kind::DispatchBackward) -> Swept {
        let kind::DispatchBackward { block, gradient, routes, output } = *op;
        self.write(output, |rank, x| {
            let starts = rank.queue_starts(gradient);
            let shape = rank.spread_shape(block, output, gradient, &starts);
            rank.backend.spread_backward(shape, rank.read(gradient)?, rank.read(routes)?, x)?;
            Ok(shape.per_token * x.elements())
        })
    }

    pub(super) fn combine(&mut self, op: &kind::Combine) -> Swept {
        let kind::Combine { block, input, routes, output } = *op;
        self.write(output, |rank, y| {
            let starts = rank.queue_starts(input);
            let shape = rank.spread_shape(block, output, input, &starts);
            rank.backend.combine(shape, rank.read(input)?, rank.read(routes)?, y)?;
            Ok(shape.per_token * y.elements())
        })
    }

    pub(super) fn combine_backward(&mut self, op: &kind::CombineBackward) -> Swept {
        let kind::CombineBackward { block, gradient, input, routes, output, weights } = *op;
        let input = input.ok_or(EngineError::Formats { dtype: self.program.layout.dtype })?;
        self.write(weights, |rank, dweights| {
            rank.write(output, |rank, placed| {
                let starts = rank.queue_starts(input);
                let shape = rank.spread_shape(block, gradient, input, &starts);
                let dy = rank.read(gradient)?;
                let x = rank.read(input)?;
                let routes = rank.read(routes)?;
                rank.backend.combine_backward(shape, dy, x, routes, placed, dweights)?;
                Ok(placed.elements())
            })
        })
    }
}
