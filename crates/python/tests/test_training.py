"""Runs in this process: callbacks, interruptions, folders."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import numpy
import pytest

import quadrille
from quadrille import Step

TINY = {"model": "gpt-tiny", "set": {"vocab": 256}, "grid": "x=2", "global_batch": 4, "threads": 1}


def test_a_callback_gets_every_step_on_the_calling_thread() -> None:
    seen: list[tuple[Step, int]] = []
    run = quadrille.train(**TINY, steps=5, callback=lambda step: seen.append((step, threading.get_ident())))
    assert [step for step, _ in seen] == list(run.steps) and len(run.steps) == 5 and run.stopped is None
    assert {thread for _, thread in seen} == {threading.get_ident()}
    assert run.floor is not None and run.floor < run.steps[-1].loss < run.steps[0].loss + 1


def test_the_same_run_has_the_same_bits() -> None:
    once, again = (quadrille.train(**TINY, steps=3) for _ in range(2))
    assert (once.steps.loss == again.steps.loss).all()
    assert once.steps.loss.dtype == numpy.float64 and once.steps.step.dtype == numpy.int64


def test_false_ends_the_run_in_good_order(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = quadrille.train(**TINY, steps=50, out=folder, callback=lambda step: step.step < 3)
    assert run.stopped == len(run.steps) and 3 <= run.stopped < 10
    kept = quadrille.Run.read(folder)
    assert (kept.steps.loss == run.steps.loss).all() and kept.last == 50
    assert [each.step for each in kept.checkpoints] == [run.stopped]
    assert [event.kind for event in run.events][-1] == kept.events[-1].kind
    whole = quadrille.train(resume=folder, steps=run.stopped + 2)
    assert [step.step for step in whole.steps] == [run.stopped + 1, run.stopped + 2]
    again = quadrille.Run.read(folder)
    assert len(again.steps) == run.stopped + 2 and again.ledger_equal
    assert "steps 1 to" in again._repr_html_() and len(again.to_pandas()) == len(again.steps)


def test_what_a_callback_raises_is_raised() -> None:
    class Mine(Exception):
        pass

    def fails(step: Step) -> None:
        if step.step == 2:
            raise Mine("at two")

    with pytest.raises(Mine, match="at two"):
        quadrille.train(**TINY, steps=1000, callback=fails)


def test_an_interruption_ends_a_run_after_its_step(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def interrupt() -> None:
        steps = folder / "steps.jsonl"
        while not (steps.exists() and steps.stat().st_size):
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        quadrille.train(**TINY, steps=10**6, out=folder)
    run = quadrille.Run.read(folder)
    assert 0 < len(run.steps) < 10**6 and run.checkpoints[-1].step == len(run.steps)


def test_an_interruption_of_a_search_is_raised_at_once() -> None:
    start = time.monotonic()
    threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        quadrille.plan("gpt3-175b", gpus="64..8192", pareto=True, cluster="selene", global_batch=1536)
    assert time.monotonic() - start < 5
    # The search has ended, too, which would else use all cores.
    assert is_idle_within(8)


def test_an_interruption_of_a_sweep_ends_its_searches() -> None:
    threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        gpus = list(range(1024, 8193, 64))
        quadrille.sweep("gpt3-175b", vary={"gpus": gpus}, cluster="selene", global_batch=1536)
    # Those of the other numbers never begin.
    assert is_idle_within(8)


def is_idle_within(seconds: int) -> bool:
    """Whether a second comes in which the process hardly works."""
    for _ in range(seconds):
        used = time.process_time()
        time.sleep(1)
        if time.process_time() - used < 0.5:
            return True
    return False


def test_the_interpreter_is_free_while_work_goes_on() -> None:
    counted, done = 0, threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0.001)

    counting = threading.Thread(target=count)
    counting.start()
    quadrille.train(**TINY, steps=200)
    done.set()
    counting.join()
    assert counted > 10


def test_a_planned_layout_is_trained_and_proven() -> None:
    tiny = {"model": "gpt-tiny", "set": {"vocab": 256}}
    found = quadrille.plan(**tiny, gpus=4, cluster="selene", framework="quadrille", global_batch=8)
    layout = found.advised.layout
    assert quadrille.verify(**tiny, layout=layout, dtype="f64", steps=1).ok
    assert quadrille.train(**tiny, layout=layout, steps=2, threads=1).layout["grid"] == layout["grid"]
