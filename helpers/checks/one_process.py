"""The gradients that one process computes with PyTorch's own layers, as the reference of 49_three_dimensions."""

from torch import nn
from torch.func import functional_call


def encoder_gradients(model, batch, target):
    """Return the gradients of a model by block and name, computed by PyTorch's `TransformerEncoderLayer`.

    `model` has the weights of each block of 49_three_dimensions, in the shapes of that lesson.
    """
    leaves = [{name: weight.clone().requires_grad_() for name, weight in block.items()} for block in model]
    mask = nn.Transformer.generate_square_subsequent_mask(batch.shape[1], dtype=batch.dtype)
    output = batch
    for weights in leaves:
        layer = _layer_for(weights)
        output = functional_call(layer, _in_pytorchs_shapes(weights), (output, mask), {"is_causal": True})
    nn.functional.mse_loss(output, target).backward()
    return [{name: weight.grad for name, weight in block.items()} for block in leaves]


def _layer_for(weights):
    """Return a layer without weights, for blocks with the shapes of these weights."""
    heads, features = weights["out_HED"].shape[0], weights["out_HED"].shape[2]
    options = {"dropout": 0, "batch_first": True, "norm_first": True, "bias": False, "device": "meta"}
    return nn.TransformerEncoderLayer(features, heads, weights["up_DF"].shape[1], **options)


def _in_pytorchs_shapes(weights):
    """Return the weights of a block under the names and in the shapes of PyTorch's layer, connected to its graph."""
    qkv, out = weights["qkv_3DHE"], weights["out_HED"]
    return {
        "norm1.weight": weights["scale1_D"],
        "self_attn.in_proj_weight": qkv.permute(0, 2, 3, 1).flatten(0, 2),
        "self_attn.out_proj.weight": out.flatten(0, 1).T,
        "norm2.weight": weights["scale2_D"],
        "linear1.weight": weights["up_DF"].T,
        "linear2.weight": weights["down_FD"].T,
    }
