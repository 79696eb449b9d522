"""Averages of weights: WiSE-FT (Wortsman et al., CVPR 2022) and model soups (Wortsman et al., ICML 2022).

Nothing is trained. BatchNorm's statistics do not average (the variance of averaged weights is not the average
variance), so that they are estimated anew on training images.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.errors import HoldfastError
from holdfast.runtime.device import training_modes_kept

State = Mapping[str, Tensor]
COUNTER = "num_batches_tracked"  # the one integer tensor that training changes


def interpolate(start: State, end: State, alpha: float) -> dict[str, Tensor]:
    """(1 − α)·start + α·end of all floating-point tensors (WiSE-FT); α = 0 and 1 give start and end bit for bit."""
    if not 0 <= alpha <= 1:
        raise HoldfastError(f"alpha must lie between 0 (the start) and 1 (the fine-tuned model), got {alpha}")
    return average([start, end], [1 - alpha, alpha])


def uniform_soup(states: Sequence[State]) -> dict[str, Tensor]:
    """The mean of all states."""
    return average(states, [1 / len(states)] * len(states))


def average(states: Sequence[State], weights: Sequence[float]) -> dict[str, Tensor]:
    """The weighted mean of states with the same keys and shapes, summed in float64 and rounded once.

    Integer and boolean tensors come from the last state and must be the same in all, but for BatchNorm's counter. Keys
    that share a tensor in every state share one in the mean.
    """
    check_same_tensors(states)
    if 1.0 in weights:  # written out: 0 · inf would not be 0
        return dict(states[weights.index(1.0)])
    done: dict[tuple[object, ...], Tensor] = {}
    mean = {}
    for key, last in states[-1].items():
        tensors = [state[key] for state in states]
        shared = tuple((tensor.data_ptr(), tensor.shape, tensor.stride()) for tensor in tensors)
        if shared not in done or last.numel() == 0:
            done[shared] = _mean(tensors, weights) if last.is_floating_point() else last
        mean[key] = done[shared]
    return mean


def _mean(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    total = torch.zeros_like(tensors[-1], dtype=torch.float64)
    for tensor, weight in zip(tensors, weights, strict=True):
        if weight:
            total.add_(tensor.to(total), alpha=weight)
    return total.to(tensors[-1].dtype)


def check_same_tensors(states: Sequence[State]) -> None:
    """Refuse states of different architectures: other keys, other shapes, other structural integers."""
    last = states[-1]
    for state in states[:-1]:
        if odd := sorted(state.keys() ^ last.keys()):
            raise HoldfastError(f"models must have the same architecture to be averaged, but only one has {odd[0]!r}")
        for key, tensor in last.items():
            if state[key].shape != tensor.shape:
                shapes = f"{tuple(state[key].shape)} and {tuple(tensor.shape)}"
                raise HoldfastError(f"models must have the same architecture to be averaged, but {key!r} is {shapes}")
            fixed = not tensor.is_floating_point() and not key.endswith(COUNTER)
            if fixed and not torch.equal(state[key], tensor):
                raise HoldfastError(f"models must have the same architecture to be averaged, but {key!r} differs")


# ---------------------------------------------------------------------- greedy soups


@dataclass(frozen=True)
class GreedyRule:
    """When an ingredient is accepted, and which of equally good ones is tried first."""

    accept_ties: bool
    later_first: bool


GREEDY_RULES = {
    "released": GreedyRule(accept_ties=False, later_first=True),  # the released code: the score must rise
    "paper": GreedyRule(accept_ties=True, later_first=False),  # the paper's recipe: it must not fall
}


@dataclass(frozen=True)
class GreedySoup:
    """The ingredients in the order in which they were tried, those that were accepted, and the soup's score."""

    tried: tuple[int, ...]
    members: tuple[int, ...]
    score: float


def greedy_soup(
    scores: Sequence[float], evaluate: Callable[[Sequence[int]], float], rule: GreedyRule = GREEDY_RULES["released"]
) -> GreedySoup:
    """Add one ingredient after the other, best first, as long as the held-out score allows it; each is tried once.

    Args:
        scores: the held-out score of every ingredient alone.
        evaluate: the held-out score of the mean of some ingredients, by their numbers.
        rule: what happens at ties.
    """
    numbers = range(len(scores))
    tried = (
        sorted(numbers, key=lambda number: scores[number])[::-1]
        if rule.later_first
        else sorted(numbers, key=lambda number: -scores[number])
    )
    members, best = [tried[0]], scores[tried[0]]
    for number in tried[1:]:
        score = evaluate([*members, number])
        if score > best or (rule.accept_ties and score == best):
            members, best = [*members, number], score
    return GreedySoup(tuple(tried), tuple(members), best)


# ---------------------------------------------------------------------- BatchNorm


def has_batch_statistics(state: State) -> bool:
    """Whether some layer keeps a running variance."""
    return any(key.endswith("running_var") for key in state)


@torch.no_grad()
def reestimate_batch_norm(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Reset the running statistics of all BatchNorm layers and average them over these batches, each alike.

    Dropout and drop-path stay off, so that the statistics are those of the model in evaluation.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    norms = [norm for norm in norms if norm.track_running_stats]
    momenta = [norm.momentum for norm in norms]
    with training_modes_kept(model):
        model.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a cumulative average
            norm.train()
        try:
            for images in batches:
                model(images)
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
