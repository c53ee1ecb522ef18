"""A motion that is wrong, on disk: its scene, its inputs, and how it was found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

import backdrive as bd

from .families import FAMILIES
from .gradients import Functional
from .motions import Motions
from .worlds import World


def save(folder: Path, how: dict[str, Any], functional: Functional) -> str:
    """Write a motion (and its direction and cotangent) to a folder of its own; returns its path."""
    motions, family = functional.motions, FAMILIES[how["family"]]
    at = folder / f"{how['part']}-{how['family']}-{how['number']}-{how['world']}-{how['motion']}"
    at.mkdir(parents=True, exist_ok=True)
    motions.world.scene.save(at / "scene.json")
    tensors = {
        "q": motions.start.q, "v": motions.start.v, "controls": motions.controls, "wrenches": motions.wrenches,
        "parameters": motions.parameters, "direction": functional.direction, "cotangent": functional.cotangent,
    }  # fmt: skip
    torch.save(tensors, at / "motion.pt")
    settings = how | {"family name": family.name, "dt": motions.dt, "step": functional.step}
    (at / "how.json").write_text(json.dumps(settings, indent=1) + "\n")
    return str(at)


def load(at: Path) -> tuple[dict[str, Any], Functional]:
    """How it was found, and the motion."""
    how = json.loads((at / "how.json").read_text())
    scene, x = bd.Scene.load(at / "scene.json"), torch.load(at / "motion.pt")
    family = next(family for family in FAMILIES if family.name == how["family name"])
    world = World(scene, scene.build(), lambda draw: (scene.build().q0, scene.build().v0))
    state = bd.State(x["q"], x["v"])
    motions = Motions(family, world, how["dt"], state, x["controls"], x["wrenches"], x["parameters"])
    return how, Functional(motions, x["direction"], x["cotangent"], how["step"])
