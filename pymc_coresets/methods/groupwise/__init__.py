"""Block pursuit, for models whose rows fall into many groups.

What belongs here: the method, and how it goes from group to group.  May import what `methods` may.
"""
