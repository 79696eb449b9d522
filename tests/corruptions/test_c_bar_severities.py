"""The kinds of both benchmarks, as Mintun et al. list them."""

from holdfast.corruptions.c_bar_severities import C_BAR_KINDS, C_BAR_SUITES


def test_both_benchmarks_have_ten_kinds_five_of_them_in_common():
    imagenet, cifar = (set(C_BAR_SUITES[name]) for name in ("imagenet-c-bar", "cifar-c-bar"))
    assert (len(imagenet), len(cifar), len(imagenet & cifar), len(C_BAR_KINDS)) == (10, 10, 5, 15)


def test_severities_grow_and_a_preset_chooses_their_meaning():
    kinds = {kind.name: kind for kind in C_BAR_KINDS}
    for kind in C_BAR_KINDS:
        for preset in ("imagenet", "cifar", "tiny", "inception", "any"):
            found = kind.magnitudes(preset)
            assert list(found) == sorted(found)
    assert kinds["sparkles"].magnitudes("imagenet") == (1, 2, 3, 5, 6)
    assert kinds["sparkles"].magnitudes("tiny") == kinds["sparkles"].magnitudes("cifar") == (0.7, 3.5, 5.6, 6.3, 7)
    assert kinds["lines"].magnitudes("imagenet") == kinds["lines"].magnitudes("cifar")
    assert len({kind.short for kind in C_BAR_KINDS}) == 15
