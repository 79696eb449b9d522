"""Shape and texture in the names of cue conflict stimuli."""

from holdfast.published.cue_names import cues_of


def test_names_with_and_without_folder_prefix_and_suffix():
    assert cues_of("airplane/airplane10-bicycle2.png") == ("airplane", "bicycle", "airplane10")
    assert cues_of("0001_cc_dnn_0_cat_10_cat7-truck3.webp") == ("cat", "truck", "cat7")
    assert cues_of("dog1-dog2") == ("dog", "dog", "dog1")
    assert cues_of("dog/holiday.png") is None
