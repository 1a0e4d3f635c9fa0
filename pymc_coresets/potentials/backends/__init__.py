"""Who evaluates potentials: loops that Numba compiles, or JAX on its device.

One protocol, two implementations; nobody else knows which one runs.  It may import `rows`,
`reading`, `compat`, `options` and `exceptions`, and the kernels of this room.
"""
