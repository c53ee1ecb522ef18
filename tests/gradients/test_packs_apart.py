"""Packs that are taken apart in the midst of a call: nothing of what was dropped is seen, and nothing counts twice.

Everything that a call computes is, to the bit, what it computes of each environment alone.
"""

import functools

import pytest
import torch
from contact_scenes import ground
from torch import Tensor

import backdrive as bd
from backdrive.backends.llvm_cpu import abi
from backdrive.physics import budget, kernels
from backdrive.runtime import program

STEPS, DT, BATCH = 9, 0.01, 11  # the last pack is not full
Tensors = dict[str, Tensor]


@pytest.fixture
def parting(monkeypatch, tmp_path):
    """Packs part as soon as they factor a matrix. Kernels depend on that: none is shared with other tests."""
    monkeypatch.setenv("BACKDRIVE_CACHE", str(tmp_path))
    monkeypatch.setattr(budget, "TOGETHER", -1e30)
    monkeypatch.setattr(kernels, "rolled_kernel", functools.cache(kernels.make_kernel))


@functools.cache
def boxes() -> bd.Model:
    """Two boxes on a hinge with a motor, limits and friction, and a third one, which fall on a floor."""
    scene = ground(2, friction=0.5, restitution=0.3)
    for k in range(3):
        place = (0.45 * k, 0.14 + 0.02 * k)
        scene.add_body(f"box{k}", bd.Box(0.3, 0.2), mass=1.0 + k, position=place, friction=0.4, restitution=0.2)
    joint = scene.add_joint("hinge", bd.Hinge(limits=(-0.05, 0.4), friction=0.02), parent="box0", child="box1")
    scene.add_motor("motor", joint=joint)
    return scene.build()


@functools.cache
def inputs() -> Tensors:
    """Of all environments, [B, ...] or [T, B, ...]."""
    model, generator = boxes(), torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    start, many = model.initial_state(BATCH), (STEPS, BATCH)
    return {
        "q": start.q + 0.02 * normal(BATCH, model.nq), "v": start.v - 0.5 + normal(BATCH, model.nv),
        "controls": normal(*many, model.nu), "wrenches": normal(*many, model.nbody, 3),
        "mass": model.parameter("mass") * (1.0 + 0.1 * normal(BATCH, model.nbody).tanh()),
        "friction": model.parameter("friction") * (1.0 + 0.1 * normal(BATCH, model.nshape).tanh()),
        "noise": normal(*many, model.nu), "gains": 0.1 * normal(*many, model.nu, 2 * model.nv),
    }  # fmt: skip


def of_environments(given: Tensors, which: Tensor) -> Tensors:
    of_times = ("controls", "wrenches", "noise", "gains")
    return {name: x[:, which] if name in of_times else x[which] for name, x in given.items()}


def with_gradients(results: Tensors, leaves: Tensors) -> Tensors:
    """And the gradients of a function of all results."""
    weights = (torch.linspace(-1.0, 2.0, x.shape[-1], dtype=x.dtype) for x in results.values())
    loss = sum((x @ w).sum() for x, w in zip(results.values(), weights))
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    found = {name: x.detach() for name, x in results.items()}
    return found | {f"gradient of {name}": x for name, x in zip(leaves, gradients, strict=True)}


def leaves_of(given: Tensors, *names: str) -> Tensors:
    return {name: given[name].clone().requires_grad_() for name in names}


def motion(sim: bd.Simulator, given: Tensors, **options) -> Tensors:
    leaves = leaves_of(given, "q", "v", "controls", "wrenches", "mass", "friction")
    path = sim.rollout(
        bd.State(leaves["q"], leaves["v"]), leaves["controls"], wrenches=leaves["wrenches"],
        parameters={name: leaves[name] for name in ("mass", "friction")}, **options,
    )  # fmt: skip
    return with_gradients({"q": path.q, "v": path.v, "last q": path.last.q, "last v": path.last.v}, leaves)


def kept_states(sim: bd.Simulator, given: Tensors) -> Tensors:
    return motion(sim, given, adjoint=bd.Checkpoint(4))


def clipped(sim: bd.Simulator, given: Tensors) -> Tensors:
    return motion(sim, given, clip=0.5)


def steps(sim: bd.Simulator, given: Tensors) -> Tensors:
    leaves = leaves_of(given, "q", "v", "controls")
    state = bd.State(leaves["q"], leaves["v"])
    for u in leaves["controls"]:
        state = sim.step(state, u)
    return with_gradients({"q": state.q, "v": state.v}, leaves)


def short_rollout(sim: bd.Simulator, given: Tensors) -> Tensors:
    leaves = leaves_of(given, "q", "v", "controls")
    path = sim.rollout(bd.State(leaves["q"], leaves["v"]), leaves["controls"])
    return with_gradients({"q": path.last.q, "v": path.last.v}, leaves)


def forces(sim: bd.Simulator, given: Tensors) -> Tensors:
    leaves = leaves_of(given, "q", "v", "controls", "mass")
    state, parameters = bd.State(leaves["q"], leaves["v"]), {"mass": leaves["mass"]}
    return with_gradients(
        {"force": sim.rollout(state, leaves["controls"], parameters=parameters).contacts.force}, leaves
    )


def policy(sim: bd.Simulator, given: Tensors, **options) -> Tensors:
    model, generator = sim.model, torch.Generator().manual_seed(2)
    network = bd.MLP((model.nq + model.nv, 5, model.nu), generator=generator, **options)
    noise = {"noise": given["noise"][: -(-STEPS // network.hold)]} if network.log_std is not None else {}
    leaves = leaves_of(given | noise, "q", "v", *noise)
    state, noise = bd.State(leaves["q"], leaves["v"]), {name: leaves[name] for name in noise}
    path = sim.rollout(state, policy=network, steps=STEPS, **noise)
    results = {"q": path.q, "v": path.v, "controls": path.controls}
    return with_gradients(results, leaves | {f"{SHARED}{k}": x for k, x in enumerate(network.parameters())})


def shaped_policy(sim: bd.Simulator, given: Tensors) -> Tensors:
    return policy(sim, given, hold=2, std=0.4, output="tanh", normalize=True)


def shared_parameters(sim: bd.Simulator, given: Tensors) -> Tensors:
    leaves, shared = leaves_of(given, "q", "v"), sim.model.parameter("mass").clone().requires_grad_()
    path = sim.rollout(bd.State(leaves["q"], leaves["v"]), given["controls"], parameters={"mass": shared})
    return with_gradients({"q": path.q, "v": path.v}, leaves | {f"{SHARED}mass": shared})


def feedback(sim: bd.Simulator, given: Tensors) -> Tensors:
    origin = bd.State(*(given[name].expand(STEPS, *given[name].shape) for name in "qv"))
    path, used = sim.track(bd.State(given["q"], given["v"]), given["controls"], given["gains"], origin)
    return {"q": path.q, "v": path.v, "used": used}


def jacobians(sim: bd.Simulator, given: Tensors) -> Tensors:
    with torch.no_grad():
        state = sim.rollout(bd.State(given["q"], given["v"]), given["controls"]).last
    of_state, of_control = sim.linearize(state, given["controls"][0])
    return {"A": of_state, "B": of_control}


SHARED = "shared "  # parameters whose gradient is the sum over the environments
WAYS = (
    motion, kept_states, clipped, steps, short_rollout, forces, policy, shaped_policy, shared_parameters, feedback,
    jacobians,
)  # fmt: skip
QUICK = (motion, short_rollout, shaped_policy)


def alone(way, sim: bd.Simulator, given: Tensors) -> Tensors:
    """Each environment in a call of its own."""
    found = [way(sim, of_environments(given, torch.tensor([k]))) for k in range(BATCH)]
    result: Tensors = {}
    for name, x in found[0].items():
        parts = [f[name] for f in found]
        if SHARED in name:
            result[name] = functools.reduce(torch.add, parts)
        else:
            result[name] = torch.cat(parts, dim=next(d for d in range(x.ndim) if x.shape[d] == 1))
    return result


EACH = [
    pytest.param(way, impacts, marks=() if impacts and way in QUICK else pytest.mark.slow)
    for impacts in (True, False)
    for way in WAYS
]


@pytest.mark.parametrize(("way", "impacts"), EACH)
def test_all_is_as_of_environments_alone(way, impacts, parting, monkeypatch):
    sims = [bd.Simulator(boxes(), DT, impacts=impacts, specialize=False, threads=threads) for threads in (1, 2)]
    right = alone(way, sims[0], inputs())
    for sim in sims:
        with monkeypatch.context() as patch:
            if sim.threads == 2:
                patch.setattr(program, "THREAD_WORK", 1)  # two threads pay for any call
            found = way(sim, inputs())
        for name, x in found.items():
            if way is shaped_policy and SHARED in name:  # a product of matrices, which torch sums up in any order
                torch.testing.assert_close(x, right[name], rtol=1e-12, atol=1e-12)
            else:
                assert torch.equal(x, right[name]), name


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_that_packs_part(parting, monkeypatch):
    """The tests above would see it if nothing were computed again: then results are lost."""
    entry, again = abi.entry, "select i1 %begins, i64 %pack, i64 %onward"

    def without_restarts(*args: object) -> str:
        assert again in entry(*args)
        return entry(*args).replace(again, "add i64 %onward, 0")

    monkeypatch.setattr(abi, "entry", without_restarts)
    sim = bd.Simulator(boxes(), DT, impacts=True, specialize=False, threads=1)
    right, found = (way(sim, inputs()) for way in (functools.partial(alone, motion), motion))
    assert not any(torch.equal(x, right[name]) for name, x in found.items())
