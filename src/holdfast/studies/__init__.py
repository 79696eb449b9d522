"""Studies: grids of recipes × seeds × suites, trained and evaluated where results are missing, in one table.

:mod:`config` reads a study, :mod:`runner` runs the missing parts, :mod:`results` stores the predictions of every run,
:mod:`columns` turns them into scores, :mod:`differences` compares rows, :mod:`report` writes table, plots and verdicts.
"""
