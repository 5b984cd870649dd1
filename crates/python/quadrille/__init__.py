"""Plans, runs and proves the parallel training of large transformers.

| function | answers |
|---|---|
| `plan`, `sweep` | which layouts of a cluster's devices are the fastest, how long a step takes, whether it fits |
| `price`, `estimate_memory` | what one layout costs, and why |
| `explain` | what one layout computes, sends and holds in a step |
| `verify` | whether a layout computes what the serial model computes |
| `train`, `Run` | a run, with a callback for every step, and its folder |
| `validate_published` | how far predictions are from published measurements |

Keywords are the flags of the command line with `_` in place of `-`. A model is a preset's name, a path, or `from_hf(config)`.
"""

from .errors import InputError, QuadrilleError, WorkError
from .explaining import Explanation, explain
from .layouts import Layout
from .ledgers import Ledger, Transfer
from .models import Model, cluster_names, from_hf, model_names
from .planning import ErrorBand, Oversized, Plan, PlannedLayout, plan
from .pricing import MemoryEstimate, Priced, estimate_memory, price
from .published import Published, SourceErrors, validate_published
from .runs import Checkpoint, Run
from .steps import Event, Step, Steps
from .sweeping import Sweep, sweep
from .training import Training, train
from .verifying import Verification, Verified, verify
from .why import Change, Part, Sensitivity, Why

__all__ = [
    "Change",
    "Checkpoint",
    "ErrorBand",
    "Event",
    "Explanation",
    "InputError",
    "Layout",
    "Ledger",
    "MemoryEstimate",
    "Model",
    "Oversized",
    "Part",
    "Plan",
    "PlannedLayout",
    "Priced",
    "Published",
    "QuadrilleError",
    "Run",
    "Sensitivity",
    "SourceErrors",
    "Step",
    "Steps",
    "Sweep",
    "Training",
    "Transfer",
    "Verification",
    "Verified",
    "Why",
    "WorkError",
    "cluster_names",
    "estimate_memory",
    "explain",
    "from_hf",
    "model_names",
    "plan",
    "price",
    "sweep",
    "train",
    "validate_published",
    "verify",
]
