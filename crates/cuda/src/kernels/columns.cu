// Column blocks: the layout in which gathers and scatters along columns work on contiguous memory.
#include "prelude.cuh"

// y = the blocks of `width` columns of x [rows, cols], one after another; and back.
KERNEL(pack_columns)(const S* x, S* y, i64 rows, i64 cols, i64 width) {
    for (EACH(i, rows * cols)) {
        i64 row = quotient(i, cols), col = rest(i, cols);
        y[(quotient(col, width) * rows + row) * width + rest(col, width)] = x[i];
    }
}
KERNEL(unpack_columns)(const S* x, S* y, i64 rows, i64 cols, i64 width) {
    for (EACH(i, rows * cols)) {
        i64 row = quotient(i, cols), col = rest(i, cols);
        y[i] = x[(quotient(col, width) * rows + row) * width + rest(col, width)];
    }
}

// y [rows, count] = the columns of x [rows, cols] from `first` on; and back.
KERNEL(copy_panel_columns)(const S* x, S* y, i64 rows, i64 cols, i64 first, i64 count) {
    for (EACH(i, rows * count)) y[i] = x[quotient(i, count) * cols + first + rest(i, count)];
}
KERNEL(store_panel_columns)(const S* y, S* x, i64 rows, i64 cols, i64 first, i64 count) {
    for (EACH(i, rows * count)) x[quotient(i, count) * cols + first + rest(i, count)] = y[i];
}
