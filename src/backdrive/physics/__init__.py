"""The equations, in the order the data flows.

    math/          vectors, spatial algebra, loops over arrays, LU factors of small systems
    tree/          the kinematic tree: joints, poses, moments of mass, forces, forward and inverse dynamics
    geometry/      shapes in the world, and the contact points of shape pairs
    constraints/   rows of contacts, limits, joint friction and equalities; the contact problem and its effect
    solvers/       solvers of the contact problem, one file each
    integrators/   time integrators, one file each
    impacts/       impacts within a step: their times, and which contacts rest and which hit

    state          the arrays of a state;  scheme  integrator, contact model and step size
    policy         where controls come from: rows of the caller, or a neural network
    step           one time step, or its substeps from impact to impact;  step_adjoint, step_jacobian  its derivatives
    rollout        the loop over time;  rollout_adjoint  the loop backwards
    contact_forces the forces of constraints along a path
    kernels        the list of compiled functions

The adjoint of a stage is beside it, in a module of the same name with the suffix `_adjoint`. Everything is written on
scalars: called on floats it simply runs; called on traced values it becomes a kernel.
"""
