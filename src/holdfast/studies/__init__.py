"""Many runs, one table: recipes × seeds × suites, trained and measured as far as they are missing.

:mod:`plan` reads a study, :mod:`runner` does what is missing, :mod:`results` keeps what every run said of every image,
:mod:`columns` turns that into scores, :mod:`page` into a table, plots and verdicts.
"""
