"""What several commands ask of a model's name on the command line: is it a run, and which data are its own?"""

from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.model_names import model_spec
from holdfast.names import file_name


def run_folder(model: str) -> Path | None:
    """The folder that ``run:DIR`` or a plain ``DIR`` names; None for any other model."""
    return model_spec(model).folder


def with_checkpoint(model: str, checkpoint: str | None) -> str:
    """The model's spec with the checkpoint that ``--checkpoint`` names; only runs have any."""
    if checkpoint is None:
        return model
    folder = run_folder(model)
    if folder is None:
        raise HoldfastError(f"--checkpoint needs a run's folder, got the model {model!r}")
    return f"run:{folder}@{checkpoint}"


def model_file_name(model: str) -> str:
    """A model's name as a folder's, without what stands before the colon."""
    return file_name(model_spec(model).rest).strip("-.") or "model"


def own_data(model: str, *, command: str) -> str:
    """The validation data of a run's recipe; of the digits the test split, which no recipe trains or selects on."""
    from holdfast.yaml_files import read_yaml

    folder = run_folder(model)
    if folder is None:
        raise HoldfastError(f"holdfast {command} needs --data, such as folder:DIR, for {model!r}, which is not a run")
    path = folder / "recipe.yaml"
    try:
        recipe: Any = read_yaml(path.read_text(encoding="utf-8"), name=repr(str(path)))
        data = str(recipe["data"].get("val") or recipe["data"]["train"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HoldfastError(f"holdfast {command} needs --data: {str(path)!r} cannot be read or names none") from error
    return "digits:test" if data in ("digits", "digits:val", "digits:train") else data
