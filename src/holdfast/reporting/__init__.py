"""Reports: pages, figures and tables from stored results.

``page`` assembles the report; ``runs`` and ``comparable`` read its data; ``sections`` are its parts, ``figures`` its
plots, ``export`` the same numbers as text, ``templates`` the HTML.
"""
