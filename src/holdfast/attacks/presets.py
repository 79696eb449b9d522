"""The published protocols, as data."""

from holdfast.attacks.gradient import GradientAttack

PRESETS = {
    # RVT (Mao et al. 2022), also reported by AFAT, FAN and TAP+ADL
    "fgsm": GradientAttack(eps=1 / 255, alpha=1 / 255, steps=1, random_start=False),
    "pgd5": GradientAttack(eps=1 / 255, alpha=0.5 / 255, steps=5),
    # RVT's test of adversarially trained networks
    "pgd3-rvt-adv": GradientAttack(eps=4 / 255, alpha=8 / 255 / 3, steps=3),
    # what AFAT's released code runs, unlike its paper
    "pgd5-rspc": GradientAttack(eps=8 / 255, alpha=2 / 255, steps=5),
}
