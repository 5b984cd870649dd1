// AdamW, in one pass.
#include "prelude.cuh"

// As the host gives them.
struct AdamW {
    double learning_rate, beta1, beta2, epsilon, weight_decay, correction1, correction2;
};

// What the step's totals have decided: whether the gradient is applied, 1 or 0, and what it is multiplied with.
struct Update {
    double applied, gradient_scale;
};

// The constants as every element needs them.
struct Step {
    R beta1, rest1, beta2, rest2, epsilon, gradient_scale, keep, length, root_scale;
};
DEVICE Step step_of(const AdamW& c, const Update* update) {
    return {(R)c.beta1, (R)(1.0 - c.beta1), (R)c.beta2, (R)(1.0 - c.beta2), (R)c.epsilon, (R)update->gradient_scale,
            (R)(1.0 - c.learning_rate * c.weight_decay), (R)(c.learning_rate / c.correction1),
            (R)(1.0 / sqrt(c.correction2))};
}
// The parameter after the step; its running means are updated.
DEVICE R updated(const Step& step, R p, R g, R* m, R* v) {
    g = g * step.gradient_scale;
    *m = fused(step.beta1, *m, step.rest1 * g);
    *v = fused(step.beta2, *v, step.rest2 * g * g);
    R divisor = fused(root(*v), step.root_scale, step.epsilon);
    return fused(step.keep, p, -(step.length * *m / divisor));
}

KERNEL(adamw)(AdamW constants, const Update* update, R* p, const R* g, R* m, R* v, i64 n) {
    if (update->applied == 0) return;
    Step step = step_of(constants, update);
    for (EACH(i, n)) p[i] = updated(step, p[i], g[i], &m[i], &v[i]);
}

// `stored` becomes the master, rounded. `adamw_master_stored`: the gradient, too, is as stored.
KERNEL(adamw_master)(AdamW constants, const Update* update, R* master, S* stored, const R* g, R* m, R* v, i64 n) {
    if (update->applied == 0) return;
    Step step = step_of(constants, update);
    for (EACH(i, n)) store(&stored[i], master[i] = updated(step, master[i], g[i], &m[i], &v[i]));
}
KERNEL(adamw_master_stored)
(AdamW constants, const Update* update, R* master, S* stored, const S* g, R* m, R* v, i64 n) {
    if (update->applied == 0) return;
    Step step = step_of(constants, update);
    for (EACH(i, n)) store(&stored[i], master[i] = updated(step, master[i], widen(g[i]), &m[i], &v[i]));
}
