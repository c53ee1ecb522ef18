"""What needs a process of its own: ``python -m benchmarks.probes NAME '[arguments]'`` prints JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any


def import_time() -> dict[str, float]:
    """Seconds that ``import backdrive`` adds to ``import torch``."""
    start = time.perf_counter()
    import torch  # noqa: F401

    middle = time.perf_counter()
    import backdrive  # noqa: F401

    return {"torch": middle - start, "backdrive": time.perf_counter() - middle}


def first_use(specialize: bool, name: str) -> dict[str, float]:
    """Seconds from a loaded model to the results of the first rollout, and on to its first gradient.

    name: a function of ``robots``. Those that stand do so, with contact.
    """
    from . import robots

    robot = getattr(robots, name)()
    state, controls = robot.stance(1, 1) if isinstance(robot, robots.Standing) else robot.motion(1, 1)
    controls.requires_grad_()
    start = time.perf_counter()
    path = robot.simulator(specialize=specialize).rollout(state, controls)
    middle = time.perf_counter()
    (path.last.q.sum() + path.last.v.sum()).backward()
    return {"forward": middle - start, "adjoint": time.perf_counter() - middle}


def first_use_of_mujoco(mjcf: str) -> dict[str, float]:
    """As `first_use`, with MuJoCo's physics."""
    import backdrive as bd

    model = bd.load(mjcf)
    state = model.initial_state(1)
    state.v.requires_grad_()
    start = time.perf_counter()
    path = bd.Simulator(model, physics="mujoco").rollout(state, steps=1)
    middle = time.perf_counter()
    (path.last.q.sum() + path.last.v.sum()).backward()
    return {"forward": middle - start, "adjoint": time.perf_counter() - middle}


def memory(steps: int, every: int) -> dict[str, float]:
    """MB by which forward + backward of one Laikago, and a known buffer, raise the peak of memory.

    The inputs are there before; states, gradients and the engine's own memory count.
    """
    import torch

    import backdrive as bd

    from .gradient import gradient
    from .robots import laikago
    from .timing import growth

    robot = laikago()
    simulator = robot.simulator()
    adjoint = bd.Checkpoint(every) if every > 1 else None
    state, controls = robot.motion(1, steps)
    state, controls = bd.State(state.q[0], state.v[0]), controls[:, 0].contiguous()
    for _ in range(2):
        gradient(simulator, state, controls[:20], adjoint)
        control = growth(lambda: [torch.ones(62_500, dtype=torch.float64) for _ in range(5)])
    return {"growth": growth(lambda: gradient(simulator, state, controls, adjoint)), "control": control}


def main(name: str, arguments: list[Any]) -> None:
    probes: dict[str, Callable[..., dict[str, float]]] = {
        "import_time": import_time,
        "first_use": first_use,
        "first_use_of_mujoco": first_use_of_mujoco,
        "memory": memory,
    }
    print(json.dumps(probes[name](*arguments)))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
