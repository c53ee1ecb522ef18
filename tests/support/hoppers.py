"""A hopper with MuJoCo's physics, small enough that its kernels compile in seconds, and steps by hand."""

import functools
import tempfile
from pathlib import Path

import torch
from scenes import randn
from torch import Tensor

import backdrive as bd

XML = """<mujoco><option timestep="0.01" integrator="{integrator}"/>
  <worldbody><geom name="floor" type="plane" size="5 5 1"/>
    <body name="trunk" pos="0 0 0.5">
      <joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
      <joint name="tilt" type="hinge" axis="0 1 0"/>
      <geom type="sphere" size="0.1" mass="2" contype="0" conaffinity="0"/>
      <body name="leg"><joint name="hip" type="hinge" axis="0 1 0" damping="0.2" armature="0.02"/>
        <geom name="foot" type="sphere" size="0.05" pos="0 0 -0.47" mass="0.5"/></body>
    </body></worldbody>
  <actuator><motor joint="hip" gear="3" ctrlrange="-1 1" ctrllimited="true"/></actuator></mujoco>"""


@functools.cache
def hopper(integrator: str = "RK4") -> bd.Model:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "hopper.xml"
        file.write_text(XML.format(integrator=integrator), "utf-8")
        return bd.load(file)


@functools.cache
def hopping(integrator: str = "RK4", **options) -> bd.Simulator:
    return bd.Simulator(hopper(integrator), physics="mujoco", threads=1, **options)


def start(batch: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> bd.State:
    q, v = hopper().initial_state(batch)
    q, v = q + 0.02 * randn(*q.shape, seed=seed), v + 0.3 * randn(*v.shape, seed=seed + 1)
    return bd.State(q.to(dtype), v.to(dtype))


class Limited(torch.autograd.Function):
    """(q, v) as they are; the norm of their derivatives together is at most `limit`, and zero where not finite."""

    @staticmethod
    def forward(ctx, limit: float, q: Tensor, v: Tensor):
        ctx.limit, ctx.nq = limit, q.shape[-1]
        return q.clone(), v.clone()

    @staticmethod
    def backward(ctx, q_bar: Tensor, v_bar: Tensor):
        bar = torch.cat([q_bar, v_bar], -1)
        norm = bar.norm(dim=-1, keepdim=True)
        bar = torch.where(torch.isfinite(norm), bar * (ctx.limit / norm).clamp(max=1.0), 0.0)
        return None, bar[..., : ctx.nq], bar[..., ctx.nq :]
