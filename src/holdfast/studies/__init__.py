"""Studies: grids of recipes × seeds × suites, trained and evaluated where results are missing, in one table.

`config` reads a study, `runner` runs the missing parts, `results` stores the predictions of every run,
`columns` turns them into scores, `differences` compares rows, `report` writes table, plots and verdicts.
"""
