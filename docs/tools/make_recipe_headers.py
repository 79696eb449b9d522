"""Write launch line, batch and cost into the headers of the papers' recipes: make_recipe_headers.py [NAME …].

Everything else in a header is written by hand.
"""

import re
import sys
from pathlib import Path

from holdfast.training.cost import TRAINING_IMAGES, cost_lines
from holdfast.training.recipe_files import find_recipe, load_recipe, recipe_names


def papers_recipes() -> list[str]:
    """Those with a published batch."""
    families = [name for name in recipe_names() if name.partition("/")[0] in TRAINING_IMAGES]
    return [name for name in families if load_recipe(name).train.global_batch is not None]


def launched_on(text: str) -> int:
    """GPUs of the launch line; eight where it names more than a machine has."""
    nodes = re.search(r"--nnodes (\d+)", text)
    gpus = re.search(r"--nproc-per-node (\d+)", text)
    return min(8, int(gpus[1]) if gpus else 8) if nodes is None else 8


def with_costs(name: str, text: str) -> str:
    """The text of a recipe with a fresh launch line, batch and cost."""
    gpus = launched_on(text)
    text = re.sub(
        r"torchrun (--nnodes \d+ )?--nproc-per-node \d+ ", f"torchrun --nproc-per-node {gpus} ", text, count=1
    )
    text = re.sub(
        r"(?m)^#   holdfast train (?!.*torchrun)",
        f"#   torchrun --nproc-per-node {gpus} -m holdfast train ",
        text,
        count=1,
    )
    lines, body = [], text.splitlines()
    for line in body:
        if line.startswith("# batch:"):
            continue
        if line.startswith("# cost:"):
            lines += cost_lines(name, load_recipe(name), gpus=gpus)
            score = re.search(r"score: .*", line)
            lines += [f"# {score[0]}"] if score else []
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> None:
    """Rewrite the headers in place."""
    for name in names or papers_recipes():
        path = Path(find_recipe(name))
        path.write_text(with_costs(name, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
