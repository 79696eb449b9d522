"""``holdfast.improve``: robust fine-tunings that fit a budget, chosen without the test images, and a decision."""
