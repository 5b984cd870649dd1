//! A checkpoint as one file of whole tensors.

use quadrille_checkpoint::{Checkpoint, Merge, merge};
use serde_json::json;

use super::{MergeArguments, failed, find};
use crate::failure::Failure;
use crate::output::{bytes, print_json, print_text};

/// Writes it and says where.
pub fn run(arguments: &MergeArguments) -> Result<(), Failure> {
    let source = find(&arguments.folder)?;
    let from = source.path().to_path_buf();
    let options = Merge { dtype: arguments.dtype, weights_only: arguments.weights_only };
    let path = merge(source, &arguments.out, options).map_err(failed)?;
    let written = Checkpoint::open(&path).map_err(failed)?;
    let (tensors, size, dtype) = (written.tensors().len(), written.bytes(), written.about().dtype);
    if arguments.json {
        return print_json(&json!({ "from": from, "path": path, "tensors": tensors, "bytes": size, "dtype": dtype }));
    }
    let (from, path) = (from.display(), path.display());
    print_text(&format!("{from}: {tensors} whole tensors in {dtype}, {}, written to {path}\n", bytes(size)))
}
