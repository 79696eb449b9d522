"""How well does my timm model hold on my own images? Scores, a page to send around, and what is inside.

    python examples/my_timm_model_on_my_folder.py FOLDER [MODEL] [OUT]

FOLDER has one folder of images per class, and the model as many classes: fine-tune one with
``holdfast train finetune --init timm:NAME --data.train=folder:TRAIN --data.val=folder:VAL`` if yours has others.
"""

import sys
from pathlib import Path

import timm

import holdfast

folder = Path(sys.argv[1])
name = sys.argv[2] if len(sys.argv) > 2 else "vit_tiny_patch16_224"
out = Path(sys.argv[3]) if len(sys.argv) > 3 else Path("runs") / name

classes = len([path for path in folder.iterdir() if path.is_dir()])
# your own weights: pretrained=True, or holdfast.load_checkpoint(model, "my.pth"); these are random
model = timm.create_model(name, num_classes=classes)

# 15 corruptions × 5 severities, generated on the fly; run it again to resume
records = holdfast.evaluate(model, f"folder:{folder}", "clean,corruptions,pgd5", out=out, limit=200)
print(records.summary()["mean_corruption_accuracy"])

# attention under noise; for models whose attention Holdfast can read
holdfast.analyze(model, f"folder:{folder}", "stability,diversity", out=out, limit=32, label=name)

holdfast.report(out, out=out / "report.html", names=[name])
print(f"the report: {out / 'report.html'}")
