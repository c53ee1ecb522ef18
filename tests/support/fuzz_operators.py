"""Run as a script with a seed, a count and the first number: calls with random wrong arguments.

A crash ends the process. Whatever goes in, the outcome is a Python exception, or what the same numbers give in fresh,
contiguous tensors; and it comes within LONGEST seconds, if all kernels are built. `python -m benchmarks.fuzz` makes
many calls.
"""

from __future__ import annotations

import faulthandler
import math
import random
import signal
import sys
import time
import warnings

import torch
import torch._dynamo  # the first call of an operator loads it, which must not be interrupted
from scenes import ALL, arm, chain, puck, randn, random_controls, random_state, random_wrenches, simulator, statue
from torch import Tensor

import backdrive as bd
from backdrive.physics.tree.poses import POSE

INTEGERS = (-(2**63), -(2**31), -7, -1, 0, 1, 2, 3, 5, 64, 2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, 10**30)
STRINGS = ("", "mass", "mass,com", "mas", ",", ",,mass", "rollout", "poses", "rollout_adjoint", "\0", "é" * 1000)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex128)
LONGEST = 10.0  # seconds that a call may take
DEAF = 60.0  # seconds after which the process ends, with a traceback: the call is not even interrupted
NUMBERS = (math.nan, math.inf, -math.inf, 0.0, 1e308, -1e308, 5e-324)


def changed_tensor(x: Tensor, r: random.Random) -> object:
    """Another shape, dtype, layout, or something that is no tensor."""
    kind = r.randrange(15)
    if kind == 0:
        return None
    if kind == 1:
        return r.choice([3.0, "q", [1.0], object(), (x, x), x.tolist()])
    if kind == 2:
        return x.to(r.choice(DTYPES))
    if kind == 3 and x.ndim:
        dim = r.randrange(x.ndim)
        return x.narrow(dim, 0, r.randrange(x.shape[dim] + 1))
    if kind == 4:
        return x.unsqueeze(r.randrange(x.ndim + 1))
    if kind == 5:
        return x.flatten()
    if kind == 6 and x.ndim:
        return x.expand(r.choice([1, 2, 2**40]), *x.shape)
    if kind == 7:
        return x.permute(*r.sample(range(x.ndim), x.ndim))
    if kind == 8:
        return x.movedim(-1, 0).contiguous().movedim(0, -1) if x.ndim else x
    if kind == 9 and x.numel():
        x = x.clone()
        x.view(-1)[r.randrange(x.numel())] = r.choice(NUMBERS)
        return x
    if kind == 10:
        return torch.cat([x, x], r.randrange(x.ndim)) if x.ndim else x
    if kind == 11:
        return r.choice([lambda: x.to_sparse(), lambda: x.to("meta"), lambda: x.float().to_mkldnn()])()
    if kind == 12:
        return x.new_empty([r.choice([0, 1, 2, 3, 17]) for _ in range(r.randrange(5))])
    if kind == 13:
        return torch._efficientzerotensor(x.shape, dtype=x.dtype)
    if x.numel():
        return torch.as_strided(x, x.shape, [r.choice([0, 1, 0]) for _ in x.shape])
    return x


def changed(x: object, r: random.Random) -> object:
    if isinstance(x, Tensor):
        return changed_tensor(x, r)
    if isinstance(x, bool):
        return r.choice([2, None, "yes"])
    if isinstance(x, int):
        return r.choice([*INTEGERS, None, 1.5, "1", True])
    if isinstance(x, str):
        return r.choice([*STRINGS, None, 3])
    if isinstance(x, list):
        x = list(x)
        if x and r.random() < 0.8:
            k = r.randrange(len(x))
            x[k] = changed(x[k], r)
        else:
            x = r.choice([[], x * 2, x[:-1], None])
        return x
    if x is None:
        return r.choice([None, randn(2, 3), randn(3), randn(2, 2, 24), 1.0, torch.zeros(0, dtype=torch.float64)])
    return x


def plain(x: object) -> object:
    """The same numbers, contiguous, in memory of their own."""
    if isinstance(x, Tensor):
        return x.detach().clone(memory_format=torch.contiguous_format)
    if isinstance(x, bd.State):
        return bd.State(plain(x.q), plain(x.v))
    if isinstance(x, list):
        return [plain(y) for y in x]
    if isinstance(x, dict):
        return {name: plain(y) for name, y in x.items()}
    return x


def operator_arguments(r: random.Random) -> tuple[object, list]:
    """An operator, and arguments that are right."""
    make = r.choice(ALL)
    sim, model, batch = simulator(make), make(), r.choice([1, 2, 9])
    steps, every = r.choice([(1, 1), (3, 1), (4, 2), (5, 5), (5, 3)])
    form = r.choice(["rollout", "rollout", "forward", "inverse", "poses"])
    back, path = r.random() < 0.5, r.randrange(2)
    if form == "rollout" and not path:
        every = steps if not back else every
    segments = -(-steps // every)
    time = [steps] if form == "poses" else [segments] if form == "rollout" and back else []
    q, v = random_state(model, *time, batch)
    of_x = [steps] if form == "rollout" else []
    x = {"poses": None, "inverse": randn(batch, model.nv)}.get(form, random_controls(model, *of_x, batch))
    # Three of the many kernels of each form: they take a while to compile.
    w, constants, names, variant = None, None, "", r.randrange(3)
    if variant:
        constants, names = model.assemble({"mass": model.parameter("mass")}), "mass"
    if variant == 1 and form in ("rollout", "forward"):
        w = randn(*of_x, batch, 6 * model.nlink)
    if variant == 2:
        constants = constants.repeat(batch, 1)
    settings = [steps, every, r.choice([0, 2, 100]), path] if form == "rollout" else []
    of_path = "path_" if form == "rollout" and back else ""
    given = {f"{of_path}q": q, f"{of_path}v": v, "vdot" if form == "inverse" else "controls": x, "wrenches": w}
    given = {name: x for name, x in {**given, "constants": constants}.items() if x is not None}
    rest = [sim._program.number, names, settings]
    if not back:
        return torch.ops.backdrive.evaluate, [form, ",".join(given), list(given.values()), *rest]
    if form == "rollout":
        given |= {"path_q_bar": randn(*time, batch, model.nq), "path_v_bar": randn(*time, batch, model.nv)}
        given |= {"last_q_bar": randn(batch, model.nq), "last_v_bar": randn(batch, model.nv)}
    elif form == "poses":
        given["out_bar"] = randn(*time, batch, model.nlink * sum(POSE))
    else:
        given["vdot_bar" if form == "forward" else "tau_bar"] = randn(batch, model.nv)
    wanted = "constants_bar" if variant else ""
    return torch.ops.backdrive.vjp, [form, ",".join(given), list(given.values()), *rest, wanted]


def method_arguments(r: random.Random) -> tuple[object, list]:
    """A method of a simulator, and arguments that are right; the last is for keywords."""
    make = r.choice([arm, chain, puck, statue])
    model, sim, batch, steps = make(), simulator(make, nonfinite=r.choice(["raise", "mark"])), r.choice([(), (2,)]), 3
    state, name = (
        list(random_state(model, *batch)),
        r.choice(["step", "rollout", "linearize", "forward", "inverse", "mass", "poses"]),
    )
    parameters = {"mass": model.parameter("mass")} if r.random() < 0.5 else None
    if name == "rollout":
        adjoint = r.choice([None, bd.Checkpoint(2), bd.Truncated(2), bd.Truncated(2**63), bd.Checkpoint(2**64)])
        inputs = [random_controls(model, steps, *batch), random_wrenches(model, steps, *batch), r.choice([None, steps])]

        def rollout(q, v, controls, wrenches, steps, mass):  # type: ignore[no-untyped-def]
            given = None if mass is None else {"mass": mass}
            q = q.requires_grad_() if isinstance(q, Tensor) and q.is_floating_point() and q.is_leaf else q
            path = sim.rollout((q, v), controls, wrenches=wrenches, steps=steps, parameters=given, adjoint=adjoint)
            (gradient,) = torch.autograd.grad(path.q.sum() + path.last.v.sum(), q)
            return [path.q.detach(), path.v.detach(), gradient]

        return rollout, [*state, *inputs, None if parameters is None else parameters["mass"]]
    if name == "poses":

        def poses(q, v):  # type: ignore[no-untyped-def]
            path = sim.rollout((q, v), steps=2)
            return [f(model.bodies[0]) for f in (path.position, path.orientation, path.velocity, path.angular_velocity)]

        return poses, state
    if name == "inverse":
        return lambda q, v, a: sim.inverse_dynamics((q, v), a), [*state, randn(*batch, model.nv)]
    if name == "mass":
        return lambda q, v: sim.mass_matrix((q, v)), state
    if name == "linearize":
        return lambda q, v, u: sim.linearize((q, v), u), [*state, random_controls(model, *batch)]
    function = sim.step if name == "step" else sim.forward_dynamics
    return (
        lambda q, v, u, w: function((q, v), u, wrench=w),
        [*state, random_controls(model, *batch), random_wrenches(model, *batch)],
    )


def outcome(function: object, arguments: list) -> object:
    try:
        result = function(*arguments)  # type: ignore[operator]
    except Exception as error:
        if isinstance(error, (AssertionError, AttributeError, IndexError, KeyError, StopIteration, UnboundLocalError)):
            return ("careless", error)  # not what a check says
        return ("refused", error)
    results = [x.detach().clone() for x in ([result] if isinstance(result, Tensor) else result)]
    if any(x.device.type == "meta" for x in results):  # shapes were asked for, and told
        return ("refused", results)
    flat = [y for x in arguments for y in (x if isinstance(x, list) else [x])]
    assert all(x.layout == torch.strided for x in flat if isinstance(x, Tensor))
    return ("done", results)


class TooLongError(BaseException):
    """A call takes longer than it may."""


def _interrupt(*_: object) -> None:
    raise TooLongError


def timed(function: object, arguments: list) -> object:
    """The outcome. A call that takes too long is interrupted; it may have built a kernel, so there is a second try."""
    for longest in (DEAF - 2 * LONGEST, LONGEST):
        faulthandler.dump_traceback_later(DEAF, exit=True)
        signal.setitimer(signal.ITIMER_REAL, longest)
        began = time.perf_counter()
        try:
            result = outcome(function, arguments)
        except TooLongError:
            continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            faulthandler.cancel_dump_traceback_later()
        if time.perf_counter() - began < LONGEST:
            return result
    return ("slow", None)


def main(seed: int, count: int, first: int = 0) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _interrupt)
    counts = {"done": 0, "refused": 0}
    for k in range(first, first + count):
        r = random.Random(seed * 1_000_003 + k)
        function, arguments = (operator_arguments if r.random() < 0.6 else method_arguments)(r)
        wrong = min(r.choice([0, 1, 1, 1, 2, 3]), len(arguments))
        for i in r.sample(range(len(arguments)), wrong):
            arguments[i] = changed(arguments[i], r)
        kind, found = timed(function, arguments)
        description = [
            f"{tuple(x.shape)} {x.dtype} {x.layout}" if isinstance(x, Tensor) else repr(x)[:80] for x in arguments
        ]
        assert kind not in ("careless", "slow"), (kind, seed, k, repr(found), description)
        assert wrong or kind == "done", (seed, k, repr(found), description)
        counts[kind] += 1
        if kind == "done":
            again, expected = outcome(function, [plain(x) for x in arguments])
            assert again == "done", (seed, k, repr(expected), description)
            for x, y in zip(found, expected, strict=True):
                assert torch.equal(torch.nan_to_num(x, 123.0), torch.nan_to_num(y, 123.0)), (seed, k, description)
    print(f"{counts['done']} done, {counts['refused']} refused")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
