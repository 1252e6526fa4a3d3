"""Small modules whose functions have tests: edits in them are judged by what the functions then return.

They were written for this and are in no list of training. They import the standard library alone, since they are run
where nothing else can be imported.
"""
