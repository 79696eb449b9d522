"""Attack presets: the settings of published protocols."""

from holdfast.attacks.autoattack import AutoAttack
from holdfast.attacks.occlusion import AttentionOcclusion, Occlusion
from holdfast.attacks.patch_fool import PatchFool
from holdfast.attacks.projected_gradient_descent import GradientAttack

PRESETS: dict[str, GradientAttack | PatchFool | Occlusion | AttentionOcclusion | AutoAttack] = {
    # RVT (Mao et al. 2022); AFAT's Table 3 reports pgd5
    "fgsm": GradientAttack(eps=1 / 255, alpha=1 / 255, steps=1, random_start=False),
    "pgd5": GradientAttack(eps=1 / 255, alpha=0.5 / 255, steps=5),
    # RVT's test of adversarially trained networks
    "pgd3-rvt-adv": GradientAttack(eps=4 / 255, alpha=8 / 255 / 3, steps=3),
    # hard-coded in AFAT's released RVT loop; the paper's PGD-5 is pgd5
    "pgd5-rspc": GradientAttack(eps=8 / 255, alpha=2 / 255, steps=5),
    # Patch-Fool (Fu et al. 2022) as AFAT's Table 3 reports it, and its sparse variant
    "patch-fool": PatchFool(),
    "patch-fool-sparse": PatchFool(pixels=250),
    # AFAT's Table 3: 10 % of the patches; the paper does not say how many masks it draws
    "occlusion-random": Occlusion(ratio=0.1, patch_size=16, masks=10),
    # ours: the patches that receive the most attention
    "occlusion-attention": AttentionOcclusion(ratio=0.1),
    # AutoAttack's standard version with the radii of RobustBench
    "autoattack-imagenet": AutoAttack(eps=4 / 255),
    "autoattack-cifar": AutoAttack(eps=8 / 255),
    "autoattack-cifar-l2": AutoAttack(eps=0.5, norm="l2"),
}
