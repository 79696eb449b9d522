"""AFAT and ADL in a plain PyTorch loop, without Holdfast's engine."""

import timm
import torch

from holdfast.methods.adl import AttentionDiversification
from holdfast.methods.afat import AfatSettings, FeatureAlignment, corruptor_for
from holdfast.methods.robust_training import RobustObjective

model = timm.create_model("vit_nano", num_classes=10)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
# an untrained model attends evenly, and a short run needs a quick corruption model: so not the papers' values
adl = AttentionDiversification(tau=1.0, variant="paper")
afat = FeatureAlignment(corruptor_for(model, (32, 32)), AfatSettings(lr=0.01))
objective = RobustObjective(terms=[afat, adl])
for step in range(3):
    images, targets = torch.randn(8, 3, 32, 32), torch.randint(10, (8,))
    loss = objective(model, images, targets)
    loss.total.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, {name: round(float(value), 4) for name, value in {**loss.parts, **objective.update()}.items()})
