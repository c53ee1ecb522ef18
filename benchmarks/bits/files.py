"""Recorded arrays on disk, their digests, and the comparison to the bit."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np

from .registry import Arrays


def save(path: Path, recorded: dict[str, Arrays]) -> None:
    """Write all arrays under "scene/array"; the file appears only when it is complete."""
    flat = {f"{scene}/{name}": x for scene, arrays in sorted(recorded.items()) for name, x in arrays.items()}
    unfinished = path.with_suffix(".unfinished.npz")
    np.savez_compressed(unfinished, **flat)  # type: ignore[arg-type]
    os.replace(unfinished, path)


def load(path: Path) -> dict[str, Arrays]:
    """The arrays of every scene."""
    recorded: dict[str, Arrays] = {}
    with np.load(path) as file:
        for key in file.files:
            scene, name = key.split("/", 1)
            recorded.setdefault(scene, {})[name] = file[key]
    return recorded


def load_digests(path: Path) -> dict[str, str]:
    """The hash of every scene, as the command `digest` printed it."""
    return json.loads(path.read_text())


def digest(x: np.ndarray) -> str:
    """A hash over type, shape and bits; all numbers that are not a number (NaN) count as the same one."""
    if np.issubdtype(x.dtype, np.floating):
        x = np.where(np.isnan(x), np.array(np.nan, x.dtype), x)
    head = f"{x.dtype.str} {x.shape} ".encode()
    return hashlib.sha256(head + np.ascontiguousarray(x).tobytes()).hexdigest()


def difference(old: np.ndarray, new: np.ndarray) -> str:
    """How two arrays differ, in words; empty if they are identical to the bit."""
    if old.dtype != new.dtype or old.shape != new.shape:
        return f"is {new.dtype} {list(new.shape)}, was {old.dtype} {list(old.shape)}"
    if digest(old) == digest(new):
        return ""
    if not np.issubdtype(old.dtype, np.number) and old.dtype != np.bool_:
        return f"{int((old != new).sum())} of {old.size} texts"
    a, b = (np.atleast_1d(x.astype(np.float64)) for x in (old, new))
    with np.errstate(all="ignore"):
        apart = np.abs(b - a)
        apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0  # also where both are the same infinity
        apart[np.isnan(apart)] = np.inf  # a number on one side only
        size = np.maximum(np.abs(a), np.abs(b))
        relative = np.where(apart > 0.0, apart / size, 0.0)
        relative[np.isnan(relative)] = np.inf
    if not apart.any():
        return "signs of zeros differ"
    count = int((apart > 0).sum())
    return f"{count} of {apart.size} numbers, by {apart.max():.2g} at most ({relative.max():.2g} relative)"


def differences(old: Arrays, new: Arrays) -> list[str]:
    """One entry for each array that differs between two recordings of a scene."""
    found = [f"{name}: {text}" for name in old if name in new and (text := difference(old[name], new[name]))]
    return found + _missing(set(old), set(new))


def scene_digest(arrays: Arrays) -> str:
    """A hash over the names and the bits of all arrays of a scene."""
    lines = [f"{name} {digest(x)}\n" for name, x in sorted(arrays.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def digest_differences(old: str, new: Arrays) -> list[str]:
    """As `differences`, where only the hash of the old scene is known."""
    return [] if scene_digest(new) == old else ["the arrays are not identical; compare with a recording for details"]


def _missing(old: set[str], new: set[str]) -> list[str]:
    return [f"{x}: no longer there" for x in sorted(old - new)] + [f"{x}: was not there" for x in sorted(new - old)]
