"""``holdfast train``: train a model from a shipped recipe or a YAML file; every value can be overridden."""

from holdfast.cli.train import merge_dictionary_options


def test_paths_into_dictionaries_are_gathered():
    words = ["finetune", "--objective.options.afat.weight=0.1", "--objective.options={adl: {tau: 2}}", "--seed=3"]
    assert merge_dictionary_options(words) == [
        "finetune",
        "--seed=3",
        '--objective.options={"afat": {"weight": 0.1}, "adl": {"tau": 2}}',
    ]
