"""Forces that are implicit in the velocity: (M - h D) â = M a, with D = ∂τ/∂v of all smooth forces, as a dense matrix.

D has the damping of joints and motors, the drag of a fluid, and, of the integrator "implicit", Coriolis and gyroscopic
forces. These are a quadratic form c(v): their derivative along x is (c(v + x) - c(v - x)) / 2, without an error.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir import Index, Scalar, ScalarArray, is_constant, loop, memory, rolled, vjp, workspace
from ...schema import layout
from ..math import spatial as sp
from ..math.arrays import accumulate, copy, local, split, zero
from ..math.linear import TILE, factor_lu, solve_lu, solve_lu_transposed
from ..math.spatial import BODY, MATRIX, SPATIAL, ZERO6, Vec
from ..scheme import StepContext
from ..tree.dynamics import TreeMotion, applied_force, unforced_motion, world_rotations
from ..tree.dynamics_adjoint import Cotangents, VirtualPower, power_adjoint
from ..tree.kinematics import Frames, turn
from ..tree.poses import Pose, link_poses, link_poses_adjoint, pose_of, pose_size
from ..tree.tree import Tree
from .acceleration import Acceleration
from .damping import armature_adjoint, coordinate_damping, coordinate_damping_adjoint
from .medium import SIZES, Surroundings, accumulate_surroundings, drag
from .tendons import add_tendon_slopes, damping_power, tendon_slopes_adjoint

GIVEN, ALONG, VIRTUAL = 0, 1, 2  # which twist of a pose: those of v, of x, and of μ


def link_motions(tree: Tree, frames: Frames, z: ScalarArray) -> ScalarArray:
    """The spatial motions of the links (over links) whose joints move by z [nv], in the axes of the links."""
    motions = tree.over_links(SPATIAL)
    motions.put(0, ZERO6)
    for i in tree.links():
        b = tree.v_start(i)
        motions.put(i + 1, sp.motion_to_child(*frames.pose(i), motions.get(tree.parent(i), SPATIAL)))
        for k in loop(tree.dofs(i)):
            motions.accumulate(i + 1, sp.scale(z[b + k], frames.S.get(b + k, SPATIAL)))
    return motions


def joint_forces(tree: Tree, frames: Frames, forces: ScalarArray, tau: ScalarArray) -> None:
    """tau [nv] = Σ Sᵀ forces, in the axes of the links; `forces` (over links) are overwritten."""
    for i in tree.links(reverse=True):
        b = tree.v_start(i)
        for k in loop(tree.dofs(i)):
            tau[b + k] = sp.dot(frames.S.get(b + k, SPATIAL), forces.get(i + 1, SPATIAL))
        if not is_constant(tree.parent(i), 0):  # forces on the world are never used
            forces.accumulate(tree.parent(i), sp.force_to_parent(*frames.pose(i), forces.get(i + 1, SPATIAL)))


class ImplicitMatrix:
    """Products with M and with h D at a state."""

    def __init__(self, ctx: StepContext, now: Acceleration) -> None:
        self.tree, self.h, self.settings, self.now = ctx.tree, ctx.h, ctx.soft, now
        self.q, self.v, self.frames = now.inputs.q, now.inputs.v, now.dynamics.frames
        self.damping = coordinate_damping(ctx.tree, now.inputs, motors=True)
        self.coriolis = bool(ctx.soft.turning)

    def inertia(self, x: ScalarArray, y: ScalarArray) -> None:
        """y [nv] = M x"""
        forces = self._no_forces()
        self._add_inertial(x, forces)
        self._project(forces, y)
        for i in self.tree.links():
            b, armature = self.tree.v_start(i), self.tree.link(i).armature
            for k in loop(self.tree.dofs(i)):
                y[b + k] = y[b + k] + armature * x[b + k]

    def slopes(self, x: ScalarArray, y: ScalarArray) -> None:
        """y [nv] = -h D x"""
        tree, h, forces, damping = self.tree, self.h, self._no_forces(), self.damping
        if self.coriolis:
            self._add_coriolis(x, forces)
        if self.settings.medium is not None:
            self._add_drag(x, forces, self.settings.medium)
        self._project(forces, y)
        for k in loop(tree.nv):
            y[k] = y[k] + h * damping[k] * x[k]
        if self.settings.tendons:
            add_tendon_slopes(tree, self.settings, self.now.inputs, x, h, y)

    def _no_forces(self) -> ScalarArray:
        forces = self.tree.over_links(SPATIAL)
        forces.put(0, ZERO6)
        for i in self.tree.links():
            forces.put(i + 1, ZERO6)
        return forces

    def _project(self, forces: ScalarArray, y: ScalarArray) -> None:
        joint_forces(self.tree, self.frames, forces, y)
        turn(self.tree, self.q, y, y, back=True)

    def _add_inertial(self, x: ScalarArray, forces: ScalarArray) -> None:
        tree, z = self.tree, workspace(self.tree.nv)
        turn(tree, self.q, x, z)
        motions = link_motions(tree, self.frames, z)
        for i in tree.links():
            inertia = sp.articulated(tree.bodies.moved.get(i + 1, BODY))
            forces.accumulate(i + 1, sp.inertia_mul(inertia, motions.get(i + 1, SPATIAL)))

    def _add_coriolis(self, x: ScalarArray, forces: ScalarArray) -> None:
        tree, v = self.tree, workspace(self.tree.nv)
        for sign in (1.0, -1.0):
            self.moved(sign, x, v)
            motion = unforced_motion(tree, self.q, v)
            for i in tree.links():
                forces.accumulate(i + 1, sp.scale(0.5 * sign * self.h, motion.forces.get(i + 1, SPATIAL)))

    def moved(self, sign: float, x: ScalarArray, v: ScalarArray) -> None:
        """v [nv]: the velocity, changed by ± x [nv] in the coordinates whose forces are implicit."""
        copy(self.tree.nv, self.v, v)
        for k in self.settings.turning:
            v[k] = self.v[k] + sign * x[k]

    def _add_drag(self, x: ScalarArray, forces: ScalarArray, start: int) -> None:
        tree, width = self.tree, pose_size(2)
        poses, rotations = link_poses(tree, self.q, self.v, x), world_rotations(tree, self.frames)
        for i in tree.links():
            pose = Pose.of(pose_of(poses, i + 1, width))
            wrench = sp.scale(-self.h, drag_slope(Surroundings.of(tree, start, i), pose))
            forces.accumulate(i + 1, applied_force(tree.link(i).com, rotations.get(i + 1, MATRIX), wrench))


def drag_slope(around: Surroundings, pose: Pose) -> Vec:
    """The derivative of the wrench of drag along the second twist of the pose: (force, torque) in world axes."""
    box = drag(around, pose)
    slope = box.slope(box.motion(pose, GIVEN, around.medium[layout.WIND : layout.WIND + 3]))
    change = [s * x for s, x in zip(slope, box.motion(pose, ALONG), strict=True)]
    return (*sp.rotate(box.rotation, change[3:]), *sp.rotate(box.rotation, change[:3]))


@dataclass(frozen=True)
class Implicit:
    """â [nv]; the matrix, and its factors LU [n, n]; â - a [nv]."""

    acceleration: ScalarArray
    matrix: ImplicitMatrix
    LU: ScalarArray
    change: ScalarArray

    def adjoint(self, a_bar: ScalarArray, cotangents: Cotangents) -> ScalarArray:
        """From the cotangent of â [nv] to that of a [nv]; adds those that follow through M and D.

        With (M - h D)ᵀ μ = â_bar, they are those of -μ · (M (â - a) - h D â).
        """
        tree, q, matrix = self.matrix.tree, self.matrix.q, self.matrix
        nv, frames = tree.nv, matrix.frames
        mu, inner_bar = memory(nv + TILE), workspace(nv)
        copy(nv, a_bar, mu)
        for k in loop(padded_size(nv), start=nv):
            mu[k] = 0.0
        solve_lu_transposed(self.LU, padded_size(nv), mu)
        virtual = local(nv, mu)
        matrix.inertia(virtual, inner_bar)
        z, rest, unused = (workspace(nv) for _ in range(3))
        zero(nv, rest)
        zero(nv, unused)
        inside = Cotangents(cotangents.q, unused, constants=cotangents.constants, moments=cotangents.moments)
        turn(tree, q, virtual, z)
        N = link_motions(tree, frames, z)
        turn(tree, q, self.change, z)
        still = TreeMotion(frames.slowed(tree, 0.0), link_motions(tree, frames, z), self.change)
        power_adjoint(tree, VirtualPower(q, rest, still, virtual, N, acting=0.0), -1.0, inside)
        if cotangents.constants is not None:
            self._joint_adjoint(virtual, cotangents)
        if matrix.coriolis:
            self._coriolis_adjoint(virtual, cotangents)
        if matrix.settings.medium is not None:
            self._drag_adjoint(matrix.settings.medium, virtual, cotangents)
        return inner_bar

    def _joint_adjoint(self, virtual: ScalarArray, cotangents: Cotangents) -> None:
        """The part of armature, damping and motors."""
        tree, damping_bar = self.matrix.tree, workspace(self.matrix.tree.nv)
        armature_adjoint(tree, virtual, self.change, cotangents)
        assert cotangents.constants is not None
        for k in loop(tree.nv):
            damping_bar[k] = -(self.matrix.h * virtual[k] * self.acceleration[k])
        inputs, settings = self.matrix.now.inputs, self.matrix.settings
        coordinate_damping_adjoint(tree, inputs, True, damping_bar, cotangents.constants)
        lengths = [tendon.length for tendon in settings.tendons]
        seeds = [-(self.matrix.h * damping_power(settings, one, virtual, self.acceleration)) for one in lengths]
        tendon_slopes_adjoint(tree, settings, inputs, seeds, cotangents.constants)

    def _coriolis_adjoint(self, virtual: ScalarArray, cotangents: Cotangents) -> None:
        """The part of -h (μ · c(v + â) - μ · c(v - â)) / 2."""
        tree, q, nv = self.matrix.tree, self.matrix.q, self.matrix.tree.nv
        v, scaled, z, still = (workspace(nv) for _ in range(4))
        for k in loop(nv):
            scaled[k] = 0.5 * self.matrix.h * virtual[k]
        zero(nv, still)
        turn(tree, q, scaled, z)
        N = link_motions(tree, self.matrix.frames, z)
        for sign in (1.0, -1.0):
            self.matrix.moved(sign, self.acceleration, v)
            here = local(nv, v)
            motion = unforced_motion(tree, q, here)
            turning = TreeMotion(motion.frames, motion.accelerations, still)
            power_adjoint(tree, VirtualPower(q, here, turning, scaled, N), -sign, cotangents)

    def _drag_adjoint(self, start: int, virtual: ScalarArray, cotangents: Cotangents) -> None:
        """The part of h μ · D â of the drag."""
        tree, q, width = self.matrix.tree, self.matrix.q, pose_size(3)
        velocities = (self.matrix.v, self.acceleration, virtual)
        poses, poses_bar = link_poses(tree, q, *velocities), workspace((tree.nlink + 1) * width)
        zero((tree.nlink + 1) * width, poses_bar)

        def power(*x: Scalar) -> list[Scalar]:
            *parts, numbers = split(x, *SIZES, width)
            around, pose = Surroundings(*parts), Pose.of(numbers)
            wrench, box = drag_slope(around, pose), drag(around, pose)
            turning = sp.dot(wrench[3:], pose.twist(VIRTUAL).angular)
            return [sp.dot(wrench[:3], pose.velocity(box.center, VIRTUAL), turning)]

        for i in tree.links():
            around, pose = Surroundings.of(tree, start, i), pose_of(poses, i + 1, width)
            _, gradient = vjp(power, [x for part in (*around, pose) for x in part], [self.matrix.h])
            *around_bars, pose_bar = split(gradient, *SIZES, width)
            accumulate(poses_bar.at((i + 1) * width), pose_bar)
            accumulate_surroundings(tree, start, i, around_bars, cotangents.constants)
        bars = [cotangents.v, None, None]
        link_poses_adjoint(tree, poses, poses_bar, q, velocities, cotangents.q, bars, cotangents.constants)


def padded_size(nv: Index) -> Index:
    return (nv + (TILE - 1)) // TILE * TILE


def implicit(ctx: StepContext, now: Acceleration) -> Implicit:
    """â - a = x, with (M - h D) x = h D a."""
    matrix, nv, n = ImplicitMatrix(ctx, now), ctx.tree.nv, padded_size(ctx.tree.nv)
    a, LU, unit, x = now.dynamics.vdot, memory((nv + TILE) * (nv + TILE)), memory(nv), memory(nv + TILE)
    zero(nv, unit)
    for k in loop(n * n):
        LU[k] = 0.0
    for k in loop(n, start=nv):
        LU[k * n + k] = 1.0
    for j in rolled(nv):
        unit[j] = 1.0
        along, inertial, rest = local(nv, unit), workspace(nv), workspace(nv)
        unit[j] = 0.0
        matrix.inertia(along, inertial)
        matrix.slopes(along, rest)
        for k in loop(nv):
            LU.at(k * n)[j] = inertial[k] + rest[k]
    factor_lu(LU, n)
    rest, change, result = (workspace(nv) for _ in range(3))
    matrix.slopes(a, rest)
    for k in loop(nv):
        x[k] = -rest[k]
    for k in loop(n, start=nv):
        x[k] = 0.0
    solve_lu(LU, n, x)
    copy(nv, x, change)
    for k in loop(nv):
        result[k] = a[k] + change[k]
    return Implicit(result, matrix, LU, change)
