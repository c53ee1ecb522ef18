"""Trajectories in files (.bd): what `Trajectory.save` writes and `Trajectory.load` reads.

A file is a zip archive of arrays (.npy) and of ``header.json``, so that ``numpy.load`` opens it, without torch and
without this package: ``q``, ``v``, ``time``, ``controls``, ``status``, and, if the rollout had them, ``wrenches`` and
``constants``. The header has the format and its version, dt, names, and everything of the model and the simulator that
is no array; other arrays are those of the model. docs/viewing.md describes it. Nothing in it is code.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._version import __version__
from .model import Model, looks, shapes, soft
from .model.files.records import Reader, Writer
from .physics.integrators import INTEGRATORS
from .physics.soft.options import MuJoCo
from .physics.solvers import SOLVERS
from .runtime.result import RolloutResult
from .schema.signatures import RolloutSettings
from .simulator import Simulator
from .trajectory import RolloutInputs, Trajectory

Array = np.ndarray

FORMAT, VERSION, SUFFIX = "backdrive trajectory", 1, ".bd"
_SETTINGS = ("solver", "integrator", "impacts", "pyramid", "bounce_threshold", "sparse")  # of rigid physics
_RECORDS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        Model, MuJoCo, RolloutSettings, *INTEGRATORS, *SOLVERS, shapes.PlacedShape,
        shapes.Box, shapes.Capsule, shapes.Circle, shapes.Convex, shapes.Cylinder, shapes.Ellipsoid, shapes.HalfSpace,
        shapes.Polygon, shapes.Sphere, looks.FileCamera, looks.Looks, looks.Mesh, looks.Site, looks.Texture,
        looks.Visual, soft.Combination, soft.Coupling, soft.Rope, soft.SoftOptions, soft.Swing, soft.Tendon,
    )
}  # fmt: skip


def save(path: Trajectory, file: str | os.PathLike[str]) -> None:
    """Write a trajectory without rounding."""
    target = Path(file)
    if target.suffix.lower() != SUFFIX:
        raise ValueError(f"a trajectory is saved in a {SUFFIX} file, got {str(target)!r}")
    simulator, inputs = path.simulator, path._inputs
    writer = Writer(_RECORDS)
    arrays = {"q": path.q, "v": path.v, "time": path.time, "controls": inputs.controls, "status": path._numbers}
    arrays |= {k: x for k, x in (("wrenches", inputs.wrenches), ("constants", inputs.constants)) if x is not None}
    settings = {name: getattr(simulator, name) for name in ("physics", "specialize", "nonfinite")}
    if simulator.physics == "rigid":
        settings |= {name: getattr(simulator, name) for name in _SETTINGS}
    header = {
        "format": FORMAT, "version": VERSION, "backdrive": __version__,
        "dt": simulator.dt, "dtype": str(simulator.dtype).removeprefix("torch."), "batched": path.q.ndim == 3,
        "bodies": list(path.model.bodies), "joints": list(path.model.joints), "motors": list(path.model.motors),
        "fingerprint": path.model.fingerprint, "parameters": inputs.parameters,
        "rollout": writer.value(inputs.settings, "rollout"),
        "simulator": {name: writer.value(value, f"simulator.{name}") for name, value in settings.items()},
        "model": writer.value(path.model, "model"),
    }  # fmt: skip
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("header.json", json.dumps(header, allow_nan=False, indent=1))
            for name, tensor in arrays.items():
                _write(archive, name, tensor.detach().cpu().numpy())
            for name, array in writer.arrays.items():
                _write(archive, name, array)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def load(file: str | os.PathLike[str]) -> Trajectory:
    """The trajectory that `save` wrote, on the CPU, with the same bits."""
    source = Path(file)
    if not source.is_file():
        raise FileNotFoundError(f"no such file: {source}")
    try:
        with zipfile.ZipFile(source) as archive:
            return _trajectory(_Archive(archive))
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise ValueError(f"{source}: not a backdrive trajectory, or damaged: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(f"{source}: not a backdrive trajectory: {error}") from None


def _write(archive: zipfile.ZipFile, name: str, array: Array) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
        np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)


class _Archive:
    """The entries of a file."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive, self._names = archive, set(archive.namelist())
        self._read: dict[str, Array] = {}

    def header(self) -> dict[str, Any]:
        if "header.json" not in self._names:
            raise ValueError("it has no header.json")
        try:
            header = json.loads(self._archive.read("header.json"))
        except json.JSONDecodeError as error:
            raise ValueError(f"header.json: {error}") from None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError(f"the format in header.json must be {FORMAT!r}")
        if header.get("version") != VERSION:
            raise ValueError(f"it has version {header.get('version')!r}, and this backdrive reads version {VERSION}")
        for name in ("dt", "dtype", "batched", "fingerprint", "parameters", "rollout", "simulator", "model"):
            if name not in header:
                raise ValueError(f"header.json has no {name!r}")
        return header

    def has(self, name: str) -> bool:
        return f"{name}.npy" in self._names

    def array(self, name: str) -> Array:
        if name not in self._read:
            if not self.has(name):
                raise ValueError(f"it has no array {name!r}")
            self._read[name] = np.lib.format.read_array(
                io.BytesIO(self._archive.read(f"{name}.npy")), allow_pickle=False
            )
        return self._read[name]

    def tensor(self, name: str, dtype: torch.dtype, shape: tuple[int | None, ...]) -> Tensor:
        """An array with the sizes of a shape; None: any."""
        tensor = torch.from_numpy(self.array(name))
        fits = tensor.ndim == len(shape) and all(n in (m, None) for n, m in zip(shape, tensor.shape, strict=True))
        if not fits or tensor.dtype != dtype:
            wanted = ", ".join("*" if n is None else str(n) for n in shape)
            raise ValueError(f"{name} must be [{wanted}] of {dtype}, got {list(tensor.shape)} of {tensor.dtype}")
        return tensor


def _trajectory(archive: _Archive) -> Trajectory:
    header = archive.header()
    reader = Reader(_RECORDS, archive.array)
    model = _model(reader.value(header["model"], "model"), header["fingerprint"])
    dtype = {"float64": torch.float64, "float32": torch.float32}.get(header["dtype"])
    if dtype is None:
        raise ValueError(f"dtype must be float64 or float32, got {header['dtype']!r}")
    settings = reader.value(header["rollout"], "rollout")
    if not isinstance(settings, RolloutSettings) or not all(isinstance(n, int) and n >= 0 for n in settings):
        raise ValueError("rollout must be the settings of a rollout")
    simulator = _simulator(model, header, dtype, reader)
    batch = (archive.array("q").shape[1],) if header["batched"] else ()
    states = settings.segments + 1
    path = (
        archive.tensor("q", dtype, (states, *batch, model.nq)),
        archive.tensor("v", dtype, (states, *batch, model.nv)),
    )
    status = archive.tensor("status", dtype, (settings.steps, *batch, simulator._program.status_size))
    wide = (settings.steps, *(batch or (1,)))
    controls = archive.tensor("controls", dtype, (*wide, model.nu))
    wrenches = archive.tensor("wrenches", dtype, (*wide, 6 * model.nlink)) if archive.has("wrenches") else None
    constants = None
    if archive.has("constants"):
        rows = batch if archive.array("constants").ndim == 2 else ()
        constants = archive.tensor("constants", dtype, (*rows, model.nconst))
    motion = RolloutResult(path, tuple(x[-1] for x in path), status)
    return Trajectory(
        simulator, motion, RolloutInputs(settings, controls, wrenches, constants, str(header["parameters"]))
    )


def _model(read: Any, fingerprint: Any) -> Model:
    if not isinstance(read, Model):
        raise ValueError("model must be a model")
    model = Model(**{field.name: getattr(read, field.name) for field in dataclasses.fields(Model)})
    if model.fingerprint != fingerprint:
        raise ValueError("the tables of the model are not those that were saved (their fingerprint differs)")
    return model


def _simulator(model: Model, header: Mapping[str, Any], dtype: torch.dtype, reader: Reader) -> Simulator:
    given = {name: reader.value(value, f"simulator.{name}") for name, value in header["simulator"].items()}
    known = ("physics", "specialize", "nonfinite", *_SETTINGS)
    if wrong := [name for name in given if name not in known]:
        raise ValueError(f"simulator has the unknown setting {wrong[0]!r}")
    make: Callable[..., Simulator] = Simulator
    return make(model, header["dt"], dtype=dtype, **given)
