"""Reports: pages, figures and tables, made from stored results alone.

``page`` puts the report together; ``runs`` and ``comparable`` read what it is made of; ``sections`` are its parts,
``figures`` its plots, ``export`` the same numbers as text, ``templates`` the HTML.
"""
