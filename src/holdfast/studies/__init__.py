"""Many runs, one table: recipes × seeds × suites, trained and measured as far as they are missing.

:mod:`config` reads a study, :mod:`runner` runs what is missing, :mod:`results` keeps the predictions of every run,
:mod:`columns` turns them into scores, :mod:`differences` compares rows, :mod:`report` writes table, plots and verdicts.
"""
