"""The equations, one file per stage, in the order the data flows.

    spatial     vectors, rotations, inertia
    world       the model as the equations see it
    joints      what distinguishes the kinds of joints
    bodies      moments of mass
    forces      springs, dampers, motors: τ(q, v, u)
    kinematics  poses and velocities
    dynamics    bias forces, factors of the mass matrix; forward dynamics
    poses       where links are in the world, and how they move

    solids      what collision works with; collision_round, collision_planar, collision_hulls, collision_solid,
                hull_features: how two shapes touch
    bounds      which may;  collision  which shapes of a model touch
    tables      what constrains a model, as tables;  constraints  ... and as rows: wrenches between two links
    system      the rows of a step, and what they do to each other
    linear      LU factors of small systems
    complementarity, gauss_seidel, interior_point, pivoting   the solvers of a system;  solve  the one that was chosen
    integrate   the integrators, and moving on the manifold
    impulses    what is kept from stretch to stretch
    impact      which contacts rest and which hit;  impact_time  when
    correction  how positions are corrected
    contact     from free motion to what the constraints allow;  contact_adjoint  its derivative

    step        one time step, or its stretches from impact to impact
    adjoint     the derivative of the dynamics, backwards;  step_adjoint  of a step
    rollout     loops over time;  jacobian  the derivatives of a step, all rows of them
    contact_forces, inverse   forces of constraints, inverse and forward dynamics on their own
    kernels     the list of compiled functions

    collision_boxes   collision_hulls for boxes, without loops
    sparse_body, sparse_contact, sparse_packs, sparse_sweeps, sparse_kernels   the same step for one big world of free
                bodies, whose lanes are its bodies, shapes, pairs and contacts (run by backdrive.sparse)

Everything is written on scalars: on floats it runs as it stands, on traced values it becomes a kernel.
"""
