"""What a model can be trained for, in one line each, without torch; a test holds it to ``holdfast.methods``."""

LINES = {
    "cross_entropy": "plain cross-entropy, hard or soft targets",
    "pixel_cross_entropy": "cross-entropy of label maps, divided by the labelled pixels or, as published, by all",
    "detection": "the losses that a detector returns, summed",
    "robust: noise2net_share": "a share of the batch distorted by random networks (DeepAugment)",
    "robust: patches": "a second cross-entropy on patch-wise augmented images (RVT)",
    "robust: afat": "features aligned against the patches that a corruption model picks (AFAT, RSPC)",
    "robust: adl": "attention diversification loss against overfocusing (TAP+ADL)",
    "robust: adversarial": "cross-entropy on FGSM or PGD images",
    "robust: distillation": "a teacher's answers as targets, hard or soft (DeiT; FAN, Table 2)",
    "model.adapt: tora": "two adapters per block and a gate between them (TORA-ViT)",
    "model.adapt: adapter-fusion": "two adapters per block, fused by attention",
    "model.adapt: single-adapter": "one adapter per block",
    "model.adapt: head-only": "two new heads and nothing else",
    "tora": "adapters on a frozen ViT, trained for λ · robust + (1 − λ) · clean cross-entropy (TORA-ViT)",
}
