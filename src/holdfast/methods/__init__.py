"""What models are trained for. Works in anybody's loop, without the rest of Holdfast."""

from holdfast.methods.objective import OBJECTIVES, CrossEntropy, Loss, Objective, Player, build_objective

__all__ = ["OBJECTIVES", "CrossEntropy", "Loss", "Objective", "Player", "build_objective"]
