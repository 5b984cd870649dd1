// The functions of a perceptron, element by element.
#pragma once
#include "prelude.cuh"

// Their numbers, as the host gives them.
enum Curve { GELU, SILU, RELU, RELU2 };

// 2 sqrt(2 / pi), and the weight of GELU's cubic term.
#define SLOPE 1.5957691216057308
#define CUBIC 0.044715

// e^z, cut off where the sigmoid is 1e-35, so that it stays finite.
DEVICE R limited_exponential(R z) { return exponential(z > (R)80 ? (R)80 : z); }
// e^(-2u), of which GELU's sigmoid is 1 / (1 + e^(-2u)).
DEVICE R exp_minus_2u(R x) { return limited_exponential(x * fused((R)(-SLOPE * CUBIC), x * x, (R)(-SLOPE))); }

DEVICE R value(i64 curve, R x) {
    if (curve == GELU) return x / ((R)1 + exp_minus_2u(x));
    if (curve == SILU) return x / ((R)1 + limited_exponential(-x));
    if (!(x > (R)0)) return (R)0;
    return curve == RELU ? x : x * x;
}

struct Slope {
    R value, slope;
};
DEVICE Slope slope(i64 curve, R x) {
    if (curve == RELU || curve == RELU2) {
        if (!(x > (R)0)) return {(R)0, (R)0};
        return curve == RELU ? Slope{x, (R)1} : Slope{x * x, x + x};
    }
    R e = curve == GELU ? exp_minus_2u(x) : limited_exponential(-x);
    R sigmoid = (R)1 / ((R)1 + e);
    // 1 - sigmoid = e sigmoid, without cancellation.
    R inner = curve == GELU ? x * fused((R)(3.0 * SLOPE * CUBIC), x * x, (R)SLOPE) : x;
    return {x * sigmoid, fused(inner * (e * sigmoid), sigmoid, sigmoid)};
}
