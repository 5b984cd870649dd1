//! Experts: the choice, the rows that travel, and the losses of unequal loads.

use quadrille_spec::{BalanceScope, DropOrder, Experts, RouterScores};
use quadrille_step::{BlockKind, GemmPass, Layer, Places, Queues, ValueId, kind};
use quadrille_tensor::{Element as _, RouterLosses, RouterRule, RouterShape, Slots, SpreadShape, TokenGroups};

use super::{Done, Interpreter};
use crate::backend::{View, ViewMut};
use crate::observe::choices::record_choices;
use crate::state::samples::BatchCounts;
use crate::{Backend, EngineError};

type Swept = Result<usize, EngineError>;

/// How the logits of these experts become weights.
fn rule(experts: &Experts) -> RouterRule {
    let router = &experts.router;
    let sigmoid = router.scores == RouterScores::Sigmoid;
    let (groups, chosen_groups) = router.groups.map_or((1, 1), |groups| (groups.count, groups.chosen));
    RouterRule { sigmoid, normalize: router.normalize, scale: router.scale, groups, chosen_groups }
}

impl<B: Backend> Interpreter<'_, B> {
    fn experts(&self, block: BlockKind) -> Experts {
        let experts = block.of(&self.rank.program.model).feed_forward.experts();
        *experts.expect("blocks that route have experts")
    }

    /// Of the rank's rows of a value of tokens.
    fn router_shape(&self, block: BlockKind, tokens: ValueId) -> RouterShape {
        let experts = self.experts(block);
        RouterShape { rows: self.rank.value(tokens).local_rows, experts: experts.count, per_token: experts.per_token }
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
        let cols = self.rank.value(tokens).local_cols;
        let slots = match starts {
            Some(starts) => Slots::Queues(starts),
            None => {
                let slots = self.rank.value(placed).local_rows / experts;
                let pieces = slots / self.rank.value(placed).extents[0].places_of_rank(&self.rank.program.layout);
                Slots::Blocks { slots, pieces }
            }
        };
        SpreadShape { rows, cols, experts, per_token, slots }
    }

    /// Stores the queues of a pass, and checks that there is room for their rows.
    pub(super) fn admit(&mut self, op: &kind::Admit) -> Result<(), EngineError> {
        let kind::Admit { counts, .. } = *op;
        let experts = self.rank.value(counts).cols;
        let lengths = |lengths: &[B::Real]| lengths.iter().map(|length| length.to_f64() as usize).collect();
        let queues = Queues::new(experts, self.backend.download(self.read(counts)?, lengths)?);
        let program = self.rank.program;
        for value in program.values.iter().filter(|value| value.counts == Some(counts)) {
            let rows = queues.rows(value, &program.layout, self.rank.place);
            let cols = value.local_cols.max(1);
            let room = program.storages[value.storage.0].elements / cols;
            if rows > room {
                let times = rows.div_ceil(value.local_rows);
                return Err(EngineError::TooManyRows { value: value.name.clone(), rows, room, times });
            }
        }
        self.step.loads.insert((counts, self.step.microbatch), queues);
        Ok(())
    }

    /// Where the queues of experts begin in a value at tokens whose rows they are.
    fn queue_starts(&self, placed: ValueId) -> Option<Vec<usize>> {
        Some(self.step.queues_of(placed)?.starts(&self.rank.program.layout, self.rank.place))
    }

    pub(super) fn router(&mut self, op: &kind::Router) -> Done {
        let kind::Router { pass, left, right, output, write } = *op;
        let product = op.product(self.rank.program);
        self.write(output, |this, c| {
            let a = this.read(left)?;
            let b = this.read(right)?;
            let add = this.step.accumulates(write);
            let shape = |rows, experts| RouterShape { rows, experts, per_token: 0 };
            let backend = &this.backend;
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
        self.observers.ledger.add_product(pass, flops);
        Ok(())
    }

    pub(super) fn route(&mut self, op: &kind::Route) -> Swept {
        let kind::Route { block, logits, bias, output } = *op;
        let experts = self.experts(block);
        let rows = self.rank.value(logits).local_rows;
        // Without a capacity all of a rank's tokens have places.
        let all = Places { group: rows, slots: rows };
        let Places { group, slots } =
            Places::of(&experts, self.rank.program.purpose, self.rank.program.layout.seq_len).unwrap_or(all);
        let by_score = experts.capacity.is_some_and(|capacity| capacity.drop == DropOrder::Score);
        let slots_per_token = experts.capacity.map_or(f64::INFINITY, |capacity| capacity.slots_per_token(&experts));
        let groups = TokenGroups { rows: group, slots, slots_per_token, by_score };
        self.write(output, |this, routes| {
            let shape = this.router_shape(block, logits);
            let of = this.rank.sample_rows(logits);
            let logits = this.read(logits)?;
            this.backend.route(
                shape,
                rule(&experts),
                groups,
                &this.step.samples.loaded,
                of,
                logits,
                this.read_some(bias)?,
                routes,
            )?;
            Ok(logits.elements())
        })
        .and_then(|swept| record_choices(self, output).map(|()| swept))
    }

    /// The number of the scope of the balance loss that a row belongs to, among those that the rank counts.
    fn scope(&self, block: BlockKind, tokens: ValueId) -> impl Fn(usize) -> usize + Sync + use<B> {
        let rows = self.step.rows_of(tokens);
        let by_sequence = self.experts(block).router.balance == BalanceScope::Sequence;
        move |row| if by_sequence { (rows.first + row) / rows.part.tokens(rows.seq_len) } else { 0 }
    }

    pub(super) fn count_choices(&mut self, op: &kind::CountChoices) -> Swept {
        let kind::CountChoices { block, routes, output } = *op;
        self.write(output, |this, counts| {
            let shape = this.router_shape(block, routes);
            let scope = this.scope(block, routes);
            let routes = this.read(routes)?;
            this.backend.count_choices(shape, routes, scope, counts, false)?;
            Ok(routes.elements())
        })
    }

    pub(super) fn count_loads(&mut self, op: &kind::CountLoads) -> Swept {
        let kind::CountLoads { block, routes, output, write } = *op;
        self.write(output, |this, loads| {
            let shape = this.router_shape(block, routes);
            let routes = this.read(routes)?;
            this.backend.count_choices(shape, routes, |_| 0, loads, this.step.accumulates(write))?;
            Ok(routes.elements())
        })
    }

    pub(super) fn follow_loads(&mut self, op: &kind::FollowLoads) -> Swept {
        let kind::FollowLoads { block, loads, bias } = *op;
        let experts = self.experts(block);
        let valid = self.rank.valid_elements(loads);
        let choices = experts.per_token * self.step.tokens() as usize;
        self.write(bias, |this, bias| {
            let mut bias = B::part(bias, 0..valid);
            let loads = this.read(loads)?.part(0..valid);
            this.backend.follow_loads(experts.router.bias_rate, choices, experts.count, loads, &mut bias)?;
            Ok(valid)
        })
    }

    /// Factors of the losses of a block's router.
    fn router_losses(&self, block: BlockKind) -> RouterLosses {
        let router = self.experts(block).router;
        let is_balanced = router.balance != BalanceScope::None;
        RouterLosses { balance: if is_balanced { router.balance_loss } else { 0.0 }, z: router.z_loss }
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
        let first = match self.step.layer {
            Layer::Block(block) => self.rank.program.model.routed_experts(block),
            _ => 0,
        };
        self.backend.router_losses(first, shape, rule, losses, logits, routes, counts, scope)?;
        Ok(logits.elements())
    }

    /// Factor of the gradients of a router's losses, which are means over tokens: the optimizer divides all gradients by the
    /// targets of the step that count, in the place of those of its layout.
    fn router_loss_scale(&self) -> f64 {
        let per_token = match self.step.counts {
            // A step without tokens ends with an error, not with losses that are no numbers.
            Some(BatchCounts { tokens, targets }) => targets / tokens.max(1.0),
            None => self.rank.program.model.patch_values.unwrap_or(1) as f64,
        };
        self.optimizer.loss_factor() * per_token
    }

    pub(super) fn route_backward(&mut self, op: &kind::RouteBackward) -> Swept {
        let kind::RouteBackward { block, routes, counts, gradient, output, .. } = *op;
        self.write(output, |this, logits| {
            let shape = this.router_shape(block, output);
            let rule = rule(&this.experts(block));
            let losses = this.router_losses(block);
            let scope = this.scope(block, output);
            let factor = this.router_loss_scale();
            let routes = this.read(routes)?;
            let counts = this.read_some(counts)?;
            let gradient = this.read(gradient)?;
            this.backend.route_backward(shape, rule, losses, factor, logits, routes, counts, gradient, scope)?;
            Ok(logits.elements())
        })
    }

    pub(super) fn dispatch(&mut self, op: &kind::Dispatch) -> Swept {
        let kind::Dispatch { block, input, routes, output } = *op;
        self.write(output, |this, placed| {
            let starts = this.queue_starts(output);
            let shape = this.spread_shape(block, input, output, &starts);
            this.backend.spread(shape, this.read(input)?, this.read(routes)?, placed)?;
            Ok(placed.elements())
        })
    }

    pub(super) fn dispatch_backward(&mut self, op: &kind::DispatchBackward) -> Swept {
        let kind::DispatchBackward { block, gradient, routes, output } = *op;
        self.write(output, |this, x| {
            let starts = this.queue_starts(gradient);
            let shape = this.spread_shape(block, output, gradient, &starts);
            this.backend.spread_backward(shape, this.read(gradient)?, this.read(routes)?, x)?;
            Ok(shape.per_token * x.elements())
        })
    }

    pub(super) fn combine(&mut self, op: &kind::Combine) -> Swept {
        let kind::Combine { block, input, routes, output } = *op;
        self.write(output, |this, y| {
            let starts = this.queue_starts(input);
            let shape = this.spread_shape(block, output, input, &starts);
            this.backend.combine(shape, this.read(input)?, this.read(routes)?, y)?;
            Ok(shape.per_token * y.elements())
        })
    }

    pub(super) fn combine_backward(&mut self, op: &kind::CombineBackward) -> Swept {
        let kind::CombineBackward { block, gradient, input, routes, output, weights } = *op;
        let input = input.ok_or(EngineError::Formats { dtype: self.rank.program.layout.dtype })?;
        self.write(weights, |this, dweights| {
            this.write(output, |this, placed| {
                let starts = this.queue_starts(input);
                let shape = this.spread_shape(block, gradient, input, &starts);
                let dy = this.read(gradient)?;
                let x = this.read(input)?;
                let routes = this.read(routes)?;
                this.backend.combine_backward(shape, dy, x, routes, placed, dweights)?;
                Ok(placed.elements())
            })
        })
    }
}
