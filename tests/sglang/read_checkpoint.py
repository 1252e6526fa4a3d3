"""Run by SGLang's own Python: reads FP8 checkpoints' configurations by SGLang's own classes, and the names of their
tensors by its own mapping. Stands on stdin: {"folders": [...], "modules": [...], "scales": [...]}; prints a line each.
"""

import json
import sys
from pathlib import Path

from compressed_tensors.quantization import QuantizationConfig  # type: ignore[import-not-found]  # another environment's
from sglang.srt.layers.quantization.compressed_tensors.compressed_tensors import (  # type: ignore[import-not-found]
    CompressedTensorsConfig,
)
from sglang.srt.layers.quantization.compressed_tensors.utils import (  # type: ignore[import-not-found]
    should_ignore_layer,
)
from sglang.srt.layers.quantization.modelopt_quant import ModelOptFp8Config  # type: ignore[import-not-found]
from sglang.srt.layers.quantization.utils import is_layer_skipped  # type: ignore[import-not-found]
from sglang.srt.model_loader.weight_utils import maybe_remap_kv_scale_name  # type: ignore[import-not-found]

FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}
"""As SGLang's Llama names what it fuses."""
asked = json.load(sys.stdin)
for folder in map(Path, asked["folders"]):
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    memory = {
        name: maybe_remap_kv_scale_name(name, {name.replace(".k_scale", ".attn.k_scale"): 0, **dict.fromkeys(to, 0)})
        for name, to in asked["scales"]
    }
    told: dict[str, object] = {"memory": memory}
    if config["quant_method"] == "modelopt":
        separate = json.loads((folder / "hf_quant_config.json").read_text())
        for key, read in (
            ("", ModelOptFp8Config.from_config(config)),
            ("old ", ModelOptFp8Config.from_config(separate)),
        ):
            told[f"{key}kv"] = read.kv_cache_quant_algo
            told[f"{key}left"] = [
                name
                for name in asked["modules"]
                if is_layer_skipped(name, read.exclude_modules, FUSED) or read.is_layer_excluded(name)
            ]
    else:
        QuantizationConfig.model_validate(config)
        read = CompressedTensorsConfig.from_config({**config, "packed_modules_mapping": FUSED})
        told["kv"] = "FP8" if read.kv_cache_scheme else None
        told["left"] = [
            name for name in asked["modules"] if should_ignore_layer(name, ignore=read.ignore, fused_mapping=FUSED)
        ]
        told["target"] = sorted(read.target_scheme_map)
    print(json.dumps(told))
