"""One self-contained HTML page from result files: a verdict, the figures behind it, the data.

``run.py`` reads a run folder, ``compare.py`` refuses to put unlike runs side by side, each module
of ``charts/`` turns rows into coordinates, ``templates/`` draws them, ``page.py`` binds it all.
"""
