// The soft cap of attention scores and of logits.
#pragma once
#include "prelude.cuh"

// cap * tanh(x / cap); its slope where it gave `capped`.
DEVICE R softened(R x, double cap) {
    R inverse = (R)1 / (R)cap;
    return (R)cap * ((R)1 - (R)2 / (exponential((R)2 * x * inverse) + (R)1));
}
DEVICE R cap_slope(R capped, double cap) {
    R tanh = capped / (R)cap;
    return (R)1 - tanh * tanh;
}
