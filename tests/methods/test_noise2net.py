"""Noise2Net: distorts images with a small network of new random weights; DeepAugment without pretrained networks."""

import torch

from holdfast.methods.noise2net import noise2net


def test_noise2net_distorts_its_share_of_the_batch_differently_every_time():
    images = torch.rand(6, 3, 32, 48)
    once, again = (noise2net(images, share=0.5, low=0.0, high=1.0) for _ in range(2))
    torch.testing.assert_close(once[3:], images[3:], atol=0, rtol=0)
    assert ((once[:3] - images[:3]).abs().mean(dim=(1, 2, 3)) > 0.01).all()
    assert (once[:3] - again[:3]).abs().mean() > 0.01
    assert once.min() >= 0
    assert once.max() <= 1
    torch.manual_seed(3)
    first = noise2net(images, low=0.0, high=1.0)
    torch.manual_seed(3)
    torch.testing.assert_close(noise2net(images, low=0.0, high=1.0), first, atol=0, rtol=0)
