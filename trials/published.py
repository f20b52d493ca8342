"""Convolutions of published networks: classification, detection, segmentation, and their relatives.

Shapes are those of the papers and of the common implementations (images of 224x224, 299x299 for
Inception, 513x513 for DeepLab, 800x1088 for two-stage detectors), one entry for each distinct
layer. Kernels are written k or (k, k), padding "same" unless said.
"""

from __future__ import annotations

from collections.abc import Iterator

from vtaops import Conv2d, Conv2dTranspose


def conv(i: int, o: int, size: int | tuple[int, int], k=3, s=1, p=None, d=1, g: int = 1) -> Conv2d:
    """Return a convolution; `p` None pads such that stride 1 keeps the size."""
    height, width = (size, size) if isinstance(size, int) else size
    (kh, kw), (dh, dw) = ((v, v) if isinstance(v, int) else v for v in (k, d))
    if p is None:
        p = ((kh - 1) * dh // 2, (kw - 1) * dw // 2)
    return Conv2d(
        in_channels=i,
        out_channels=o,
        height=height,
        width=width,
        kernel=(kh, kw),
        strides=s,
        padding=p,
        dilation=(dh, dw),
        groups=g,
    )


def depthwise(c: int, size: int | tuple[int, int], k=3, s=1, d=1) -> Conv2d:
    return conv(c, c, size, k, s, d=d, g=c)


def plain_classifiers() -> Iterator[Conv2d]:
    """AlexNet, ZFNet, OverFeat, VGG."""
    yield from (conv(3, 96, 227, 11, 4, 0), conv(3, 64, 224, 11, 4, 2), conv(3, 96, 224, 7, 2, 1))
    yield from (conv(96, 256, 27, 5, g=2), conv(64, 192, 27, 5), conv(96, 256, 55, 5, 2, 0))
    yield from (conv(256, 384, 13), conv(384, 384, 13, g=2), conv(384, 256, 13, g=2))
    yield from (conv(192, 384, 13), conv(384, 256, 13), conv(3, 96, 231, 11, 4, 0))
    yield from (conv(256, 512, 12), conv(512, 1024, 12), conv(1024, 1024, 12))
    vgg = [(3, 64, 224), (64, 64, 224), (64, 128, 112), (128, 128, 112), (128, 256, 56)]
    vgg += [(256, 256, 56), (256, 512, 28), (512, 512, 28), (512, 512, 14)]
    yield from (conv(*layer) for layer in vgg)


def residual_classifiers() -> Iterator[Conv2d]:
    """ResNet, Wide ResNet, ResNeXt, RegNet, ResNeSt, SE, RepVGG, on 224x224 and on CIFAR."""
    yield conv(3, 64, 224, 7, 2)
    for c, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        yield from (conv(c, c, size), conv(c, 4 * c, size, 1), conv(4 * c, c, size, 1))
        yield from (conv(2 * c, 2 * c, size), conv(2 * c, 4 * c, size, 1))
        yield conv(2 * c, 2 * c, size, g=32)
        yield conv(4 * c, 4 * c, size, g=32)
        if size > 7:
            yield from (conv(c, 2 * c, size, s=2), conv(c, 2 * c, size, 1, 2))
            yield from (conv(4 * c, 8 * c, size, 1, 2), conv(2 * c, 2 * c, size, s=2))
            yield conv(4 * c, 4 * c, size, s=2, g=32)
    for c in (16, 32, 64, 160, 320, 640):
        yield conv(c, c, {16: 32, 32: 16, 64: 8, 160: 32, 320: 16, 640: 8}[c])
    for width, channels in ((8, 440), (16, 384), (24, 888), (40, 400), (48, 336), (56, 784)):
        for size in (28, 14, 7):
            yield conv(channels, channels, size, g=channels // width)
    for channels, width in ((2240, 112), (1920, 120), (2520, 168), (2904, 264), (3712, 232)):
        yield conv(channels, channels, 14, s=2, g=channels // width)
    for c, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        yield conv(c, 2 * c, size, g=2)
        yield from (conv(c, c // 4, 1, 1), conv(c // 4, 2 * c, 1, 1, g=2 if c < 512 else 1))
    yield from (conv(1280, 1280, 14, g=4), conv(192, 192, 28, g=4), conv(2048, 128, 1, 1))


def branched_classifiers() -> Iterator[Conv2d]:
    """SqueezeNet, GoogLeNet, Inception v3 and v4, Xception, DenseNet, NASNet, DLA, HRNet."""
    yield from (conv(3, 96, 224, 7, 2, 0), conv(96, 16, 55, 1), conv(16, 64, 55), conv(64, 256, 27))
    yield from (conv(512, 1000, 13, 1), conv(48, 192, 13), conv(512, 64, 13, 1))
    for i, o, size, k in (
        (192, 64, 28, 1), (96, 128, 28, 3), (16, 32, 28, 5), (480, 192, 14, 1), (112, 224, 14, 3),
        (24, 64, 14, 5), (832, 384, 7, 1), (192, 384, 7, 3), (48, 128, 7, 5), (528, 160, 14, 1),
    ):  # fmt: skip
        yield conv(i, o, size, k)
    yield from (conv(3, 32, 299, 3, 2, 0), conv(32, 32, 149, 3, 1, 0), conv(32, 64, 147))
    yield from (conv(80, 192, 73, 3, 1, 0), conv(48, 64, 35, 5), conv(288, 384, 35, 3, 2, 0))
    for c in (128, 160, 192):
        for k in ((1, 7), (7, 1)):
            yield from (conv(c, c, 17, k), conv(c, 192, 17, k))
    for k in ((1, 3), (3, 1)):
        yield from (conv(384, 384, 8, k), conv(448, 512, 8, k), conv(256, 256, 8, k))
    yield from (conv(2048, 448, 8, 1), conv(448, 384, 8), conv(320, 320, 17, 3, 2, 0))
    yield from (conv(192, 224, 17, (1, 7)), conv(224, 256, 17, (7, 1)), conv(2080, 192, 8, 1))
    for c, size in ((64, 147), (128, 147), (256, 74), (728, 37), (728, 19), (1536, 10)):
        yield depthwise(c, size)
    yield from (conv(728, 728, 19, 1), conv(1024, 1536, 10, 1), conv(1536, 2048, 10, 1))
    for i, o, size in ((64, 32, 56), (128, 32, 28), (512, 32, 14), (1024, 32, 7), (192, 48, 7)):
        yield from (conv(i, 4 * o, size, 1), conv(4 * o, o, size))
    yield from (conv(1920, 960, 7, 1), conv(2208, 192, 7, 1), conv(2112, 1056, 14, 1))
    for c, size in ((44, 56), (88, 28), (176, 14), (352, 7), (1056, 7)):
        yield from (depthwise(c, size, 5), depthwise(c, size, 7), depthwise(c, size, 3))
    for c, size in ((18, 56), (36, 28), (72, 14), (144, 7), (32, 56), (48, 128), (96, 64)):
        yield from (conv(c, c, size), conv(c, 2 * c, size, s=2))


def mobile_classifiers() -> Iterator[Conv2d]:
    """MobileNet v1 to v3, ShuffleNet, MnasNet, EfficientNet, GhostNet, MixNet, CondenseNet."""
    yield conv(3, 32, 224, 3, 2)
    for c, size, s in (
        (32, 112, 1), (64, 112, 2), (128, 56, 1), (128, 56, 2), (256, 28, 1), (256, 28, 2),
        (512, 14, 1), (512, 14, 2), (1024, 7, 1), (96, 112, 2), (144, 56, 1), (192, 28, 2),
        (384, 14, 1), (576, 14, 2), (960, 7, 1),
    ):  # fmt: skip
        yield depthwise(c, size, 3, s)
    for i, o, size in (
        (32, 64, 112), (64, 128, 56), (128, 256, 28), (256, 512, 14), (512, 1024, 7),
        (16, 96, 112), (24, 144, 56), (144, 32, 28), (192, 64, 14), (96, 576, 14), (960, 320, 7),
        (320, 1280, 7), (960, 1280, 1), (1280, 1000, 1), (672, 168, 1), (240, 64, 1), (8, 32, 1),
    ):  # fmt: skip
        yield conv(i, o, size, 1)
    for c, size, k, s in (
        (72, 56, 5, 2), (120, 28, 5, 1), (240, 28, 3, 2), (672, 14, 5, 2), (960, 7, 5, 1),
        (144, 56, 5, 2), (480, 14, 5, 1), (1152, 7, 5, 1), (3840, 10, 3, 1), (2304, 19, 5, 1),
    ):  # fmt: skip
        yield depthwise(c, size, k, s)
    groups_and_channels = {1: (144, 288, 576), 2: (200, 400, 800), 3: (240, 480, 960)}
    groups_and_channels |= {4: (272, 544, 1088), 8: (384, 768, 1536)}
    for g, channels in groups_and_channels.items():
        for c, size in zip(channels, (28, 14, 7), strict=True):
            yield from (conv(c, c // 4, size, 1, g=g), conv(c // 4, c, size, 1, g=g))
            yield depthwise(c // 4, size)
        yield conv(24, channels[0] // 4, 56, 1)
        yield conv(channels[0], channels[1] // 4, 28, 1, g=g)
        yield conv(channels[1] // 4, channels[1] - channels[0], 14, 1, g=g)
    for c, size in ((24, 56), (58, 28), (116, 14), (232, 7), (88, 14), (122, 28), (244, 14)):
        yield from (conv(c, c, size, 1), depthwise(c, size), depthwise(c, size, 3, 2))
    yield from (conv(464, 1024, 7, 1), conv(8, 8, 112, 1), depthwise(8, 112), depthwise(100, 14))
    for c, size, k in ((40, 28, 9), (60, 14, 7), (120, 14, 11), (264, 7, 9), (48, 56, 7)):
        yield depthwise(c, size, k)
    for i, o, size in ((64, 32, 28), (160, 64, 14), (256, 128, 14), (480, 128, 7)):
        yield from (conv(i, o, size, 1, g=4), conv(4 * o, o // 4, size, g=4), conv(i, o, size, g=8))


def modern_classifiers() -> Iterator[Conv2d]:
    """ConvNeXt, RepLKNet, SLaK, patches of transformers, ConvMixer, PoolFormer, CvT, CoaT."""
    for c, size in ((96, 56), (192, 28), (384, 14), (768, 7), (1536, 7)):
        yield from (depthwise(c, size, 7), conv(c, 2 * c, size, 2, 2, 0))
    for c, size, k in ((128, 56, 31), (256, 28, 29), (512, 14, 27), (1024, 7, 13), (128, 56, 5)):
        yield depthwise(c, size, k)
    for c, size, k in ((124, 56, (51, 5)), (124, 56, (5, 51)), (248, 28, (5, 49)), (992, 7, 13)):
        yield depthwise(c, size, k)
    for o, k in ((768, 16), (384, 16), (768, 32), (1024, 14), (96, 4), (192, 4), (1536, 7)):
        yield conv(3, o, 224, k, k, 0)
    yield from (conv(3, 64, 224, 7, 4), conv(64, 192, 56, 3, 2), conv(3, 768, 518, 14, 14, 0))
    yield from (depthwise(768, 32, 7), depthwise(1536, 32, 9), depthwise(320, 14, 3))
    for c, size, k in ((64, 56, 8), (128, 28, 4), (320, 14, 2)):
        yield conv(c, c, size, k, k, 0)
    for c, size in ((32, 64), (64, 32), (160, 16), (256, 8)):
        yield from (depthwise(c, size, 21), depthwise(c, size, 7, d=3), depthwise(c, size, 5))


def detectors() -> Iterator[Conv2d]:
    """SSD, YOLO v1 to v8, Faster and Mask R-CNN, RetinaNet, FCOS, EfficientDet, CenterNet, DETR."""
    yield from (conv(512, 1024, 19, d=6), conv(1024, 1024, 19, 1), conv(256, 512, 19, s=2))
    for i, size, anchors in ((512, 38, 4), (1024, 19, 6), (512, 10, 6), (256, 5, 6), (256, 3, 4)):
        yield from (conv(i, anchors * 4, size), conv(i, anchors * 21, size))
    yield from (conv(128, 256, 5, 3, 1, 0), conv(256, 128, 10, 1), conv(256, 256, 3, 3, 1, 0))
    yield from (conv(3, 64, 448, 7, 2), conv(1024, 1024, 14, s=2), conv(64, 192, 112))
    for c, size in ((32, 416), (64, 208), (128, 104), (256, 52), (512, 26)):
        yield from (conv(c, 2 * c, size), conv(c, 2 * c, size, s=2), conv(2 * c, c, size // 2, 1))
    yield from (conv(1024, 255, 13, 1), conv(512, 255, 26, 1), conv(1280, 1024, 13))
    yield from (conv(3, 32, 640, 6, 2, 2), conv(3, 48, 640), conv(12, 64, 320), conv(64, 64, 80))
    yield from (conv(320, 255, 20, 1), conv(640, 64, 20), conv(512, 80, 20), conv(80, 80, 80, 1))
    for size in ((200, 272), (100, 136), (50, 68), (25, 34), (13, 17), (7, 9)):
        yield from (conv(256, 256, size), conv(256, 15, size, 1), conv(256, 36, size))
        yield from (conv(256, 720, size), conv(256, 4, size))
    yield from (conv(3, 64, (800, 1088), 7, 2), conv(2048, 256, (25, 34), 1, p=0))
    yield from (conv(2048, 256, (25, 34), s=2), conv(256, 256, 14), conv(256, 81, 28, 1))
    yield from (conv(256, 256, 7), conv(1024, 512, (50, 68)), conv(512, 512, (50, 68), d=2))
    for c, size in ((64, 64), (88, 32), (112, 16), (160, 8), (224, 4), (288, 96), (384, 128)):
        yield from (depthwise(c, size), conv(c, c, size, 1), conv(c, 810, size, 1))
    yield from (conv(3, 128, 512, 7, 2), conv(256, 80, 128, 1), conv(384, 512, 8, s=2))


def segmentation() -> Iterator[Conv2d]:
    """FCN, DilatedNet, DeepLab, PSPNet, U-Net, ENet, ERFNet, ESPNet, LR-ASPP, BiSeNet, DDRNet."""
    yield from (conv(512, 4096, 22, 7, 1, 0), conv(4096, 4096, 16, 1), conv(4096, 21, 16, 1))
    yield from (conv(3, 64, 224, 3, 1, 100), conv(512, 4096, 14, 7, p=(3, 3)))
    for size in (33, 65):
        for rate in (6, 12, 18, 24, 36):
            yield from (conv(2048, 256, size, d=rate), depthwise(2048, size, d=rate))
            yield from (conv(320, 256, size, d=rate), conv(960, 128, size, d=rate))
        for rate in (2, 4, 8, 16):
            yield from (conv(256, 256, size, d=rate), conv(512, 512, size, d=rate))
        yield from (conv(2048, 256, size, 1), conv(1280, 256, size, 1), depthwise(728, size, d=2))
    for rate in (6, 12, 18, 24):
        yield from (conv(512, 1024, 41, d=rate), conv(2048, 21, 41, d=rate))
    for factor, rate in ((1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 1)):
        yield conv(21 * factor // max(1, factor // 2), 21 * factor, 64, d=rate)
    yield from (
        conv(21, 21, 64, d=16),
        conv(4096, 512, 60),
        conv(4096, 1024, 60),
        conv(304, 256, 129),
    )
    yield from (conv(2048, 512, 6, 1), conv(256, 48, 129, 1), conv(512, 19, 90, 1))
    for i, o, size in (
        (1, 64, 572),
        (64, 128, 284),
        (256, 256, 138),
        (512, 1024, 32),
        (1024, 1024, 30),
    ):
        yield conv(i, o, size, 3, 1, 0)
    yield from (conv(1024, 512, 56, 3, 1, 0), conv(64, 2, 388, 1), conv(128, 64, 392, 3, 1, 0))
    for c, size in ((16, 128), (32, 64), (64, 64), (128, 64)):
        for rate in (1, 2, 4, 8, 16):
            yield from (conv(c, c, size, d=rate), conv(c, c, size, (3, 1), d=(rate, 1)))
            yield conv(c, c, size, (1, 3), d=(1, rate))
        yield from (conv(c, c, size, (5, 1)), conv(c, c, size, (1, 5)), conv(c, c, size, 2, 2, 0))
    for rate in (1, 2, 4, 8, 16):
        yield from (conv(12, 12, 128, d=rate), conv(25, 28, 64, d=rate), depthwise(24, 64, d=rate))
    yield from (
        conv(3, 13, 512, 3, 2),
        conv(3, 64, (1024, 2048), 3, 2),
        conv(512, 128, (32, 64), 5, 2, 2),
    )
    yield from (
        conv(960, 128, (64, 128), 1),
        conv(128, 128, (64, 128)),
        conv(256, 256, (128, 256), 3, 2),
    )


def relatives() -> Iterator[Conv2d]:
    """Super resolution, style, pose, GANs, audio, speech, sequences: whatever is called conv2d."""
    yield from (conv(1, 64, 128, 9), conv(64, 32, 128, 1), conv(32, 1, 128, 5), conv(56, 1, 128, 9))
    yield from (conv(3, 32, 256, 9), conv(64, 64, 96), conv(3, 64, 256, 7), conv(64, 3, 256, 9))
    yield from (
        conv(185, 128, 46, 7),
        conv(128, 128, 46, 7),
        conv(32, 32, 46, 9),
        conv(48, 48, 46, 11),
    )
    for i, o, size in ((6, 64, 256), (64, 128, 128), (128, 256, 64), (256, 512, 32), (512, 1, 31)):
        yield conv(i, o, size, 4, 2 if size != 31 else 1, 1)
    yield from (
        conv(1, 32, (161, 200), (41, 11), 2, (20, 5)),
        conv(32, 32, (81, 100), (21, 11), (2, 1)),
    )
    yield from (conv(1, 64, (49, 10), (10, 4), 2, (5, 1)), depthwise(64, (25, 5)))
    yield from (
        conv(1, 128, (1, 8000), (1, 80), (1, 4), 0),
        conv(1, 512, (1, 16000), (1, 10), (1, 5), 0),
    )
    yield from (
        conv(512, 512, (1, 3199), (1, 3), (1, 2), 0),
        conv(768, 768, (1, 49), (1, 128), g=16),
    )
    for rate in (1, 8, 64, 512):
        yield conv(32, 64, (1, 4000), (1, 2), p=(0, rate), d=(1, rate))
    yield from (conv(80, 512, (1, 400), (1, 5)), conv(256, 256, (1, 500), (1, 31), g=256))
    yield from (
        conv(1, 1, 28, 5),
        conv(1, 6, 32, 5, 1, 0),
        conv(6, 16, 14, 5, 1, 0),
        conv(16, 120, 5, 5, 1, 0),
    )


def up(i: int, o: int, size: int, k: int, s: int, p: int = 0, added: int = 0) -> Conv2dTranspose:
    """Return a transposed convolution of a square image."""
    return Conv2dTranspose(
        in_channels=i,
        out_channels=o,
        height=size,
        width=size,
        kernel=k,
        strides=s,
        padding=p,
        output_padding=added,
    )


def transposed() -> list[Conv2dTranspose]:
    """FCN, U-Net, Mask R-CNN, poses, CenterNet, DCGAN, ENet, ERFNet, FSRCNN, autoencoders."""
    layers = [up(21, 21, 16, 16, 8, 4), up(21, 21, 34, 4, 2, 1)]  # kernels that weights hold
    layers += [up(21, 21, 16, 32, 16, 8), up(19, 19, 32, 8, 4, 2), up(1024, 512, 28, 2, 2)]
    layers += [up(c, c // 2, size, 2, 2) for c, size in ((512, 56), (256, 104), (128, 200))]
    layers += [up(256, 256, 14, 2, 2), up(256, 256, 14, 4, 2, 1), up(2048, 256, 8, 4, 2, 1)]
    layers += [up(256, 256, 16, 4, 2, 1), up(256, 256, 32, 4, 2, 1), up(64, 64, 128, 4, 2, 1)]
    layers += [up(100, 1024, 1, 4, 1), up(1024, 512, 4, 4, 2, 1), up(512, 256, 8, 4, 2, 1)]
    layers += [up(256, 128, 16, 4, 2, 1), up(128, 3, 32, 4, 2, 1), up(100, 512, 1, 4, 1)]
    layers += [up(128, 64, 64, 3, 2, 1, 1), up(64, 16, 128, 3, 2, 1, 1), up(16, 19, 256, 2, 2)]
    layers += [up(56, 1, 32, 9, 3, 4), up(56, 1, 32, 9, 4, 4, 3), up(16, 8, 14, 3, 2, 1, 1)]
    return layers


NETWORKS = {
    f.__name__: f
    for f in (
        plain_classifiers,
        residual_classifiers,
        branched_classifiers,
        mobile_classifiers,
        modern_classifiers,
        detectors,
        segmentation,
        relatives,
    )
}


def published() -> list[Conv2d]:
    """Return every distinct layer."""
    return list(dict.fromkeys(layer for layers in NETWORKS.values() for layer in layers()))
