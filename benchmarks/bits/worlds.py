"""Worlds that several parts use: a walker in the plane, a robot in space, both with motors, limits and contact."""

from __future__ import annotations

import backdrive as bd


def walker(restitution: float = 0.0) -> bd.Model:
    """A trunk with two legs of two links each above the ground, in the plane, driven by servos."""
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)), friction=0.8, restitution=restitution, name="ground")
    scene.add_body("trunk", bd.Box(0.6, 0.2), mass=3.0, position=(0.0, 0.72))
    for side, x in (("left", -0.2), ("right", 0.2)):
        scene.add_body(f"{side}_thigh", bd.Box(0.08, 0.3), mass=0.5, position=(x, 0.47))
        scene.add_body(f"{side}_shin", bd.Polygon([(-0.04, 0.15), (0.04, 0.15), (0.02, -0.15), (-0.02, -0.15)]),
                       mass=0.3, position=(x, 0.17))  # fmt: skip
        hip = bd.Hinge(damping=0.2, limits=(-0.6, 0.6), armature=0.01)
        scene.add_joint(f"{side}_hip", hip, parent="trunk", child=f"{side}_thigh", anchor=(x, 0.62))
        knee = bd.Hinge(damping=0.2, friction=0.05)
        scene.add_joint(f"{side}_knee", knee, parent=f"{side}_thigh", child=f"{side}_shin", anchor=(x, 0.32))
        scene.add_motor(f"{side}_hip", bd.PositionServo(kp=20.0, kv=1.0), joint=f"{side}_hip")
        scene.add_motor(f"{side}_knee", joint=f"{side}_knee", gear=3.0, limits=(-1, 1))
    return scene.build()


def robot() -> bd.Model:
    """A box on three legs of capsules in space, driven by torque motors, which lands on its feet."""
    scene = bd.Scene(dim=3)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1)), friction=0.8, name="ground")
    scene.add_body("trunk", bd.Box(0.4, 0.4, 0.1), mass=3.0, position=(0.0, 0.0, 0.45))
    for k, (x, y) in enumerate(((0.2, 0.0), (-0.15, 0.15), (-0.15, -0.15))):
        scene.add_body(f"leg{k}", bd.Capsule(0.04, 0.3), mass=0.4, position=(x, y, 0.2))
        hip = bd.Hinge(axis=(0, 1, 0), damping=0.2, limits=(-0.5, 0.5))
        scene.add_joint(f"hip{k}", hip, parent="trunk", child=f"leg{k}", anchor=(x, y, 0.4))
        scene.add_motor(f"drive{k}", joint=f"hip{k}", gear=2.0, limits=(-1, 1))
    return scene.build()


def cart_pole() -> bd.Model:
    """A cart with a pole that hangs down, without contact."""
    scene = bd.Scene(dim=2)
    scene.add_body("cart", mass=1.0, inertia=0.1)
    scene.add_body("pole", mass=0.3, inertia=0.02, com=(0.0, -0.4))
    scene.add_joint("rail", bd.Slider(axis=(1, 0), damping=0.1), child="cart")
    scene.add_joint("pivot", bd.Hinge(damping=0.02), parent="cart", child="pole", position=0.4)
    scene.add_motor("push", joint="rail", limits=(-6, 6))
    return scene.build()
