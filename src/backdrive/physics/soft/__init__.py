"""MuJoCo's physics: soft constraints as a convex problem on accelerations, from the chapter "Computation" of its
documentation.

`settings`       what a kernel is compiled for
`impedance`      solref and solimp: reference accelerations and impedances; how two shapes mix
`laws`           the force of a constraint as a function of its residual J a - a_ref, and its curvature
`constants`      the parameters in the constants of a model
`contacts`       contact points within their margins, and their frames
`rows`           the parameters of a step's rows: reference accelerations, D, friction
`tendons`        forces along linear combinations of coordinates, and `combinations`: their rows; `ropes`
`assemble`       puts the rows of a state into its `problem`
`newton`         the solver; `hessian`: its matrix, with the sparse factors of `tree_factors` and `tile_factors`;
                 `stage_before`: where it starts in later stages of a step
`acceleration`   a(q, v, u), with its adjoint in `acceleration_adjoint`
`forces`         those of the constraints, as results
`integrate`      implicit damping, with the `damping` of joints and motors; all else that is `implicit` in v
`medium`         drag of a fluid, and compensation of weight
`step`           the integrators, with their derivatives in `step_adjoint` and `step_jacobian`; `rates`: Runge-Kutta
                 methods on rotations
`options`        what users may choose
"""
