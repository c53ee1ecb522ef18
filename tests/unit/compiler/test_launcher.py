"""Threads, forks, denormals."""

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import Future

import numpy as np
import pytest
from kernel_helpers import DTYPES, compute, from_function, launch, make, same_bits

from backdrive import backends
from backdrive import ir as bd
from backdrive.backends import Integer, Rows
from backdrive.backends.llvm_cpu import launch as launcher
from backdrive.backends.llvm_cpu.target import host


def work(x, y, n):
    """Something with scratch memory, that takes a while."""
    w = bd.memory(n + 1)
    for k in bd.loop(n + 1):
        w[k] = x[0] * bd.to_float(k)
    for _ in bd.loop(n):
        for k in bd.loop(n):
            w[k] = w[k] * 0.5 + w[k + 1] * 0.25
    y[0] = w[0]


@pytest.fixture(scope="module")
def kernel():
    return make(work, Rows("x"), Rows("y", writable=True), Integer("n"))


def results(kernel, batch, threads, n, seed=0):
    x = np.random.default_rng(seed).normal(size=(batch, 1))
    y = np.zeros((batch, 1))
    launch(kernel, batch, threads=threads, x=x, y=y, n=n)
    return y


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity of processes")
def test_threads_are_those_of_the_cores_that_a_process_may_use():
    program = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    program += "; from backdrive.backends import available_cores; print(available_cores())"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.split() == ["1"]
    assert backends.available_cores() == len(os.sched_getaffinity(0))


def test_calls_from_many_threads_with_pools_of_many_sizes(kernel, monkeypatch):
    """Each caller may want a larger pool than there is, while the others are handing over their work."""
    monkeypatch.setattr(launcher, "_pool", None)
    expected = {(seed, n): results(kernel, 64, 1, n, seed) for seed in range(6) for n in (1, 5, 30)}
    errors, barrier = [], threading.Barrier(6)

    def caller(seed):
        try:
            barrier.wait(20)
            for k in range(25):
                n = (1, 5, 30)[k % 3]
                assert same_bits(results(kernel, 64, 2 + (k * (seed + 1)) % 9, n, seed), expected[seed, n])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=caller, args=(seed,)) for seed in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert errors == []


def test_a_larger_pool_does_not_close_the_one_in_use(kernel, monkeypatch):
    """The pool that a caller has got, and is about to hand work to, stays open."""
    monkeypatch.setattr(launcher, "_pool", None)
    release = threading.Event()
    first = launcher._submit(2, lambda k: release.wait(10), 1)
    second = launcher._submit(40, lambda k: None, 1)
    second.result(10)
    release.set()
    assert first.result(10) is True


def _child(kernel, queue):
    queue.put(results(kernel, 64, 3, 10))


@pytest.mark.skipif(sys.platform != "linux", reason="fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(kernel):
    expected = results(kernel, 64, 3, 10)
    context = multiprocessing.get_context("fork")
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            results(kernel, 64, 3, 10)

    caller = threading.Thread(target=busy)
    caller.start()
    try:
        for _ in range(3):
            queue = context.Queue()
            child = context.Process(target=_child, args=(kernel, queue))
            child.start()
            assert same_bits(queue.get(timeout=30), expected)
            child.join(20)
            assert child.exitcode == 0
    finally:
        stop.set()
        caller.join(20)
    assert same_bits(results(kernel, 64, 3, 10), expected)


def test_an_interrupt_waits_for_the_threads(monkeypatch):
    future, waits = Future(), []

    def interrupted(futures):
        waits.append(futures)
        if len(waits) < 3:
            raise KeyboardInterrupt
        future.set_result(None)

    monkeypatch.setattr(launcher, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launcher._finish([future])
    assert future.done()


def test_scratch_memory_grows_and_is_aligned(kernel):
    for n in (1, 3000, 2, 40):
        assert np.isfinite(results(kernel, 9, 2, n % 50)).all()
        assert launcher.scratch_memory(n * 64) % 64 == 0
        assert launcher._local.buffer.nbytes >= n * 64


@pytest.mark.skipif(not host().flushes_denormals, reason="denormals are not flushed here")
@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("threads", [1, 2])
def test_denormals_are_flushed_inside_and_only_inside(bits, threads):
    tiny = np.finfo(DTYPES[bits]).tiny
    kernel = from_function(lambda x: [x[0] * 0.5, x[1] + x[1], x[0] * 2.0])
    for lanes in (1, 4):
        x = np.tile(np.array([tiny, tiny / 2, tiny], DTYPES[bits]), (9, 1))
        assert (compute(kernel, x, 3, bits, lanes, threads) == [0.0, 0.0, 2 * tiny]).all()
        again = np.array([tiny], DTYPES[bits]) * DTYPES[bits](0.5)
        assert again[0] > 0 and again[0] + again[0] == tiny
        assert (x[:, 1] > 0).all()


def test_denormals_are_copied_alike_by_every_lane_width():
    x = np.full((5, 1), 1e-310)
    table = np.array([1e-310])

    def body(x, table, y):
        y[0] = x[0]
        y[1] = table[0]
        y[2] = -x[0]

    kernel = make(body, Rows("x"), backends.Table("table"), Rows("y", writable=True))
    for lanes in (1, 2, 4, 8):
        y = np.zeros((5, 3))
        launch(kernel, 5, 64, lanes, x=x, table=table, y=y)
        assert (y == [1e-310, 1e-310, -1e-310]).all()
