"""What is built on the gradients: identification, planning, model-predictive control, environments.

Wall-clock times (`Fit.seconds`, `Plan.seconds`) are not recorded: they differ from run to run.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import backdrive as bd

from .bounces import flat_table
from .measure import arrays_of, functional, generator, gradients, merged, random, rolled, start, status_of
from .registry import Arrays, Skipped, add, scene
from .worlds import cart_pole, walker


def fitted(found: Any) -> Arrays:
    """The numbers of a fit, and of the way to it."""
    way = found.history
    return arrays_of(
        value=found.value, std=found.std, covariance=found.covariance, interval=found.interval, loss=found.loss,
        noise=found.noise, values=found.values, losses=found.losses, update=way.update, window=way.window,
        way=way.values, way_loss=way.loss,
    ) | {"outcome": np.array(str(found.outcome)), "labels": np.array(found.labels)}  # fmt: skip


@scene
def identify_bounce() -> Arrays:
    """friction and restitution of a bouncing ball from noisy positions, in two windows"""
    from backdrive.identify import Learn, Observations, fit

    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)), friction=0.1, restitution=0.6, name="ground")
    velocity = (2.0, -1.0)
    scene.add_body(
        "ball", bd.Circle(0.1), mass=0.5, position=(0, 0.2), velocity=velocity, friction=0.1, restitution=0.6
    )
    sim = rolled(scene.build(), impacts=True)
    path = sim.rollout(sim.model.initial_state(), steps=40)
    seen = Observations.of(path, every=3, noise=0.002, generator=generator(0))
    learn = [Learn("friction", "ball", start=0.3), Learn("restitution", "ball", start=0.4)]
    return fitted(fit(sim, seen, learn=learn, windows=2))


@scene
def identify_cart() -> Arrays:
    """masses and damping of a driven cart by Levenberg-Marquardt, Gauss-Newton, descent and Adam"""
    from backdrive import identify

    model = cart_pole()
    sim = rolled(model)
    u = random((30, model.nu), seed=3).detach()
    path = sim.rollout(model.initial_state(), u)
    learn = [identify.Learn("mass", "pole", start=0.4), identify.Learn("damping", "pivot", start=0.05)]
    methods = {
        "marquardt": identify.LevenbergMarquardt(),
        "newton": identify.GaussNewton(),
        "descent": identify.GradientDescent(0.01, max_iterations=5),
        "adam": identify.TorchOptimizer(lambda z: torch.optim.Adam(z, lr=0.05), max_iterations=5),
    }
    found = {name: fitted(identify.fit(sim, path, learn, controls=u, optimizer=m)) for name, m in methods.items()}
    bounded = [
        identify.Learn("mass", "pole", bounds=(0.1, 1.0)),
        identify.Learn("damping", "pivot", bounds=(0.01, 0.1)),
    ]
    several = identify.fit(sim, path, bounded, controls=u, starts=3, generator=generator(4), check=True)
    return merged(**found, several=fitted(several))


def planned(plan: Any) -> Arrays:
    """The numbers of a plan."""
    states = arrays_of(q=plan.states.q, v=plan.states.v)
    return states | arrays_of(
        controls=plan.controls, cost=plan.cost, history=plan.history, iterations=plan.iterations, gains=plan.gains
    ) | {"outcomes": np.array([str(x) for x in plan.outcomes])}  # fmt: skip


def stage(state: bd.State, u: Tensor, t: Tensor) -> Tensor:
    """Of a step: angle, speeds and force."""
    return 0.1 * state.q[1].square() + 0.01 * state.v.square().sum() + 1e-3 * u.square().sum()


def final(state: bd.State) -> Tensor:
    """Of the end: the pole hangs at rest one metre to the right."""
    return 10.0 * (state.q[0] - 1.0).square() + 5.0 * state.q[1].square() + state.v.square().sum()


def plan_scene(method: str) -> Arrays:
    """A cart that moves by a metre with its pole at rest in the end, two environments."""
    from backdrive import control

    methods: dict[str, Any] = {
        "ilqr": control.ILQR(max_iterations=15),
        "shooting": control.Shooting("lbfgs", max_iterations=8),
        "adam": control.Shooting("adam", max_iterations=8),
        "mppi": control.MPPI(max_iterations=4, samples=32),
        "cem": control.CEM(max_iterations=4, samples=32),
    }
    model = cart_pole()
    guess = random((25, 2, 1), 0.2, seed=3).detach()
    cost = control.Cost(stage, final)
    sim = rolled(model, dt=0.03)
    given = {"generator": generator(5)} if method in ("mppi", "cem") else {}
    return planned(control.optimize(sim, cost, model.initial_state(2), guess, method=methods[method], **given))


for _method in ("ilqr", "shooting", "adam", "mppi", "cem"):
    add(f"plan-{_method}", f"controls of a cart by {_method}", partial(plan_scene, _method))


@scene
def plan_mpc() -> Arrays:
    """model-predictive control of the cart, four steps with plans of 12; and of a walker to a pose"""
    from backdrive.control import ILQR, MPC, Cost, quadratic

    model = cart_pole()
    sim = rolled(model, dt=0.03)
    mpc = MPC(sim, Cost(stage, final), horizon=12, method=ILQR(max_iterations=4))
    state = start(model, None, speed=0.2).detach()
    acts = []
    for _ in range(4):
        acts.append(mpc.act(state))
        state = sim.step(state, acts[-1])
    legged = walker()
    stepper = rolled(legged)
    goal = legged.initial_state()
    weights = torch.ones(2 * legged.nv, dtype=torch.float64)
    cost = quadratic(stepper, goal, weights, 0.01 * torch.ones(legged.nu, dtype=torch.float64), 10 * weights)
    walking = MPC(stepper, cost, horizon=8, method=ILQR(max_iterations=3))
    act = walking.act(start(legged, None, speed=0.2).detach())
    found = arrays_of(acts=torch.stack(acts), q=state.q, v=state.v, act=act)
    assert walking.plan is not None
    return found | merged(walker=planned(walking.plan))


def env_scene(task: str, steps: int) -> Arrays:
    """Steps of a batch of environments, with the gradient of the return by the actions and by the start."""
    try:
        import gymnasium  # noqa: F401
    except ImportError:
        raise Skipped("gymnasium is not installed") from None
    envs = bd.envs.VectorEnv(task, num_envs=3)
    observation, _ = envs.reset_torch(seed=3)
    size = envs.single_action_space.shape[0]
    actions = random((steps, 3, size), 0.5, seed=3)
    seen, rewards, found = [observation], [], {}
    for t in range(steps):
        observation, reward, terminated, truncated, info = envs.step_torch(actions[t])
        seen.append(observation)
        rewards.append(reward)
        found |= arrays_of(**{f"terminated{t}": terminated, f"truncated{t}": truncated})
        found |= {f"{name}{t}": x for name, x in status_of(info["path"]).items()}
    way, returns = torch.stack(seen), torch.stack(rewards)
    found |= arrays_of(observations=way, rewards=returns)
    return found | gradients(functional(way, returns), {"actions": actions})


for _task, _steps in (("CartPole", 12), ("Pendulum", 12), ("NLinkPendulum", 8), ("Hopper", 8), ("HalfCheetah", 6),
                      ("Ant", 6), ("Laikago", 4)):  # fmt: skip
    add(f"env-{_task.lower()}", f"three {_task} environments with gradients", partial(env_scene, _task, _steps))


@scene
def env_numpy() -> Arrays:
    """a single CartPole environment on numpy arrays, with a start of its own, until it ends"""
    try:
        import gymnasium  # noqa: F401
    except ImportError:
        raise Skipped("gymnasium is not installed") from None
    env = bd.envs.Env("CartPole")
    observation, _ = env.reset(seed=1)
    seen, rewards = [observation], []
    for t in range(40):
        observation, reward, terminated, _, _ = env.step(np.array([np.sin(0.7 * t) + 0.3]))
        seen.append(observation)
        rewards.append(reward)
        if terminated:
            break
    return {"observations": np.stack(seen), "rewards": np.array(rewards)}


@scene
def env_task() -> Arrays:
    """an environment of a bouncing world of one's own, which starts where it is told"""
    try:
        import gymnasium  # noqa: F401
    except ImportError:
        raise Skipped("gymnasium is not installed") from None
    scene_model = flat_table()
    task = bd.envs.Task(
        name="Table", model=scene_model, dt=0.01, frame_skip=3,
        start=lambda random, count: scene_model.initial_state(count),
        observe=lambda state: torch.cat([state.q, state.v], -1),
        reward=lambda before, action, after: {"place": -after.q[:, 0].square()},
        ends=lambda state: state.q[:, 0].abs() > 3.0,
        settings={"specialize": False},
    )  # fmt: skip
    env = bd.envs.Env(task)
    state = start(scene_model, None, speed=0.1)
    env.reset_torch(options={"state": state})
    total = torch.zeros((), dtype=torch.float64)
    for _ in range(6):
        observation, reward, _, _, _ = env.step_torch(torch.zeros(0, dtype=torch.float64))
        total = total + reward
    found = arrays_of(observation=observation, total=total)
    return found | gradients(functional(total, observation), {"q": state.q, "v": state.v})
