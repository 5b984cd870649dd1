// The functions of a perceptron, element by element.
#pragma once
#include "prelude.cuh"

// Their numbers, as the host gives them.
enum Curve { GELU, SILU, RELU, RELU2, GELU_ERF };

// 2 sqrt(2 / pi), and the weight of GELU's cubic term.
#define SLOPE 1.5957691216057308
#define CUBIC 0.044715

// e^z, cut off where the sigmoid is 1e-35, so that it stays finite.
DEVICE R limited_exponential(R z) { return exponential(z > (R)80 ? (R)80 : z); }
// e^(-2u), of which GELU's sigmoid is 1 / (1 + e^(-2u)).
DEVICE R exp_minus_2u(R x) { return limited_exponential(x * fused((R)(-SLOPE * CUBIC), x * x, (R)(-SLOPE))); }

// Of erfc(z) e^(z^2) (1 + 2 z), by Chebyshev polynomials of (z - 3) / (z + 3).
#define ERFC_TERMS 25
#define ERFC_SERIES                                                                                                    \
    {                                                                                                                  \
        1.17756257419656, 0.005353904539615676, -0.09377550342284209, 0.05436652555744322, \
        -0.018976596707845208, 0.004453426061462712, -0.0006335531710553147, 1.7661719523171593e-05, \
        1.2841532864056671e-05, -2.0072285659059913e-06, -1.807522790414837e-07, 7.549828343825093e-08, \
        1.885668523838603e-09, -2.699519049798364e-09, -1.4600791199391048e-11, 1.036160744596949e-10, \
        1.475715976623473e-12, -4.277340064396911e-12, -2.07922492859799e-13, 1.8134502003176963e-13, \
        1.973425574544739e-14, -7.287943737592673e-15, -1.5169878690228116e-15, 2.3514112258781403e-16, \
        1.0006111691821669e-16 \
    }

// The normal distribution: the part of it below x, and its density.
struct Normal {
    R part, density;
};
DEVICE Normal normal(R x) {
    const double series_of[ERFC_TERMS] = ERFC_SERIES;
    R z = (x > (R)0 ? x : -x) * (R)0.70710678118654752440;
    R fall = exponential(-((R)0.5 * x * x));
    R t = (z - (R)3) / (z + (R)3);
    // Clenshaw's recurrence.
    R last = (R)0, before = (R)0;
    for (int i = ERFC_TERMS - 1; i > 0; i--) {
        R next = fused(t + t, last, (R)series_of[i] - before);
        before = last;
        last = next;
    }
    R series = fused(t, last, (R)series_of[0] - before);
    R tail = (R)0.5 * fall * series / ((R)1 + z + z);
    return {x > (R)0 ? (R)1 - tail : tail, (R)0.3989422804014327 * fall};
}

DEVICE R value(i64 curve, R x) {
    if (curve == GELU_ERF) return x * normal(x).part;
    if (curve == GELU) return x / ((R)1 + exp_minus_2u(x));
    if (curve == SILU) return x / ((R)1 + limited_exponential(-x));
    if (!(x > (R)0)) return (R)0;
    return curve == RELU ? x : x * x;
}

struct Slope {
    R value, slope;
};
DEVICE Slope slope(i64 curve, R x) {
    if (curve == GELU_ERF) {
        Normal of = normal(x);
        return {x * of.part, fused(x, of.density, of.part)};
    }
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
