"""Private and unstable interfaces of other libraries, in one module for each library.

What belongs here: names that a library does not promise to keep, and the few functions that use
its private attributes. May import: the library in question, and nothing of this package.
"""
