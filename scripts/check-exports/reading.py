"""What the readers share: files and numbers of ranks come in on standard input, answers go out, a line of JSON each."""

import contextlib
import json
import os
import sys


def answer_all(read):
    """Calls `read(path, ranks)` for every file; what it raises, or an exit, is the reason of a refusal."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the framework prints is no answer
    for line in sys.stdin:
        path, ranks = json.loads(line)
        reason = None
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            try:
                read(path, ranks)
            except (Exception, SystemExit) as error:
                reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        print(json.dumps({"path": path, "reason": reason}), file=answers, flush=True)
