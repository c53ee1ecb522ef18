"""MuJoCo's physics: soft constraints as a convex problem on accelerations, from the chapter "Computation" of its
documentation.

`settings`       what a kernel is compiled for
`impedance`      solref and solimp: reference accelerations and impedances; how two shapes mix
`laws`           the force of a constraint as a function of its residual J a - a_ref, and its curvature
`contacts`       contact points within their margins, and their frames
`rows`           the parameters of a step's rows: reference accelerations, D, friction
`problem`        all rows of a step
`newton`         the solver
`acceleration`   a(q, v, u), with its adjoint in `acceleration_adjoint`
`step`           the integrators
"""
