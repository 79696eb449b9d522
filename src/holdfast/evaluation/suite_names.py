"""The suites by name, with a line each: what ``holdfast list suites`` prints, without torch."""

_ATTACKS = {
    "fgsm": "FGSM, L∞ 1/255 (RVT)",
    "pgd5": "PGD, L∞ 1/255, 5 steps (RVT; AFAT's Table 3)",
    "pgd3-rvt-adv": "PGD, L∞ 4/255, 3 steps (RVT's test of adversarially trained networks)",
    "pgd5-rspc": "PGD, L∞ 8/255, 5 steps (AFAT's released code)",
    "patch-fool": "Patch-Fool, one patch, 250 steps",
    "patch-fool-sparse": "Patch-Fool, 250 pixels",
    "occlusion-random": "a tenth of the patches replaced by noise, 10 masks",
    "occlusion-attention": "the tenth that receives the most attention replaced by noise (ViT, DeiT, FAN)",
    "autoattack-imagenet": "AutoAttack, L∞ 4/255",
    "autoattack-cifar": "AutoAttack, L∞ 8/255",
    "autoattack-cifar-l2": "AutoAttack, L2 0.5",
    "segpgd5": "SegPGD, L∞ 1/255, 5 steps (segmentation)",
    "pgd20": "PGD, L∞ 8/255, 20 steps",
    "segpgd20": "SegPGD, L∞ 8/255, 20 steps (segmentation)",
    "occlusion-learned": "the same where a corruption model wants it, fitted to the model and the images",
}
STORED = {
    "imagenet-c": "ImageNet-C as stored: --data imagenet-c:DIR",
    "cifar-c": "CIFAR-10-C or CIFAR-100-C as stored: --data cifar10-c:DIR or cifar100-c:DIR",
    "imagenet-a": "ImageNet-A, 200 classes: --data imagenet-a:DIR",
    "imagenet-r": "ImageNet-R, 200 classes: --data imagenet-r:DIR",
    "imagenet-sketch": "ImageNet-Sketch: --data imagenet-sketch:DIR",
}
SUITES: dict[str, str] = {
    "clean": "the images as they are",
    "corruptions": "15 corruptions × 5 severities, on the fly (--extra: 19 × 5; of label maps the 16 of Cityscapes-C)",
    "corruptions-135": "the same corruptions at severities 1, 3 and 5 alone: quicker, and no mCE",
    "cityscapes-c": "Cityscapes-C: 16 corruptions, noise at severities 1–3, on the fly or from cityscapes-c:DIR",
    "own-corruptions": "every corruption that you registered × 5 severities, on the fly",
    "coco-c": "COCO-C: 15 corruptions × 5 severities of objects' images at their own size (Michaelis et al.)",
    "coco-c-fan": "the 16 kinds of FAN's Table 14 × 5 severities, likewise; not comparable with coco-c",
    "perturbations": "10 perturbation sequences (--extra: 14), on the fly or from imagenet-p:DIR, cifar10-p:DIR",
    **STORED,
    **_ATTACKS,
}
OF_OBJECTS = ("coco-c", "coco-c-fan")
