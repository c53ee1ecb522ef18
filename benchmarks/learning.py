"""How many steps a second SHAC learns from, with gradients and updates, and where the time goes.

    python -m benchmarks.learning [--env Ant] [--envs 64 128] [--threads 2] [--seconds 10]

The environment is trained as in the experiment `locomotion`. Prints, for each number of environments, the steps per
second of the fastest iteration and of all iterations, and the µs that each part of the fastest iteration takes for a
step of one environment.

    python -m benchmarks.learning --updates sac sac-policy sql mbpo

measures soft actor-critic and its variants instead, with the networks and seeds of the experiment
`policy-enhancement` and 3 links: the processor time per update, with its share of the environment's steps.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections import defaultdict
from typing import Any

from backdrive.experiments.gradient_free.mbpo import MBPO
from backdrive.experiments.gradient_free.sql import SQL
from backdrive.experiments.locomotion import COURSES
from backdrive.experiments.policy_enhancement.methods import MODEL, SOFT, over
from backdrive.experiments.policy_enhancement.world import FRAMES, pendulum
from backdrive.learn import SAC, SHAC

PARTS = {
    "window": "the motion of a window",
    "_improve_actor": "its gradient, and a step of the actor",
    "_improve_critics": "critics",
    "_everything": "copies, to take an iteration back",
}

OFF_POLICY: dict[str, tuple[type[SAC], dict[str, Any]]] = {
    "sac": (SAC, {}),
    "sac-policy": (SAC, {"enhance": "policy"}),
    "sac-samples": (SAC, {"enhance": "samples"}),
    "sql": (SQL, {"particles": 8, "batch": 32}),
    "mbpo": (MBPO, {**MODEL, "terminates": over}),
}
SEEDS, WINDOW, EXPLORE, ITERATIONS = 5, 50, 200, 6


class Clock:
    """Times of some methods of an agent, s, one for each call."""

    def __init__(self, agent: SHAC) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)
        for name in ("_one", *PARTS):
            setattr(agent, name, functools.partial(self._timed, name, getattr(agent, name)))

    def _timed(self, name: str, method: Any, *given: Any) -> Any:
        begin = time.perf_counter()
        result = method(*given)
        self.times[name].append(time.perf_counter() - begin)
        return result


def measure(env: str, count: int, threads: int, one_call: bool, seconds: float) -> None:
    course = COURSES[env]
    settings = {**course.settings, "num_envs": count, "one_call": one_call}
    agent = SHAC(f"MuJoCo{env}", dtype="float32", threads=threads, options=course.options, **settings)
    agent.train(steps=1)  # compiles
    clock, before = Clock(agent), (agent.steps, agent.seconds)
    agent.train(seconds=agent.seconds + seconds)
    steps, spent = agent.steps - before[0], agent.seconds - before[1]
    samples = agent.given.horizon * count
    fastest = min(range(len(clock.times["_one"])), key=clock.times["_one"].__getitem__)
    whole = clock.times["_one"][fastest]
    way = "one call" if agent.one_call is not None else "step by step"
    print(f"{count} environments, {way}: {samples / whole:,.0f} steps/s at best, {steps / spent:,.0f} in all")
    for name, what in PARTS.items():
        print(f"    {1e6 * clock.times[name][fastest] / samples:6.2f} µs  {what}")
    rest = whole - sum(clock.times[name][fastest] for name in PARTS)
    print(f"    {1e6 * rest / samples:6.2f} µs  the rest")


def measure_updates(method: str) -> None:
    kind, settings = OFF_POLICY[method]
    given = {**SOFT, **settings, "explore": EXPLORE, "window": WINDOW, "max_episode_steps": FRAMES, "threads": 1}
    agent = kind(pendulum(3), seed=range(SEEDS), **given)
    agent.train(steps=SEEDS * (EXPLORE + 2 * WINDOW))
    spent = []
    for _ in range(ITERATIONS):
        begin = time.process_time()
        agent.train(steps=agent.steps + SEEDS * WINDOW)
        spent.append((time.process_time() - begin) / (WINDOW * agent.given.updates))
    print(f"{method}: {1e6 * min(spent):,.0f} µs of processor time per update of {SEEDS} seeds, at best")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="Ant", choices=list(COURSES))
    parser.add_argument("--envs", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--threads", type=int, default=2, help="of the simulator")
    parser.add_argument("--seconds", type=float, default=10.0, help="of training, for each line")
    parser.add_argument("--updates", nargs="+", choices=list(OFF_POLICY), help="of which methods to measure updates")
    given = parser.parse_args()
    for method in given.updates or ():
        measure_updates(method)
    for count in () if given.updates else given.envs:
        for one_call in (True, False):
            measure(given.env, count, given.threads, one_call, given.seconds)


if __name__ == "__main__":
    main()
