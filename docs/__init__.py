"""The web site: what ``make site`` builds from the lessons, the cards and the saved widgets.

``lessons``     a notebook → a page, with its stored outputs; nothing is executed
``outputs``     a stored output → HTML: figures, streams, pictures
``widgets``     the stored state of widgets → pages of their own, or what stands still
``mechanisms``  a card and its module → a page; an index by family
``parts``       the same for the other shelves; an index by role
``page``        what all of these pages have
``reference``   signatures and docstrings → pages, read from the source
``front``       the first page: the wall
``maths``       LaTeX → MathML
``extension``   what Sphinx is taught: maths, stored outputs, descriptions of search results

The pages are written as Markdown into build/site, then Sphinx makes site/ of them.
"""
