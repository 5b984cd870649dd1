//! Routers, and rows on their way to experts and back.

use quadrille_tensor::{RouterLosses, RouterRule, RouterShape, Slots, SpreadShape, TokenGroups};

use super::activation::check_vector;
use super::indices::fields;
use crate::array::{Array, Element, Format};
use crate::queue::{Done, Queue};
use crate::words::{Argument, words};

fields! {
    RouterShape: rows experts per_token;
    RouterRule: sigmoid normalize scale groups chosen_groups;
    TokenGroups: rows slots slots_per_token by_score;
}

/// From here on not every whole number is an `f32`.
const EXACT: usize = 1 << 24;

/// Bytes of scratch that routing needs.
pub fn route_scratch(shape: RouterShape, element: Element) -> usize {
    shape.rows * shape.experts * element.real().bytes()
}

/// Bytes of scratch that the losses of a router need.
pub fn losses_scratch(shape: RouterShape) -> usize {
    3 * shape.rows * Element::F64.bytes()
}

/// Bytes of scratch that spreading to so many rows of experts needs.
pub fn spread_scratch(places: usize) -> usize {
    places * Element::U32.bytes()
}

/// Where rows of experts lie on the device: `starts` are those of [`Slots::Queues`], `u32`.
fn describe(shape: SpreadShape<'_>, starts: Option<Array>) -> (Vec<u64>, usize) {
    let SpreadShape { rows, cols, experts, per_token, slots } = shape;
    let (slots, pieces, places) = match slots {
        Slots::Blocks { slots, pieces } => (slots, pieces, experts * slots),
        Slots::Queues(queues) => (0, 1, queues[experts]),
    };
    let wanted = matches!(shape.slots, Slots::Queues(_)).then_some((experts + 1, Element::U32));
    assert_eq!(starts.map(|starts| (starts.len, starts.element)), wanted, "starts of {shape:?}");
    (words![rows, cols, experts, per_token, slots, pieces, slots / pieces, starts, places], places)
}

/// Asserts that routes are those of so many rows and choices.
fn check_routes(rows: usize, per_token: usize, routes: Array) -> Format {
    assert_eq!((routes.len, routes.element), (rows * 3 * per_token, routes.element.real()));
    routes.element.format()
}

impl Queue<'_> {
    /// See [`quadrille_tensor::router_forward`].
    pub fn router_forward(&self, shape: RouterShape, cols: usize, x: Array, weight: Array, logits: Array) -> Done {
        let RouterShape { rows, experts, .. } = shape;
        assert_eq!(x.len, rows * cols);
        check_vector(weight, cols * experts, x);
        check_vector(logits, rows * experts, x);
        let words = words![x, weight, logits, rows, cols, experts];
        self.each("router_forward", x.element.format(), logits.len, &words)
    }

    /// See [`quadrille_tensor::router_input_gradient`].
    pub fn router_input_gradient(
        &self,
        shape: RouterShape,
        cols: usize,
        dlogits: Array,
        weight: Array,
        dx: Array,
    ) -> Done {
        let RouterShape { rows, experts, .. } = shape;
        assert_eq!(dx.len, rows * cols);
        check_vector(weight, cols * experts, dx);
        check_vector(dlogits, rows * experts, dx);
        let words = words![dlogits, weight, dx, rows, cols, experts];
        self.each("router_input_gradient", dx.element.format(), dx.len, &words)
    }

    /// See [`quadrille_tensor::router_weight_gradient`].
    pub fn router_weight_gradient(
        &self,
        shape: RouterShape,
        cols: usize,
        x: Array,
        dlogits: Array,
        dweight: Array,
        accumulate: bool,
    ) -> Done {
        let RouterShape { rows, experts, .. } = shape;
        assert_eq!(x.len, rows * cols);
        check_vector(dweight, cols * experts, x);
        check_vector(dlogits, rows * experts, x);
        let words = words![x, dlogits, dweight, rows, cols, experts, accumulate];
        self.each("router_weight_gradient", x.element.format(), dweight.len, &words)
    }

    /// See [`quadrille_tensor::route`]; `present` `[rows]`, `u32`, is 0 for padding.
    pub fn route(
        &self,
        shape: RouterShape,
        rule: RouterRule,
        groups: TokenGroups,
        present: Array,
        logits: Array,
        bias: Option<Array>,
        routes: Array,
    ) -> Done {
        let RouterShape { rows, experts, per_token } = shape;
        let format = check_routes(rows, per_token, routes);
        check_vector(logits, rows * experts, routes);
        assert_eq!((present.len, present.element), (rows, Element::U32));
        bias.into_iter().for_each(|bias| check_vector(bias, experts, routes));
        assert!(per_token <= experts && rows.is_multiple_of(groups.rows), "{shape:?} {groups:?}");
        if rows * per_token == 0 {
            return Ok(());
        }
        assert!(rows / groups.rows * groups.slots <= EXACT && experts <= EXACT, "{shape:?} {groups:?}");
        assert!(experts.is_multiple_of(rule.groups) && rule.chosen_groups <= rule.groups, "{shape:?} {rule:?}");
        assert!(rule.groups == 1 || per_token.is_multiple_of(rule.chosen_groups), "{shape:?} {rule:?}");
        assert!(per_token <= experts / rule.groups * rule.chosen_groups, "{shape:?} {rule:?}");
        let keys = self.scratch(rows * experts, routes.element);
        self.each_by_warp("route", format, rows, &words![shape, rule, present, logits, bias, keys, routes])?;
        let words = words![shape, groups, routes];
        if groups.by_score {
            self.each("take_slots_by_score", format, rows * per_token, &words)
        } else {
            self.each_by_warp("take_slots", format, rows / groups.rows * experts, &words)
        }
    }

    /// See [`quadrille_tensor::count_choices`]; `scopes` `[rows]`, `u32`, has the number of each row's scope.
    pub fn count_choices(
        &self,
        shape: RouterShape,
        routes: Array,
        scopes: Array,
        counts: Array,
        accumulate: bool,
    ) -> Done {
        let format = check_routes(shape.rows, shape.per_token, routes);
        assert_eq!((scopes.len, scopes.element, counts.element), (shape.rows, Element::U32, routes.element));
        let words = words![shape, routes, scopes, counts, counts.len, accumulate];
        self.each_by_warp("count_choices", format, counts.len, &words)
    }

    /// Adds to `loads` `[experts]` how often each expert is chosen, dropped choices included.
    pub fn add_loads(&self, shape: RouterShape, routes: Array, loads: Array) -> Done {
        let format = check_routes(shape.rows, shape.per_token, routes);
        check_vector(loads, shape.experts, routes);
        self.each_by_warp("add_loads", format, shape.experts, &words![shape, routes, loads])
    }

    /// See [`quadrille_tensor::follow_loads`]: only if the `update` says that the step is applied.
    pub fn follow_loads(
        &self,
        update: Array,
        rate: f64,
        choices: usize,
        experts: usize,
        loads: Array,
        bias: Array,
    ) -> Done {
        check_vector(loads, bias.len, bias);
        assert_eq!((update.len, update.element), (2, Element::F64));
        let words = words![update, rate, choices, experts, loads, bias, bias.len];
        self.each("follow_loads", bias.element.format(), bias.len, &words)
    }

    /// Adds [`quadrille_tensor::router_losses`] and [`quadrille_tensor::dropped_choices`] to three totals, each `[1]`, `f64`:
    /// balance, z, dropped choices. There are counts, with the scopes of rows, if loads are balanced.
    pub fn router_losses(
        &self,
        shape: RouterShape,
        rule: RouterRule,
        losses: RouterLosses,
        logits: Array,
        routes: Array,
        counts: Option<(Array, Array)>,
        totals: [Array; 3],
    ) -> Done {
        let rows = shape.rows;
        let format = check_routes(shape.rows, shape.per_token, routes);
        check_vector(logits, rows * shape.experts, routes);
        assert!(losses.balance == 0.0 || counts.is_some(), "loads are balanced by counts");
        let (counts, scopes) = counts.unzip();
        let partials = self.scratch(3 * rows, Element::F64);
        let of_rows = [0, 1, 2].map(|i| partials.part(i * rows..(i + 1) * rows));
        let mut words = words![shape, rule, losses.balance, losses.z, logits, routes, counts, scopes];
        words.extend(words![of_rows[0], of_rows[1], of_rows[2]]);
        self.each_by_warp("router_losses", format, rows, &words)?;
        totals.into_iter().zip(of_rows).try_for_each(|(total, of_rows)| self.add_partials(total, of_rows))
    }

    /// See [`quadrille_tensor::route_backward`]; counts with the scopes of rows.
    pub fn route_backward(
        &self,
        shape: RouterShape,
        rule: RouterRule,
        losses: RouterLosses,
        factor: f64,
        logits: Array,
        routes: Array,
        counts: Option<(Array, Array)>,
        dweights: Array,
    ) -> Done {
        let format = check_routes(shape.rows, shape.per_token, routes);
        check_vector(logits, shape.rows * shape.experts, routes);
        check_vector(dweights, shape.rows * shape.per_token, routes);
        assert!(losses.balance == 0.0 || counts.is_some(), "loads are balanced by counts");
        let (counts, scopes) = counts.filter(|_| losses.balance != 0.0).unzip();
        let words = words![
            shape,
            rule,
            losses.balance * factor,
            2.0 * losses.z * factor,
            counts,
            scopes,
            logits,
            routes,
            dweights
        ];
        self.each_by_warp("route_backward", format, shape.rows, &words)
    }

    /// By place the choice that has it, in scratch.
    fn choices(
        &self,
        described: &[u64],
        shape: SpreadShape<'_>,
        places: usize,
        routes: Array,
    ) -> Result<Array, crate::Fault> {
        let format = check_routes(shape.rows, shape.per_token, routes);
        let choices = self.scratch(places, Element::U32);
        self.each("no_choices", format, places, &words![choices, places])?;
        let words = [described, &words![routes, choices]].concat();
        self.each("choices", format, shape.rows * shape.per_token, &words)?;
        Ok(choices)
    }

    /// See [`quadrille_tensor::spread`]; `starts` are those of queues, `u32`.
    pub fn spread(&self, shape: SpreadShape<'_>, starts: Option<Array>, x: Array, routes: Array, y: Array) -> Done {
        let (described, places) = describe(shape, starts);
        assert_eq!((x.len, y.len, x.element), (shape.rows * shape.cols, places * shape.cols, y.element));
        let choices = self.choices(&described, shape, places, routes)?;
        self.each("spread", y.element.format(), y.len, &[described, words![choices, x, y]].concat())
    }

    /// See [`quadrille_tensor::spread_backward`].
    pub fn spread_backward(
        &self,
        shape: SpreadShape<'_>,
        starts: Option<Array>,
        dy: Array,
        routes: Array,
        dx: Array,
    ) -> Done {
        self.gather("spread_backward", shape, starts, dy, routes, dx)
    }

    /// See [`quadrille_tensor::combine`].
    pub fn combine(&self, shape: SpreadShape<'_>, starts: Option<Array>, x: Array, routes: Array, y: Array) -> Done {
        self.gather("combine", shape, starts, x, routes, y)
    }

    fn gather(
        &self,
        kernel: &'static str,
        shape: SpreadShape<'_>,
        starts: Option<Array>,
        x: Array,
        routes: Array,
        y: Array,
    ) -> Done {
        let (described, places) = describe(shape, starts);
        assert_eq!((y.len, x.len, x.element), (shape.rows * shape.cols, places * shape.cols, y.element));
        check_routes(shape.rows, shape.per_token, routes);
        self.each(kernel, y.element.format(), y.len, &[described, words![x, routes, y]].concat())
    }

    /// See [`quadrille_tensor::combine_backward`].
    pub fn combine_backward(
        &self,
        shape: SpreadShape<'_>,
        starts: Option<Array>,
        dy: Array,
        x: Array,
        routes: Array,
        dx: Array,
        dweights: Array,
    ) -> Done {
        let (described, places) = describe(shape, starts);
        let format = dy.element.format();
        let lens = (shape.rows * shape.cols, places * shape.cols, places * shape.cols);
        assert_eq!((dy.len, x.len, dx.len), lens, "{shape:?}");
        check_vector(dweights, shape.rows * shape.per_token, dy);
        let choices = self.choices(&described, shape, places, routes)?;
        let words = [&described[..], &words![choices, dy, routes, dx]].concat();
        self.each("combine_backward", format, dx.len, &words)?;
        let words = [described, words![dy, x, routes, dweights]].concat();
        self.each_by_warp("combine_weights", format, dweights.len, &words)
    }
}
