//! The step program: values, shardings, operations, blocks, backward, passes and the predicted ledger.
