"""``python -m attnlab_widgets.survey``: count and time mechanisms, and store their rows."""

from attnlab_widgets.survey import main

if __name__ == "__main__":
    main()
