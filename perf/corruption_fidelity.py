"""How close the corruptions are to imagecorruptions-imaug, fed with its draws; writes results/corruption_fidelity.md.

    python perf/corruption_fidelity.py [--sizes 32,64,224,375x500,512x1024]

Per kind and size, over five severities and two photographs: the largest share of values that are more than one level
away from the reference, and the share that differs at all.
"""

import argparse
import sys
from pathlib import Path

import cv2
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.corruptions.oracle import oracle, photograph, replay, seed_without_the_sixth_texture

from holdfast.corruptions import ALL, KINDS, SEVERITIES, corrupt

RESULTS = Path(__file__).parent / "results" / "corruption_fidelity.md"


def shares(kind: str, height: int, width: int) -> tuple[float, float]:
    """Worst share beyond one level, and mean share of values that differ."""
    beyond, differ = [], []
    for name in ("china.jpg", "flower.jpg"):
        image = photograph(height, width, name)
        for severity in SEVERITIES:
            seed = seed_without_the_sixth_texture(100 * severity)
            theirs = oracle(image, kind, severity, seed)
            ours = corrupt(image, kind, severity=severity, rng=replay(kind, seed) if KINDS[kind].random else None)
            distance = np.abs(ours.astype(int) - theirs)
            beyond.append(float((distance > 1).mean()))
            differ.append(float((distance > 0).mean()))
    return max(beyond), float(np.mean(differ))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="32,64,224,375x500,512x1024")
    sizes = parser.parse_args().sizes.split(",")
    cv2.setNumThreads(1)
    lines = ["Percent of values more than one level away from imagecorruptions-imaug (worst of five severities and two"]
    lines += ["photographs; the bar is 0.1), and in brackets percent that differ at all (mean).", ""]
    lines += ["| kind | " + " | ".join(sizes) + " |", "|---|" + "--:|" * len(sizes)]
    for kind in ALL:
        cells = []
        for size in sizes:
            height, _, width = size.partition("x")
            beyond, differ = shares(kind, int(height), int(width or height))
            cells.append(f"{100 * beyond:.3g} ({100 * differ:.2g})")
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
