"""Models as tables, and the conventions of the tables spelled out."""

from typing import Any

import numpy as np

import backdrive.model as bd
from backdrive.model import Kind
from backdrive.model.rotations import about_axis, about_z, from_quaternion
from backdrive.schema import layout
from backdrive.schema.layout import LINK


def motor_records(model: bd.Model, constants: Any = None) -> Any:
    """[nu, MOTOR]"""
    return _table(model, constants, layout.motor_start(model.nlink, model.nq), model.nu, layout.MOTOR)


def shape_records(model: bd.Model) -> Any:
    """[nshape, SHAPE]"""
    return _table(model, None, layout.shape_start(model.nlink, model.nq, model.nu), model.nshape, layout.SHAPE)


def equality_records(model: bd.Model) -> Any:
    """[nequality, EQUALITY]"""
    start = layout.equality_start(model.nlink, model.nq, model.nu, model.nshape, model.nlimit, model.nfriction)
    return _table(model, None, start, model.nequality, layout.EQUALITY)


def _table(model: bd.Model, constants: Any, start: int, count: int, width: int) -> Any:
    values = model.constants if constants is None else constants
    return values[start : start + count * width].reshape(count, width)


def kinematics(model: bd.Model, q: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """World position and rotation of every link: the convention of the tables, spelled out."""
    poses: list[tuple[np.ndarray, np.ndarray]] = []
    for i, kind in enumerate(model.kind):
        record = model.constants[i * LINK : (i + 1) * LINK]
        offset, base = record[layout.OFFSET :][:3], record[layout.ROTATION :][:9].reshape(3, 3)
        anchor, axis = record[layout.ANCHOR :][:3], record[layout.AXIS :][:3]
        x = q[model.qadr[i] :][: layout.NQ[kind]]
        position, rotation = offset, base
        if kind == Kind.HINGE:
            rotation = base @ about_axis(axis, x[0])
            position = offset + base @ anchor - rotation @ anchor
        elif kind == Kind.SLIDER:
            position = offset + base @ axis * x[0]
        elif kind == Kind.BALL:
            rotation = base @ from_quaternion(x)
            position = offset + base @ anchor - rotation @ anchor
        elif kind == Kind.PLANAR:
            rotation, position = base @ about_z(x[2]), offset + base @ [x[0], x[1], 0.0]
        elif kind == Kind.FREE:
            position, rotation = x[:3], from_quaternion(x[3:])
        if model.parent[i] >= 0:
            above, turned = poses[model.parent[i]]
            position, rotation = above + turned @ position, turned @ rotation
        poses.append((position, rotation))
    return poses
