"""Motors: torque, position and velocity servos, gears, clipped controls and forces."""

from __future__ import annotations

import torch

import backdrive as bd

from .measure import merged, motion, parameters_of, rolled, start
from .registry import Arrays, scene


def arm(dim: int, motor: bd.Motor) -> bd.Model:
    """A cart on a rail with a pole on it, each of them driven by the same kind of motor."""
    scene = bd.Scene(dim=dim)
    if dim == 2:
        scene.add_body("cart", bd.Box(0.4, 0.2), mass=1.0)
        scene.add_body("pole", bd.Box(0.05, 0.8), mass=0.4, position=(0.0, 0.4))
        scene.add_joint("rail", bd.Slider(axis=(1, 0), damping=0.1), child="cart")
        scene.add_joint("pivot", bd.Hinge(damping=0.02), parent="cart", child="pole", anchor=(0.0, 0.0))
    else:
        scene.add_body("cart", bd.Box(0.4, 0.3, 0.2), mass=1.0)
        scene.add_body("pole", bd.Capsule(0.05, 0.8), mass=0.4, position=(0.0, 0.0, 0.4))
        scene.add_joint("rail", bd.Slider(axis=(1, 0, 0), damping=0.1), child="cart")
        hinge = bd.Hinge(axis=(0, 1, 0), damping=0.02)
        scene.add_joint("pivot", hinge, parent="cart", child="pole", anchor=(0.0, 0.0, 0.0))
        scene.exclude("cart", "pole")
    scene.add_motor("push", motor, joint="rail")
    scene.add_motor("turn", motor, joint="pivot")
    return scene.build()


def driven(motor: bd.Motor, scale: float) -> Arrays:
    """Random controls of this scale (N m | N, rad | m, rad/s | m/s) in both dimensions, by both integrators."""
    found = {}
    for dim in (2, 3):
        model = arm(dim, motor)
        for name, integrator in (("euler", bd.SemiImplicitEuler()), ("midpoint", bd.Midpoint())):
            sim = rolled(model, integrator=integrator)
            given = parameters_of(model, "all", 3)
            found[f"{name}{dim}d"] = motion(sim, start(model, 3), steps=25, controls=scale, parameters=given)
    return merged(**found)


@scene
def motor_torque() -> Arrays:
    """torque motors with a gear, without limits"""
    return driven(bd.Motor(gear=2.0), 1.0)


@scene
def motor_clipped_control() -> Arrays:
    """torque motors whose random controls are clipped in most steps"""
    return driven(bd.Motor(gear=1.5, limits=(-0.5, 0.8)), 1.5)


@scene
def motor_clipped_force() -> Arrays:
    """position servos whose controls and forces are both clipped"""
    return driven(bd.PositionServo(kp=20.0, kv=1.0, limits=(-0.6, 0.5), force_limits=(-3.0, 4.0)), 0.6)


@scene
def motor_position_servo() -> Arrays:
    """position servos with and without a gear"""
    with_gear = driven(bd.PositionServo(kp=15.0, kv=2.0, gear=1.3), 0.4)
    return merged(gear=with_gear, plain=driven(bd.PositionServo(kp=15.0), 0.4))


@scene
def motor_velocity_servo() -> Arrays:
    """velocity servos with a limit of force"""
    return driven(bd.VelocityServo(kv=4.0, force_limits=(-5.0, 5.0)), 1.0)


@scene
def motor_planar() -> Arrays:
    """motors of all kinds on the three degrees of freedom of a free body in 2D, on the ground"""
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)), friction=0.3)
    scene.add_body("sledge", bd.Box(0.4, 0.2), mass=1.0, position=(0.0, 0.101))
    scene.add_motor("push", joint="sledge", dof="x", gear=5.0, limits=(-1, 1))
    scene.add_motor("lift", bd.PositionServo(kp=30.0, kv=1.0), joint="sledge", dof="y")
    scene.add_motor("turn", bd.VelocityServo(kv=0.5), joint="sledge", dof="angle")
    model = scene.build()
    given = parameters_of(model, ("gear", "kp", "kv", "mass", "friction"))
    return motion(rolled(model), start(model, 3), steps=30, controls=1.0, parameters=given, forces=True)


@scene
def motor_shared_controls() -> Arrays:
    """one sequence of controls [T, nu] for all environments, its gradient the sum over them"""
    model = arm(2, bd.Motor(gear=2.0, limits=(-1, 1)))
    controls = torch.linspace(-1.5, 1.5, 50, dtype=torch.float64).reshape(25, 2).requires_grad_()
    return motion(rolled(model), start(model, 9), steps=25, controls=controls)
