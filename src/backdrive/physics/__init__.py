"""The equations, one file per stage, in the order the data flows.

    spatial     vectors, rotations, inertia
    world       the model as the equations see it
    joints      what distinguishes the kinds of joints
    bodies      moments of mass
    forces      springs, dampers, motors: τ(q, v, u)
    kinematics  poses and velocities
    dynamics    bias forces, factors of the mass matrix, solve; forward dynamics
    integrate   the integrators, and moving on the manifold
    step        one time step
    adjoint     the derivative of all that, backwards
    rollout     loops over time
    inverse     inverse and forward dynamics on their own
    poses       where links are in the world
    kernels     the list of compiled functions

Everything is written on scalars: on floats it runs as it stands, on traced values it becomes a kernel.
"""
