"""What is printed of a coreset.

What belongs here: facts about a coreset, and the report of its build.  May import: `diagnostics`,
`rowlogp`, `reading`, `rows`.
"""
