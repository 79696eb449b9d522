"""What people see: pages, figures and tables, made from stored results alone.

``page`` puts it together; ``runs`` and ``entries`` read what it is made of; ``sections`` are what stands on it,
``figures`` its pictures, ``export`` the same numbers as text, ``templates`` the HTML.
"""
