"""A simulator can be copied, saved, sent to other processes and used from several threads; it is a good module."""

import copy
import io
import pickle
import subprocess
import sys
import threading

import pytest
import torch
from scenes import ALL, DT, arm, chain, leaves, project, random_controls, random_state, simulator
from torch import nn

import backdrive as bd


def outcome(sim):
    """A trajectory's end and a gradient."""
    model, dtype = sim.model, sim.dtype
    inputs = leaves(*random_state(model, 3, dtype=dtype), random_controls(model, 4, 3, dtype=dtype))
    path = sim.rollout(bd.State(*inputs[:2]), inputs[2])
    loss = project(*path.last, path.position(model.bodies[-1]))
    return [path.q.detach(), *torch.autograd.grad(loss, inputs)]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def saved_and_loaded(sim):
    buffer = io.BytesIO()
    torch.save(sim, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


COPIES = {
    "copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda sim: pickle.loads(pickle.dumps(sim)),
    "torch.save": saved_and_loaded,
}  # fmt: skip


# ---------------------------------------------------------------------------------------------- copies


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_copies(how, make):
    sim = simulator(make)
    other = COPIES[how](sim)
    assert other is not sim and other._program is not sim._program
    assert same(outcome(sim), outcome(other))


def test_copies_keep_every_setting():
    sim = bd.Simulator(
        chain(), 0.02, integrator=bd.Midpoint(), dtype=torch.float32, threads=1, specialize=False, nonfinite="mark"
    )
    for how in COPIES.values():
        other = how(sim).eval()
        for name in ("dt", "integrator", "dtype", "threads", "specialize", "nonfinite"):
            assert getattr(other, name) == getattr(sim, name)
        assert not other.training and repr(other) == repr(sim)
    assert sim.training


def test_a_copy_lives_on():
    sim = bd.Simulator(arm(), DT, specialize=False)
    expected, other = outcome(sim), copy.deepcopy(sim)
    del sim
    assert same(outcome(other), expected)


def test_compiled_code_is_not_pickled():
    assert len(pickle.dumps(simulator(arm))) < 20_000


def test_copies_of_a_module_that_has_one():
    net = nn.Sequential(nn.Linear(3, 3), bd.Simulator(chain(), DT, specialize=False))
    other = copy.deepcopy(net)
    assert same(outcome(net[1]), outcome(other[1]))


def test_another_process_gets_the_same_bits(tmp_path, request):
    support = request.config.rootpath / "tests" / "support"
    torch.save((simulator(arm), outcome(simulator(arm))), tmp_path / "sim.pt")
    script = (
        "import sys, torch; sys.path[:0] = sys.argv[2:]; from test_copies_and_workers import outcome, same\n"
        "sim, expected = torch.load(sys.argv[1], weights_only=False)\n"
        "assert same(outcome(sim), expected)\n"
        "print('same')"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "sim.pt"), str(request.path.parent), str(support)]
    assert subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout == "same\n"


# ---------------------------------------------------------------------------------------------- workers


class Rollouts(torch.utils.data.Dataset):
    """Item k: a motion and the gradient of its end."""

    def __init__(self, sim):
        self.sim = sim

    def __len__(self):
        return 6

    def __getitem__(self, k):
        q, v = leaves(*random_state(self.sim.model, 40, seed=k))
        path = self.sim.rollout(bd.State(q, v), steps=200)  # long enough for several threads
        path.last.q.square().sum().backward()
        return path.last.q.detach(), q.grad


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_data_loader_workers(start):
    if start not in torch.multiprocessing.get_all_start_methods():
        pytest.skip(f"no {start} here")
    data = Rollouts(bd.Simulator(chain(), DT, threads=2, specialize=False))
    expected = [data[k] for k in range(len(data))]  # also starts this process's threads, which a fork must not need
    loader = torch.utils.data.DataLoader(
        data, batch_size=None, num_workers=2, multiprocessing_context=start, timeout=120
    )
    for found, right in zip(loader, expected, strict=True):
        assert same(found, right)
    assert same(data[0], expected[0])


def test_several_threads_at_once():
    """The same simulator, and others, each with forward and backward; the first calls build the kernels."""
    shared = bd.Simulator(chain(), DT, specialize=False)
    expected, found, barrier = outcome(simulator(chain)), {}, threading.Barrier(8)

    def work(k):
        sim = shared if k % 2 else bd.Simulator(chain(), DT, specialize=False)
        barrier.wait()
        found[k] = [outcome(sim) for _ in range(10)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(same(x, expected) for results in found.values() for x in results)


def test_backward_in_another_thread():
    inputs = leaves(*random_state(arm(), 3))
    path = simulator(arm).rollout(bd.State(*inputs), steps=3)
    thread = threading.Thread(target=lambda: path.q.sum().backward())
    thread.start()
    thread.join()
    expected = leaves(*random_state(arm(), 3))
    simulator(arm).rollout(bd.State(*expected), steps=3).q.sum().backward()
    assert torch.equal(inputs[0].grad, expected[0].grad)


# ---------------------------------------------------------------------------------------------- a module


def test_module_behaviour():
    sim = bd.Simulator(arm(), DT, specialize=False)
    assert isinstance(sim, nn.Module)
    assert not sim.state_dict() and not list(sim.parameters()) and not list(sim.buffers())
    sim.load_state_dict({})
    assert sim.eval() is sim and not sim.training and sim.train().training
    assert sim.to("cpu") is sim and sim.requires_grad_(False) is sim and sim.zero_grad() is None
    before = outcome(sim)
    sim.float()  # it has nothing to convert, and says its dtype when asked for a step
    assert sim.dtype == torch.float64 and same(outcome(sim), before)
    assert list(nn.ModuleList([sim]).modules())[1] is sim


def test_repr():
    text = repr(bd.Simulator(chain(), 1 / 60, integrator=bd.Midpoint(), dtype=torch.float32))
    assert text == (
        "Simulator(Model(dim=2, nbody=3, njoint=3, nq=3, nv=3, nu=1), dt=0.0166667, Midpoint(), torch.float32)"
    )


@pytest.mark.parametrize("name", ["model", "dt", "integrator", "dtype", "threads", "specialize", "nonfinite"])
def test_settings_are_fixed(name):
    """The kernels were made for them: setting one must not be silently ignored."""
    sim = bd.Simulator(chain(), DT, specialize=False)
    with pytest.raises(AttributeError, match=f"{name} is fixed: the kernels were made for it. Make another Simulator"):
        setattr(sim, name, getattr(sim, name))
    sim.remark = "other attributes are free"
    with pytest.raises(AttributeError, match="is fixed"):
        setattr(copy.deepcopy(sim), name, None)


def test_forward_hooks():
    seen = []
    sim = bd.Simulator(chain(), DT, specialize=False)
    sim.register_forward_hook(lambda module, inputs, output: seen.append(type(output)))
    sim(random_state(chain()))
    assert seen == [bd.State]
