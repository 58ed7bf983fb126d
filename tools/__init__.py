"""Commands for a clone of the repository: they read its notebooks, pages and history.

python -m tools.readme      writes the tables of MECHANISMS.md anew
python -m tools.course      writes the lessons as a course
python -m tools.notebooks   runs the lessons and prints seconds and memory of each
"""
