"""The lessons as a course: ``python -m attnlab.course FOLDER`` writes all of it from the notebooks.

    student/     the lessons without solutions, answers and stored outputs
    teacher/     the lessons with solutions and answers open, and the mistakes that the checks name
    nbgrader/    the exercises as assignments for nbgrader (``source`` notebooks, tests as asserts)
    otter/       the same for otter-grader (``otter assign``)
    summaries/   one page a lesson, in Markdown, to print

Nothing is written by hand twice: everything comes from the cells and their tags.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
