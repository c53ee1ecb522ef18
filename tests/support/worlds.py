"""Small worlds to control, and what the tests share."""

import functools

import torch

import backdrive as bd
from backdrive.runtime.tangent import Tangent


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def random(seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


@functools.cache
def arm():
    """Two planar links with a motor each, of 3 and 2 N m."""
    scene = bd.Scene(dim=2)
    for k, (above, limit) in enumerate(((None, 3.0), ("link0", 2.0))):
        scene.add_body(f"link{k}", mass=0.5, inertia=0.02, position=(0, -0.4 * k), com=(0, -0.2))
        joint = scene.add_joint(f"joint{k}", bd.Hinge(damping=0.05), parent=above, child=f"link{k}")
        scene.add_motor(f"motor{k}", joint=joint, limits=(-limit, limit))
    return scene.build()


@functools.cache
def craft():
    """A free body in space with a rod on a ball joint, and two hinged rods with motors: quaternions of both kinds."""
    scene = bd.Scene(dim=3, gravity=(0, 0, 0))
    scene.add_body("hull", bd.Box(0.4, 0.3, 0.2), mass=2.0)
    scene.add_body("tail", mass=0.3, inertia=(0.01, 0.01, 0.01), position=(-0.3, 0, 0), com=(-0.1, 0, 0))
    scene.add_joint("ball", bd.Ball(damping=0.1), parent="hull", child="tail", anchor=(-0.2, 0, 0))
    for name, axis in (("left", (0, 0, 1)), ("right", (0, 1, 0))):
        scene.add_body(name, mass=0.4, inertia=(0.01, 0.01, 0.01), position=(0.3, 0, 0), com=(0.1, 0, 0))
        joint = scene.add_joint(f"{name} hinge", bd.Hinge(axis=axis), parent="hull", child=name, anchor=(0.2, 0, 0))
        scene.add_motor(f"{name} motor", joint=joint)
    return scene.build()


@functools.cache
def sled():
    """A box on a floor with friction, pushed by a motor along x and turned by another."""
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)), friction=0.4)
    carriage = scene.add_body("carriage", mass=0.5, inertia=0.1, position=(0, 0.3))
    slide = scene.add_joint("slide", bd.Slider(axis=(1, 0)), parent=None, child=carriage)
    foot = scene.add_body("foot", bd.Circle(0.1), mass=0.5, position=(0, 0.1), friction=0.4)
    lift = scene.add_joint("lift", bd.Slider(axis=(0, 1)), parent=carriage, child=foot)
    scene.add_motor("push", joint=slide)
    scene.add_motor("press", joint=lift)
    return scene.build()


@functools.cache
def simulator(make, dt=0.02, **settings):
    return bd.Simulator(make(), dt, **settings)


def random_state(model, batch, seed, spread=0.3):
    draw = random(seed)
    q = model.initial_state(batch).q
    return bd.State(Tangent(model).displace(q, spread * draw(batch, model.nv)), spread * draw(batch, model.nv))


class WrongGradient(torch.autograd.Function):
    """The identity, with a derivative that points the other way."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, bar):
        return -bar
