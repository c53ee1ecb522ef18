"""The cache on disk saves tracing and compiling, trusts nothing that others could have written, and survives damage.

A kernel has two files: a link under its own key, and the code under the hash of its LLVM IR.
"""

import hashlib
import json
import multiprocessing
import os
import sys
import warnings
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from backdrive.backends import Kernel, LlvmCpu, Rows, run
from backdrive.backends.llvm_cpu import cache as disk
from backdrive.backends.llvm_cpu.target import host

posix = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKDRIVE_CACHE", str(tmp_path / "cache"))
    disk._warn_once.cache_clear()
    return tmp_path / "cache"


@pytest.fixture
def compiled(monkeypatch):
    """A list that is as long as there were compilations."""
    done, emit = [], llvm.TargetMachine.emit_object

    def counted(machine, module):
        done.append(module.name)
        return emit(machine, module)

    monkeypatch.setattr(llvm.TargetMachine, "emit_object", counted)
    return done


class Traced(list):
    """A kernel y = factor x, made anew each time; notes when its body is traced."""

    def build(self, factor=2.0, name="cached", key="k", bits=64, lanes=2, unroll=False, **options):
        def body(x, y, **_):
            self.append(factor)
            y[0] = factor * x[0]

        arguments = options.pop("arguments", [Rows("x"), Rows("y", writable=True)])
        return Kernel(name, arguments, body, unroll=unroll, key=key).build(bits, lanes, **options)

    def result(self, **options):
        """What the kernel makes of 3."""
        x, y = np.full((1, 1), 3.0), np.zeros((1, 1))
        run(self.build(**options), 1, 1, {"x": (x.ctypes.data, 1, 0), "y": (y.ctypes.data, 1, 0)})
        return y[0, 0]


def entries(folder):
    return [p for p in folder.iterdir() if len(p.name) == 64]


def header(path):
    return json.loads(path.read_bytes()[len(disk._MAGIC) + 64 :].split(b"\n")[0])


def written(path, header, code=b""):
    """Write a file with a sound checksum."""
    payload = header + b"\n" + code
    path.write_bytes(disk._MAGIC + hashlib.sha256(payload).hexdigest().encode() + payload)


def link(folder):
    """The one link that there is."""
    (path,) = (p for p in entries(folder) if "code" in header(p))
    return path


def code(folder):
    """The one file of machine code that there is."""
    (path,) = (p for p in entries(folder) if "code" not in header(p))
    return path


BOTH = pytest.mark.parametrize("kind", [link, code])
"""Of the two files of a kernel, one after the other."""


def test_a_hit_is_not_traced(folder, compiled):
    traced = Traced()
    assert traced.result() == 6.0 and len(traced) == len(compiled) == 1
    assert len(entries(folder)) == len(list(folder.iterdir())) == 2
    assert traced.result() == 6.0 and len(traced) == len(compiled) == 1


def test_a_change_of_the_source_that_leaves_the_code_as_it_is(folder, compiled, monkeypatch):
    """It is traced again, but not compiled; the next time it is not even traced."""
    traced = Traced()
    traced.result()
    before = code(folder).read_bytes()
    monkeypatch.setattr(disk, "_source_hash", lambda: "changed")
    assert traced.result() == 6.0 and len(traced) == 2 and len(compiled) == 1
    assert traced.result() == 6.0 and len(traced) == 2 and len(compiled) == 1
    links = [p for p in entries(folder) if "code" in header(p)]
    assert len(links) == 2 and {header(p)["code"] for p in links} == {code(folder).name}
    assert code(folder).read_bytes() == before and len(entries(folder)) == 3


def test_a_change_of_the_source_that_changes_the_code(folder, compiled, monkeypatch):
    traced = Traced()
    traced.result()
    monkeypatch.setattr(disk, "_source_hash", lambda: "changed")
    assert traced.result(factor=5.0) == 15.0 and len(traced) == 2 and len(compiled) == 2
    assert len(entries(folder)) == 4


def test_kernels_of_the_same_code_share_it(folder, compiled):
    traced = Traced()
    traced.result(key="one")
    assert traced.result(key="other") == 6.0 and len(traced) == 2 and len(compiled) == 1
    assert len(entries(folder)) == 3


def test_scratch_sizes_and_operations_are_kept():
    from kernel_helpers import launch

    from backdrive import backends
    from backdrive import ir as bd

    def body(y, n):
        w = bd.memory(n * 3 + 1)
        v = bd.memory(np.int64(2))
        for k in bd.loop(n * 3 + 1):
            w[k] = bd.to_float(k)
        v[1] = 5.0
        y[0] = w[n * 3] + v[1]

    def make():
        return Kernel("sizes", [Rows("y", writable=True), backends.Integer("n")], body, key="sizes")

    first, again = make(), make()
    for kernel in (first, again):
        y = np.zeros((3, 1))
        launch(kernel, 3, lanes=4, y=y, n=2)
        assert (y == 11.0).all()
        assert kernel.build(lanes=4).scratch_bytes((2,)) == 9 * 4 * 8
    assert first.build(lanes=4).operations == again.build(lanes=4).operations > 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:10],
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: content + b"x",
        lambda content: b"X" + content[1:],
        lambda content: content[:-20] + bytes([content[-20] ^ 1]) + content[-19:],
        lambda content: content[:25] + bytes([content[25] ^ 1]) + content[26:],
        lambda content: bytes(len(content)),
        lambda content: os.urandom(len(content)),
    ],
)
@BOTH
def test_damaged_files_are_written_anew(folder, compiled, kind, damage):
    """A kernel is traced again if either file is damaged, and compiled again if its code is."""
    traced = Traced()
    traced.result()
    path = kind(folder)
    content = path.read_bytes()
    path.write_bytes(damage(content))
    assert traced.result() == 6.0 and len(traced) == 2 and len(compiled) == (1 if kind is link else 2)
    assert path.read_bytes() == content
    assert traced.result() == 6.0 and len(traced) == 2  # and written again


@BOTH
def test_a_missing_file(folder, compiled, kind):
    traced = Traced()
    traced.result()
    kind(folder).unlink()
    assert traced.result() == 6.0 and len(traced) == 2 and len(compiled) == (1 if kind is link else 2)
    assert len(entries(folder)) == 2


@BOTH
def test_a_file_under_the_name_of_another_is_not_taken(folder, kind):
    traced = Traced()
    traced.result(factor=5.0, key="other")
    other = kind(folder).read_bytes()
    before = set(entries(folder))
    traced.result()
    (own,) = (p for p in entries(folder) if p not in before and ("code" in header(p)) == (kind is link))
    own.write_bytes(other)
    assert traced.result() == 6.0 and len(traced) == 3


def test_a_link_to_the_code_of_another_kernel_is_believed(folder):
    """Whoever can write links can write code as well: the key of a link says nothing about its code."""
    traced = Traced()
    traced.result()
    own = link(folder)
    traced.result(factor=5.0, key="other")
    (other,) = (p for p in entries(folder) if "code" not in header(p) and p.name != header(own)["code"])
    disk.store_link(own.name, other.name)
    assert traced.result() == 15.0 and len(traced) == 2


def test_links_to_links_are_not_followed(folder):
    traced = Traced()
    traced.result()
    first, content = link(folder), link(folder).read_bytes()
    disk.store_link("0" * 64, first.name)
    assert disk.load(first.name) is not None and disk.load("0" * 64) is None
    disk.store_link(first.name, first.name)  # to itself
    assert disk.load(first.name) is None
    assert traced.result() == 6.0 and len(traced) == 2
    assert first.read_bytes() == content


def test_a_link_is_no_code(folder):
    Traced().result()
    assert disk.load(link(folder).name, linked=True) is None
    assert disk.load(code(folder).name, linked=True) == disk.load(link(folder).name)


@pytest.mark.parametrize("target", ["", "../../etc/passwd", "/etc/passwd", "0" * 64, "\0", 3, None, ["a"], {"a": 1}])
def test_a_link_to_nowhere(folder, target):
    traced = Traced()
    traced.result()
    path = link(folder)
    written(path, json.dumps({"key": path.name, "code": target}).encode())
    assert traced.result() == 6.0 and len(traced) == 2
    assert traced.result() == 6.0 and len(traced) == 2


@pytest.mark.parametrize("text", [b"no json", b"{}", b"[]", b'{"key": 3}', b"\xff\xfe"])
@BOTH
def test_a_sound_checksum_of_nonsense(folder, kind, text):
    traced = Traced()
    traced.result()
    written(kind(folder), text, b"code")
    assert traced.result() == 6.0 and len(traced) == 2


@BOTH
def test_a_directory_in_the_place_of_a_file(folder, kind):
    traced = Traced()
    traced.result()
    path = kind(folder)
    path.unlink()
    path.mkdir()
    for count in (2, 3):
        assert traced.result() == 6.0 and len(traced) == count
    assert not [p for p in folder.iterdir() if p.name.startswith(".writing")]


def test_what_the_key_depends_on(monkeypatch):
    traced = Traced()
    rows = [Rows("x"), Rows("y", writable=True)]
    variants = [
        {}, {"name": "b"}, {"key": "b"}, {"bits": 32}, {"lanes": 4}, {"unroll": True},
        {"arguments": [Rows("x", writable=True), rows[1]]}, {"arguments": rows[::-1]},
        {"arguments": [*rows, Rows("z")]},
    ]  # fmt: skip
    for k, options in enumerate(variants):
        traced.build(**options)
        assert len(traced) == k + 1
    for options in variants:
        traced.build(**options)
    assert len(traced) == len(variants)
    other = type(host())(host().triple, host().cpu, host().features + ",+fxsr", host().register_bits)
    traced.build(backend=LlvmCpu(other))
    assert len(traced) == len(variants) + 1
    monkeypatch.setattr(disk, "_source_hash", lambda: "changed")
    traced.build()
    assert len(traced) == len(variants) + 2


def test_one_kernel_for_two_targets():
    body = lambda x, y: y.put(0, (x[0],))  # noqa: E731
    kernel = Kernel("targets", [Rows("x"), Rows("y", writable=True)], body, key="targets")
    other = type(host())(host().triple, host().cpu, host().features + ",+fxsr", host().register_bits)
    assert kernel.build(lanes=2) is kernel.build(lanes=2)
    assert kernel.build(lanes=2, backend=LlvmCpu(other)) is not kernel.build(lanes=2)


def test_the_hash_of_the_source_sees_every_file(tmp_path, monkeypatch):
    files = [
        "ir/graph.py", "backends/base.py", "backends/llvm_cpu/cache.py", "schema/layout.py", "model/scene.py",
        "physics/step.py", "physics/tree/dynamics.py", "piles/step.py", "control/riccati.py", "control/boxqp.py",
        "control/formulas.py",
    ]  # fmt: skip
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(disk, "__file__", str(tmp_path / "backends/llvm_cpu/cache.py"))
    hashes = [disk._source_hash.__wrapped__()]
    for name in files:
        (tmp_path / name).write_text("2")
        hashes.append(disk._source_hash.__wrapped__())
    (tmp_path / "physics/tree/new.py").write_text("")
    hashes.append(disk._source_hash.__wrapped__())
    assert len(set(hashes)) == len(files) + 2
    for name in ("envs/env.py", "simulator.py", "control/ilqr.py"):  # not traced
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert disk._source_hash.__wrapped__() == hashes[-1]


def test_the_sources_are_there():
    """Every folder that the hash names exists, and so does everything that is traced: a moved folder is noticed."""
    root = Path(disk.__file__).parents[2]
    for pattern in disk._SOURCES:
        assert list(root.glob(pattern)), pattern
    assert {"ir", "backends", "schema", "model", "physics", "piles"} <= {p.split("/")[0] for p in disk._SOURCES}


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert disk.directory() == tmp_path / "cache"
    monkeypatch.setenv("BACKDRIVE_CACHE", "")
    assert disk.directory() == tmp_path / "xdg" / "backdrive"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert disk.directory() == tmp_path / ".cache" / "backdrive"


# ------------------------------------------------------------------------------------------------- trust


@posix
def test_the_cache_is_private(folder):
    Traced().result()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in entries(folder))


@posix
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_directory_that_others_can_write_is_not_used(folder, mode):
    traced = Traced()
    traced.result()
    before = {path: path.read_bytes() for path in entries(folder)}
    folder.chmod(mode)
    with pytest.warns(RuntimeWarning, match="another user"):
        assert traced.result() == 6.0
    assert len(traced) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it warns once
        assert traced.result(key="another") == 6.0
    assert {p: p.read_bytes() for p in entries(folder)} == before  # nothing is written either
    folder.chmod(0o755)
    assert traced.result() == 6.0 and len(traced) == 3


@posix
def test_a_directory_of_another_user_is_not_used(folder, monkeypatch):
    traced = Traced()
    traced.result()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.warns(RuntimeWarning, match="another user"):
        assert traced.result() == 6.0
    assert len(traced) == 2


@posix
@pytest.mark.parametrize("mode", [0o660, 0o602])
@BOTH
def test_a_file_that_others_can_write_is_not_used(folder, kind, mode):
    traced = Traced()
    traced.result()
    path = kind(folder)
    path.chmod(mode)
    assert traced.result() == 6.0 and len(traced) == 2
    assert path.stat().st_mode & 0o077 == 0  # replaced
    assert traced.result() == 6.0 and len(traced) == 2


@posix
@pytest.mark.skipif(os.name == "posix" and os.geteuid() != 0, reason="only root can give files away")
@BOTH
def test_a_file_of_another_user_is_not_used(folder, kind):
    traced = Traced()
    traced.result()
    os.chown(kind(folder), 54321, -1)
    assert traced.result() == 6.0 and len(traced) == 2


@posix
@BOTH
def test_symbolic_links_are_not_followed(folder, tmp_path, kind):
    traced = Traced()
    traced.result()
    path, elsewhere = kind(folder), tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert traced.result() == 6.0 and len(traced) == 2
    assert not path.is_symlink()  # replaced, and what it pointed to is untouched
    assert elsewhere.exists()


def test_a_cache_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BACKDRIVE_CACHE", str(tmp_path / "file" / "cache"))
    traced = Traced()
    for count in (1, 2):
        assert traced.result() == 6.0 and len(traced) == count


def test_a_cache_that_cannot_be_written(folder, monkeypatch):
    folder.mkdir(mode=0o700)

    def full(*args, **options):
        raise OSError("no space left on device")

    traced = Traced()
    with monkeypatch.context() as patch:
        patch.setattr(disk.tempfile, "mkstemp", full)
        assert traced.result() == 6.0
    with monkeypatch.context() as patch:
        patch.setattr(disk.os, "replace", full)
        assert traced.result() == 6.0
    assert list(folder.iterdir()) == []


@posix
@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root can write everywhere")
def test_a_read_only_cache(folder):
    traced = Traced()
    traced.result()
    folder.chmod(0o500)
    assert traced.result() == 6.0 and len(traced) == 1
    assert traced.result(key="new") == 6.0 and len(traced) == 2
    folder.chmod(0o700)


def _fill(barrier, queue, key):
    traced = Traced()
    barrier.wait(20)
    queue.put([traced.result(factor=float(k), key=f"{key} {k}") for k in range(1, 8)])


@pytest.mark.skipif(sys.platform != "linux", reason="fork")
@pytest.mark.parametrize("shared", [True, False])
def test_processes_fill_it_at_once(folder, shared):
    """The same kernels, or kernels of their own with the same code."""
    context = multiprocessing.get_context("fork")
    barrier, queue = context.Barrier(4), context.Queue()
    keys = ["same"] * 4 if shared else [str(k) for k in range(4)]
    children = [context.Process(target=_fill, args=(barrier, queue, key)) for key in keys]
    for child in children:
        child.start()
    assert [queue.get(timeout=30) for _ in children] == [[3.0 * k for k in range(1, 8)]] * 4
    for child in children:
        child.join(20)
        assert child.exitcode == 0
    assert len(list(folder.iterdir())) == len(entries(folder)) == 7 + 7 * len(set(keys))
    assert sum("code" in header(path) for path in entries(folder)) == 7 * len(set(keys))
    traced = Traced()
    for key in keys:
        found = [traced.result(factor=float(k), key=f"{key} {k}") for k in range(1, 8)]
        assert found == [3.0 * k for k in range(1, 8)]
    assert traced == []


def test_the_header_names_its_key(folder):
    Traced().result()
    assert all(header(path)["key"] == path.name for path in entries(folder))
    assert header(link(folder))["code"] == code(folder).name
