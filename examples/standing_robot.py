"""A robot drops onto its feet and stands: the forces at its feet, and a check of its gradients.

A quadruped of twelve joints, each held by a position servo, falls a few centimetres, lands and comes to rest. The
contact forces come with the rollout, and are differentiable like everything else. `backdrive.gradcheck` then compares
the gradients of every single step of that motion with finite differences.

    python examples/standing_robot.py [--out results]
"""

from __future__ import annotations

from pathlib import Path

import torch
from helper import arguments, film, plt, save, written
from rich.console import Console

import backdrive as bd

DT, STEPS = 0.002, 500
THIGH, SHANK, FOOT = 0.22, 0.22, 0.025  # m
STANCE = (0.0, 0.7, -1.4)  # rad: hip sideways, hip, knee
LEGS = {"front left": (0.2, 0.1), "front right": (0.2, -0.1), "rear left": (-0.2, 0.1), "rear right": (-0.2, -0.1)}


def build_robot() -> bd.Model:
    """The legs are straight where joint angles are zero; only the feet and the trunk can touch the ground."""
    scene = bd.Scene(dim=3)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1)), friction=0.8, name="ground")
    trunk = scene.add_body("trunk", bd.Box(0.5, 0.2, 0.1), mass=9.0, position=(0.0, 0.0, 0.6))
    servo = bd.PositionServo(kp=120.0, kv=4.0)
    for leg, (x, y) in LEGS.items():
        parts = (("hip", (1, 0, 0), 0.0, 0.7), ("thigh", (0, 1, 0), THIGH, 1.0), ("shank", (0, 1, 0), SHANK, 0.3))
        height, parent = 0.6, trunk
        for part, axis, length, mass in parts:
            name = f"{leg} {part}"
            center = (x, y, height - length / 2)
            scene.add_body(name, mass=mass, position=center, inertia=_rod(mass, length))
            if part == "shank":
                scene.add_shape(name, bd.Sphere(FOOT), position=(0.0, 0.0, -length / 2), friction=0.8)
            scene.add_joint(name, bd.Hinge(axis=axis, armature=0.01), parent=parent, child=name, anchor=(x, y, height))
            scene.add_motor(name, servo, joint=name)
            height, parent = height - length, name
    return scene.build()


def _rod(mass: float, length: float) -> tuple[float, float, float]:
    """Moments of inertia of a rod along z, 3 cm thick, kg m²."""
    across = mass * (length**2 / 12 + 0.015**2 / 4)
    return (across, across, mass * 0.015**2 / 2)


def drop() -> bd.Trajectory:
    """The motion, from a few centimetres above the ground."""
    model = build_robot()
    pose = torch.tensor(STANCE * 4, dtype=torch.float64)
    start = model.initial_state()
    start.q[2], start.q[7:] = 0.40, pose
    return bd.Simulator(model, DT).rollout(start, pose.expand(STEPS, model.nu))


def stand(console: Console) -> dict:
    path = drop()
    model = path.model
    weight = float(model.parameter("mass").sum()) * 9.81
    total = path.contacts.force[-1, :, 2].sum()
    console.print(f"{path}")
    console.print(f"{path.contacts}; they carry {total:.4f} N of a weight of {weight:.4f} N")
    report = bd.gradcheck(path.simulator, path[0], path.controls)
    console.print(str(report), highlight=False)
    return {"model": model, "path": path, "report": report, "weight": weight}


def draw(result: dict, picture: Path) -> None:
    path, forces = result["path"], result["path"].contacts
    figure = plt.figure(figsize=(13, 4.4), constrained_layout=True)
    scene = figure.add_subplot(1, 3, 1, projection="3d")
    trunk, axes = path.position("trunk")[-1], path.rotation("trunk")[-1]
    corners = torch.tensor([(0.25, 0.1), (0.25, -0.1), (-0.25, -0.1), (-0.25, 0.1), (0.25, 0.1)], dtype=torch.float64)
    outline = trunk + torch.cat([corners, torch.zeros(5, 1, dtype=torch.float64)], 1) @ axes.T
    scene.plot(*outline.T, color="0.2", lw=4)
    for leg in LEGS:
        joints = [path.position(f"{leg} hip")[-1]]
        for part, length in (("thigh", THIGH), ("shank", SHANK)):
            down = path.rotation(f"{leg} {part}")[-1, :, 2] * length / 2
            center = path.position(f"{leg} {part}")[-1]
            joints += [center + down, center - down]
        scene.plot(*torch.stack(joints).T, color="0.35", lw=3, marker="o", ms=4)
    for force, point in zip(forces.force[-1], forces.point[-1], strict=True):
        if force.norm() > 0:
            arrow = force / result["weight"] * 0.8
            scene.quiver(*point, *arrow, color="tab:red", lw=2.5, arrow_length_ratio=0.15)
            scene.text(*(point + arrow), f"{force[2]:.0f} N", color="tab:red", fontsize=9)
    scene.set(xlim=(-0.35, 0.35), ylim=(-0.35, 0.35), zlim=(0, 0.7), box_aspect=(1, 1, 1), title="standing")
    scene.view_init(elev=12, azim=-65)
    time = path.time[1:]
    carried = figure.add_subplot(1, 3, 2)
    for (shape, _), force in zip(forces.pairs, forces.force.unbind(1), strict=True):
        if force.abs().max() > 0:
            carried.plot(time, force[:, 2], lw=1, label=shape.removesuffix(" shank"))
    carried.plot(time, forces.force[..., 2].sum(1), color="0.2", lw=2, label="sum")
    carried.axhline(result["weight"], color="tab:red", ls=":", label="weight")
    carried.set(xlabel="time (s)", ylabel="vertical contact force (N)", ylim=(0, 4 * result["weight"]), title="landing")
    carried.legend(fontsize=8)
    check = figure.add_subplot(1, 3, 3)
    for name, errors in result["report"].steps.items():
        kept = [t for t in range(len(errors)) if t not in result["report"].switched]
        check.semilogy(time[kept], errors[kept].clamp_min(1e-16), ".", ms=3, label=f"with respect to {name}")
    check.axhline(result["report"].tolerance, color="0.6", ls=":")
    check.set(xlabel="time (s)", ylabel="relative error", title="gradient of each step against differences")
    check.legend(fontsize=8)
    save(figure, picture)


def main() -> None:
    options, console = arguments(__doc__), Console()
    picture, motion = options.out / "standing_robot.png", options.out / "standing_robot.mp4"
    result = stand(console)
    draw(result, picture)
    film(result["path"], motion, speed=0.5)
    written(console, picture, motion)


if __name__ == "__main__":
    main()
