"""The lessons as a course: ``python -m tools.course FOLDER`` writes all of it from the notebooks.

    student/     the lessons without solutions, answers and stored outputs, the homework, the term
    teacher/     the lessons with solutions and answers open and the mistakes that the checks name;
                 the homework with model answers, the bank of questions with answers
    nbgrader/    the exercises as assignments for nbgrader (``source`` notebooks, hidden tests)
    otter/       the same for otter-grader (``otter assign``)
    bank/        the questions to import: ``.gift`` for Moodle, ``.txt`` for text2qti (QTI)
    summaries/   one page a lesson, in Markdown, to print

Nothing is written by hand twice: everything comes from the cells and their tags.
"""

from attnlab.core.lazy import modules_of

__getattr__ = modules_of(__name__)
