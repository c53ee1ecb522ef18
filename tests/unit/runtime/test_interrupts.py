"""Ctrl-C ends any call within a second, without harm; handlers of other signals run while a call goes on."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from interrupted_calls import CALLS, boxes, repeated

import backdrive as bd
from backdrive.backends.llvm_cpu import interrupts

posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
QUICK = ("rollout", "one step of a big batch")


@posix
@pytest.mark.parametrize("name", [x if x in QUICK else pytest.param(x, marks=pytest.mark.slow) for x in CALLS])
def test_ctrl_c_ends_a_call(name, request):
    script = request.config.rootpath / "tests" / "support" / "interrupted_calls.py"
    with subprocess.Popen([sys.executable, str(script), name], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            sent = time.perf_counter()
            assert process.stdout.readline() == "interrupted\n"
            assert time.perf_counter() - sent < 1.0
            assert process.stdout.readline() == "the same bits\n" and process.wait(timeout=60) == 0
        finally:
            process.kill()


@pytest.fixture
def scene():
    model = boxes()
    sim = bd.Simulator(model, dt=0.01, threads=1)
    return sim, repeated(model.initial_state(), 8)


class Alarm:
    """SIGALRM after 0.1 s, with a handler. again: and then every so many seconds."""

    def __init__(self, handler, again=0.0):
        self.handler, self.again = handler, again

    def __enter__(self):
        self.before = signal.signal(signal.SIGALRM, lambda *_: self.handler())
        signal.setitimer(signal.ITIMER_REAL, 0.1, self.again)

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, self.before)


@posix
def test_a_handler_runs_within_a_call_and_may_call_itself(scene):
    """The call goes on as if nothing had been."""
    sim, start = scene
    expected, inside, handled = sim.rollout(start, steps=9000).q, sim.step(start).q, []

    def handler():
        handled.append((interrupts.handling(), torch.equal(sim.step(start).q, inside)))

    end = time.monotonic() + 60.0
    with Alarm(handler, again=0.02):
        while time.monotonic() < end:
            assert torch.equal(sim.rollout(start, steps=9000).q, expected)
            if any(within for within, _ in handled):
                break
    assert any(within for within, _ in handled) and all(same for _, same in handled)


@posix
def test_an_exception_of_a_handler_ends_a_call(scene):
    sim, start = scene

    def handler():
        raise TimeoutError("enough")

    with pytest.raises(TimeoutError, match="enough"), Alarm(handler):
        sim.rollout(start, steps=300_000)
    assert not interrupts.caught
    sim.rollout(start, steps=3)


@posix
def test_calls_of_other_threads_go_on(scene):
    sim, start = scene
    expected, found, ended = sim.rollout(start, steps=100).q, [], threading.Event()

    def again_and_again():
        while not ended.is_set():
            found.append(torch.equal(sim.rollout(start, steps=100).q, expected))

    thread = threading.Thread(target=again_and_again)

    def handler():
        raise TimeoutError

    thread.start()
    for _ in range(3):
        with pytest.raises(TimeoutError), Alarm(handler):
            sim.rollout(start, steps=300_000)
    ended.set()
    thread.join()
    assert len(found) > 3 and all(found)


def test_the_thread_that_asks_ends_when_nobody_answers(scene, monkeypatch):
    """And the next call starts it again."""
    monkeypatch.setattr(interrupts, "PERIOD", 0.001)
    sim, start = scene
    sim.step(start)
    for _ in range(1000):
        if interrupts._asker is None:
            break
        time.sleep(0.01)
    assert interrupts._asker is None and interrupts.MAIN.flag
    sim.step(start)
    assert interrupts._asker is not None
