"""Networks of torchvision, timm and transformers with random weights, and inputs of them.

Batch norms have the statistics of the inputs. Tiny ones are made of a configuration: text models
get embeddings, because rows of a table are the host's; pictures have 64 x 64 pixels where the model
allows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

TORCHVISION = (
    *("alexnet", "squeezenet1_1", "vgg11", "resnet18", "googlenet", "inception_v3"),
    *("regnet_y_400mf", "regnet_x_400mf", "shufflenet_v2_x1_0", "mobilenet_v2"),
    *("mobilenet_v3_small", "mnasnet1_0", "efficientnet_b0", "convnext_tiny", "densenet121"),
)
TIMM = (
    *("lcnet_050", "tinynet_e", "repvgg_a0", "gernet_s", "dla34", "selecsls42b", "resnet14t"),
    *("cs3darknet_s", "resmlp_12_224", "deit_tiny_patch16_224", "levit_128s", "poolformer_s12"),
    *("mobilenetv4_conv_small", "ghostnet_100", "hardcorenas_a", "starnet_s1", "mobileone_s0"),
    *("edgenext_xx_small", "mobilevit_xxs", "ese_vovnet19b_dw"),
)
ARCHITECTURES = (*(f"torchvision/{n}" for n in TORCHVISION), *(f"timm/{n}" for n in TIMM))


@cache
def declare_operators() -> None:
    """Declare what torchvision cannot be imported without where its binary is for another torch."""
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError:  # an operator of its binary is missing; nothing here calls one
        for missing in ("nms", "qnms"):
            torch.library.define(f"torchvision::{missing}", "(Tensor x) -> Tensor")


def built(name: str) -> tuple[Any, Any]:
    """Return a network with random weights, and five images of the size that it was made for."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    source, _, model = name.partition("/")
    declare_operators()
    if source == "torchvision":
        from torchvision.models import get_model

        shape, module = (3, 224, 224), get_model(model, weights=None)
    else:
        import timm

        module = timm.create_model(model)
        shape = module.default_cfg["input_size"]
    images = np.random.default_rng(0).normal(0, 1, (5, *shape)).astype(np.float32)
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
    return with_statistics(module, images), images


def with_statistics(module: Any, inputs: np.ndarray[Any, Any]) -> Any:
    """Return a module whose batch norms have the statistics of some inputs."""
    import torch

    module.eval()
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            part.momentum = None  # replaces what is there, instead of mixing with it
            part.train()
    with torch.no_grad():
        module(torch.from_numpy(inputs))
    return module.eval()


# ------------------------------------------------------------------------------------ tiny ones

TOKENS, WIDTH = 16, 64
TINY = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
SMALL = {"image_size": 64, "patch_size": 16}
STAGES = {"hidden_sizes": [16, 32, 64, 64], "depths": [1] * 4, "num_hidden_layers": 4}
D_MODEL = {
    "d_model": WIDTH,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
}
"""Sizes of configurations, under the names that most have."""


@dataclass(frozen=True)
class Text:
    """A configuration of transformers, by its type; its network takes embeddings."""

    kind: str
    sizes: dict[str, Any] = field(default_factory=dict)

    def inputs(self) -> tuple[int, ...]:
        """Return the shape of an input."""
        return TOKENS, WIDTH

    def given(self, x: Any) -> dict[str, Any]:
        """Return what the network takes."""
        return {"inputs_embeds": x}


class Decoder(Text):
    """Tokens that see those before; a mask of all spares the network the search for sequences."""

    def given(self, x: Any) -> dict[str, Any]:
        import torch

        seen = torch.ones([*map(int, x.shape[:2])], dtype=torch.int64)
        return {"inputs_embeds": x, "attention_mask": seen}


class Pair(Text):
    """An encoder and a decoder."""

    def given(self, x: Any) -> dict[str, Any]:
        return {"inputs_embeds": x, "decoder_inputs_embeds": x[:, :8]}


class Picture(Text):
    """A network of transformers that takes a picture."""

    def inputs(self) -> tuple[int, ...]:
        size = self.sizes.get("image_size", 64)
        return 3, size, size

    def given(self, x: Any) -> dict[str, Any]:
        return {"pixel_values": x}


class Sound(Text):
    """A network of transformers that takes a wave."""

    def inputs(self) -> tuple[int, ...]:
        return (1600,)

    def given(self, x: Any) -> dict[str, Any]:
        return {"input_values": x}


GPT = {"n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 8}
GROUPED = {"num_key_value_heads": 2, "head_dim": 16}
WAVE = {"conv_dim": (32, 32), "conv_stride": (5, 4), "conv_kernel": (10, 8)}
WAVE |= {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
TRANSFORMERS: tuple[Text, ...] = (
    *map(Text, ("bert", "roberta", "camembert", "ernie", "megatron-bert", "mpnet")),
    Text("electra", {"embedding_size": WIDTH}),
    Text("distilbert", {"dim": WIDTH, "n_layers": 2, "n_heads": 4, "hidden_dim": 128}),
    Text("albert", {"embedding_size": WIDTH}),
    Text("modernbert", {"local_attention": 8}),
    *map(Text, ("deberta-v2", "roformer")),
    Text("convbert", {"embedding_size": WIDTH}),
    Text("rembert", {"input_embedding_size": WIDTH}),
    *(Decoder(kind, GPT) for kind in ("gpt2", "gptj", "codegen")),
    Decoder(
        "gpt_neo", {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]}
    ),
    Decoder("gpt_neox"),
    Decoder("opt", {"ffn_dim": 128, "word_embed_proj_dim": WIDTH}),
    Decoder("bloom", {"n_layer": 2, "n_head": 4}),
    *(Decoder(kind, GROUPED) for kind in ("llama", "mistral", "qwen2", "qwen3", "gemma")),
    *(Decoder(kind, GROUPED) for kind in ("phi", "stablelm", "olmo2", "granite")),
    Pair("t5", {"d_model": WIDTH, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}),
    *(Pair(kind, D_MODEL) for kind in ("bart", "pegasus")),
    *(Picture(kind, SMALL) for kind in ("vit", "deit", "beit", "dinov2")),
    Picture("segformer", {**STAGES, "num_attention_heads": [1, 2, 4, 4]}),
    Picture("convnext", {**STAGES, "num_stages": 4}),
    Sound("wav2vec2", WAVE),
)
TINY_TIMM = (
    "test_vit", "test_vit2", "test_vit3", "test_resnet", "test_convnext", "test_efficientnet",
    "test_efficientnet_ln", "test_nfnet", "test_byobnet", "test_mambaout", "vit_tiny_patch16_224",
    "deit_tiny_distilled_patch16_224", "cait_xxs24_224", "xcit_nano_12_p16_224", "mixer_s32_224",
    "gmixer_12_224", "resmlp_12_224", "pit_ti_224", "levit_128s", "mobilevit_xxs",
    "mobilevitv2_050", "edgenext_xx_small", "efficientvit_b0", "poolformer_s12",
    "convnextv2_atto", "coat_lite_tiny", "fastvit_t8", "repvit_m0_9", "starnet_s1",
    "mobilenetv3_small_050", "lcnet_035", "ghostnet_050", "mobileone_s0", "repvgg_a0",
    "resnet10t", "regnety_002", "res2net50_14w_8s", "dla46_c", "rexnetr_100", "sequencer2d_s",
)  # fmt: skip
TINY_CASES: dict[str, Text | str] = {
    **{f"transformers/{text.kind}": text for text in TRANSFORMERS},
    **{f"timm/{name}": name for name in TINY_TIMM},
}


def of_transformers(text: Text) -> tuple[Any, tuple[int, ...]]:
    """Return a network of transformers that takes one tensor, and the shape of that."""
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(text.kind, **{**TINY, **text.sizes})
    config.use_cache = False
    module = AutoModel.from_config(config, attn_implementation="eager")
    return _of_one(module, lambda x: module(**text.given(x))), text.inputs()


def of_timm(name: str) -> tuple[Any, tuple[int, ...]]:
    """Return a network of timm, and the shape of an image: a small one where it takes that."""
    import timm

    for size in (64, 96, 128, 0):
        try:
            module = timm.create_model(name, **({"img_size": size} if size else {}))
        except (AssertionError, TypeError, RuntimeError, ValueError):
            continue
        shape = (3, size, size) if size else _smallest(module)
        return _of_one(module, module), shape
    raise SystemExit(f"timm builds no {name}")


def _of_one(module: Any, call: Callable[[Any], Any]) -> Any:
    """Return a network as a module from one tensor, x, to one: its first result."""
    import torch

    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> Any:
            found = call(x)
            return found if isinstance(found, torch.Tensor) else found[0]

    return Network()


def _smallest(module: Any) -> tuple[int, ...]:
    """Return the smallest shape of an image that a network takes."""
    import torch

    for size in (64, 96, 128):
        try:
            with torch.no_grad():
                module.eval()(torch.zeros(1, 3, size, size))
        except (AssertionError, RuntimeError, ValueError):
            continue
        return 3, size, size
    return tuple(module.default_cfg["input_size"])


def tiny(name: str, count: int) -> tuple[Any, np.ndarray[Any, Any]]:
    """Return a network with random weights, whose norms fit its images, and its inputs."""
    import torch

    torch.manual_seed(0)
    declare_operators()
    case = TINY_CASES[name]
    module, shape = of_timm(case) if isinstance(case, str) else of_transformers(case)
    inputs = np.random.default_rng(0).normal(0, 1, (count, *shape)).astype(np.float32)
    return with_statistics(module, inputs), inputs
