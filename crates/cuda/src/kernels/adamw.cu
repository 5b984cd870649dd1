// AdamW, in one pass.
#include "prelude.cuh"

// The constants that every element needs, as the host has formed them: of the running means, what is left of a parameter
// after decay, and what moments are multiplied with instead of dividing by their corrections.
struct AdamW {
    double beta1, rest1, beta2, rest2, epsilon, keep, length, root_scale;
};

// What the step's totals have decided: whether the gradient is applied, 1 or 0, and what it is multiplied with.
struct Update {
    double applied, gradient_scale;
};

struct Step {
    R beta1, rest1, beta2, rest2, epsilon, keep, length, root_scale, gradient_scale;
};
DEVICE Step step_of(const AdamW& c, const Update* update) {
    return {(R)c.beta1, (R)c.rest1,  (R)c.beta2,      (R)c.rest2,                 (R)c.epsilon,
            (R)c.keep,  (R)c.length, (R)c.root_scale, (R)update->gradient_scale};
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

// What the update of one parameter needs: `stored` and a gradient as stored only where there is a master copy.
struct Parameter {
    AdamW constants;
    R* p;
    S* stored;
    const void* g;
    R *m, *v;
    i64 n;
    // Whether the gradient is as stored; the first unit of UPDATE_UNIT elements, counted through all parameters.
    i64 g_is_stored, first;
};
// Elements that a block takes at once.
#define UPDATE_UNIT 4096

// All parameters of a table at once: the first unit of each is that of the one before and its own.
KERNEL(adamw_of_all)(const Parameter* table, i64 count, i64 units, const Update* update) {
    if (update->applied == 0) return;
    for (i64 unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const Parameter& of = entry_of(table, count, unit);
        Step step = step_of(of.constants, update);
        i64 start = (unit - of.first) * UPDATE_UNIT, end = start + UPDATE_UNIT < of.n ? start + UPDATE_UNIT : of.n;
        for (i64 i = start + threadIdx.x; i < end; i += THREADS) {
            R g = of.g_is_stored ? widen(((const S*)of.g)[i]) : ((const R*)of.g)[i];
            R p = updated(step, of.p[i], g, &of.m[i], &of.v[i]);
            of.p[i] = p;
            if (of.stored) store(&of.stored[i], p);
        }
    }
}
