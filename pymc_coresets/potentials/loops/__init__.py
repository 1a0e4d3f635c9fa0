"""Single operations, evaluated or compiled otherwise than PyTensor does.

It may import `compat`.
"""
