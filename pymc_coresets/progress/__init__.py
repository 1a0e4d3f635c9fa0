"""Progress bars of long work, in terminals, notebooks and logs, and the seconds of its parts.

What belongs here: what is shown while something runs. May import: Rich, IPython in notebooks.
"""
