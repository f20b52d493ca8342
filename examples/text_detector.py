"""A real network with published weights: the text detector of PP-OCRv4 on VTA.

    pip install rapidocr-onnxruntime matplotlib     # the weights, their pre- and post-processing
    python examples/text_detector.py -o text_boxes.png

Pages of text are drawn with Pillow. The float model and the one on VTA (every convolution there, on
the functional simulator) find text in them; boxes are made by the package's own post-processing
(threshold, contours, unclip). Printed are the overlap of the boxes and what ran where.
"""

import argparse
import importlib.util
import json
from pathlib import Path

import numpy as np

try:
    from PIL import Image, ImageDraw, ImageFont
except ModuleNotFoundError as error:
    raise SystemExit("Pillow is missing: pip install rapidocr-onnxruntime matplotlib") from error

WORDS = "tensor accelerator load store compute token queue micro code tile relax graph 2026 int8"


def weights():
    """Return the path of the float ONNX model."""
    found = importlib.util.find_spec("rapidocr_onnxruntime")
    if found is None or found.origin is None:
        raise SystemExit("the weights are missing: pip install rapidocr-onnxruntime")
    return Path(found.origin).parent / "models" / "ch_PP-OCRv4_det_infer.onnx"


def page(seed, size=736):
    """Draw lines of words: random sizes, places and colours; every third page light on dark."""
    rng = np.random.default_rng(seed)
    light, dark = (tuple(rng.integers(*span, 3).tolist()) for span in ((180, 256), (0, 90)))
    if seed % 3 == 2:
        light, dark = dark, light
    picture = Image.new("RGB", (320, 320), light)
    draw, y = ImageDraw.Draw(picture), int(rng.integers(8, 24))
    while y < 280:
        height = int(rng.integers(16, 40))
        text = " ".join(rng.choice(WORDS.split(), rng.integers(1, 4)))
        font = ImageFont.load_default(height)
        draw.text((int(rng.integers(5, 60)), y), text, fill=dark, font=font)
        y += height + int(rng.integers(14, 40))
    return picture.resize((size, size), Image.Resampling.BILINEAR)


def tensor(picture):
    """Return a picture as the network takes it: NCHW, -1..1."""
    pixels = np.asarray(picture, np.float32) / 127.5 - 1
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])


def find_boxes(probabilities):
    """Return the boxes (n, 4 corners, 2) in a map of probabilities, as the package does."""
    from rapidocr_onnxruntime.ch_ppocr_det.utils import DBPostProcess

    process = DBPostProcess(
        thresh=0.3, box_thresh=0.5, unclip_ratio=1.6, score_mode="fast", use_dilation=True
    )
    return process(probabilities, probabilities.shape[2:])[0]


def overlaps(boxes, others):
    """Return for each box its greatest intersection over union with one of the others."""
    from shapely.geometry import Polygon

    shapes = [[Polygon(box) for box in each] for each in (boxes, others)]
    return [
        max((a.intersection(b).area / a.union(b).area for b in shapes[1]), default=0.0)
        for a in shapes[0]
    ]


def mask_overlap(first, second, threshold=0.3):
    """Return intersection over union of the pixels that two maps call text."""
    a, b = first > threshold, second > threshold
    return float((a & b).sum() / max(1, (a | b).sum()))


def quantized(size=736, pages=8, scales="pow2"):
    """Return the detector quantised with pages that are not among those shown."""
    import vtaops

    return vtaops.quantize(
        weights(),
        {"x": np.concatenate([tensor(page(100 + seed, size)) for seed in range(pages)])},
        scales=scales,
        zero_points=True,
        equalization=True,
        bias_correction=True,
    )


def float_detector(size=736):
    """Return the float network as a function from tensor to probabilities."""
    from vtaops.graph import onnx_files
    from vtaops.graph.probe import Probe

    probe = Probe(onnx_files.opened(weights(), {"x": (1, 3, size, size)}), exact=False)
    return lambda x: next(iter(probe.run({"x": x}).values()))


def draw(picture, exact, found, shares, output):
    """Write a page twice: with the boxes of the float network, and with those of VTA."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Polygon

    figure = Figure((9, 5), layout="constrained")
    panels = figure.subplots(1, 2)
    titles = f"float: {len(exact)} boxes", f"int8 on VTA: {len(found)} boxes, overlap with float"
    for axes, title, boxes in zip(panels, titles, (exact, found), strict=True):
        axes.imshow(picture)
        axes.set_title(title, fontsize=10)
        axes.set_axis_off()
        for box in boxes:
            axes.add_patch(Polygon(box, fill=False, edgecolor="#0b6fbf", linewidth=1.5))
    for box, share in zip(found, shares, strict=True):
        right, top = np.max(box, axis=0)[0], np.min(box, axis=0)[1]
        panels[1].text(right, top - 4, f"{share:.2f}", color="#0b6fbf", ha="right", fontsize=9)
    figure.savefig(output, dpi=110)


def main():
    """Quantise, compile, run and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="pynq")
    parser.add_argument("--scales", default="pow2", choices=["pow2", "free"])
    parser.add_argument("--size", type=int, default=736, help="side of the pictures")
    parser.add_argument("--pictures", type=int, default=6)
    parser.add_argument("-o", "--output", help="picture of the first page with boxes; data beside")
    arguments = parser.parse_args()

    import vtaops
    from vtaops.model.tables import summary

    model = vtaops.compile_model(
        quantized(arguments.size, scales=arguments.scales), arguments.config
    )
    convolutions = [row for row in model.plan if "convolution" in row.operator]
    on_vta = sum(row.where == "vta" for row in convolutions)
    print(f"{on_vta} of {len(convolutions)} convolutions on VTA, {len(model.programs)} launches")
    print(summary(model.report()))
    exact = float_detector(arguments.size)
    worst = 1.0
    for seed in range(arguments.pictures):
        x = tensor(page(seed, arguments.size))
        expected, found = exact(x), model.run(x)
        if seed == 0 and not np.array_equal(found, model.reference(x)):
            raise SystemExit("the simulator and the integer executor differ")
        boxes, ours = find_boxes(expected), find_boxes(found)
        both = overlaps(boxes, ours)
        worst = min([worst, *both]) if len(boxes) == len(ours) else 0.0
        shown = " ".join(f"{value:.2f}" for value in both)
        print(
            f"page {seed}: {len(boxes)} boxes of float, {len(ours)} of VTA; overlaps {shown}; "
            f"pixels {mask_overlap(expected, found):.3f}"
        )
        if seed == 0 and arguments.output:
            draw(page(seed, arguments.size), boxes, ours, both, arguments.output)
            corners = {"float": np.asarray(boxes).tolist(), "vta": np.asarray(ours).tolist()}
            data = {"size": arguments.size, "boxes": corners, "overlaps": both}
            Path(arguments.output).with_suffix(".json").write_text(json.dumps(data) + "\n")
    print(f"least overlap of a box: {worst:.2f}")


if __name__ == "__main__":
    main()
