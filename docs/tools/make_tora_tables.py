"""The tables of tora.md from finished runs: ``python docs/tools/make_tora_tables.py RUN [RUN …]`` prints Markdown."""

import sys

from holdfast.errors import HoldfastError
from holdfast.reporting.export.text_tables import markdown
from holdfast.reporting.runs import read_runs
from holdfast.reporting.sections.trade_off import heads_table, methods_table, trade_off_runs

if __name__ == "__main__":
    try:
        runs = trade_off_runs(read_runs(sys.argv[1:]))
        if not runs:
            raise HoldfastError("runs must be folders of finished TORA runs with a lambda each (tora.json), found none")
    except HoldfastError as error:
        sys.exit(print(f"error: {error}", file=sys.stderr) or 2)
    print(markdown([heads_table(runs), methods_table(runs)], ["mean over seeds (smallest to largest)"]))
