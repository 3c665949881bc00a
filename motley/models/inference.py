"""Copies of models for inference: batch norm folded into the layer before it, in the precision that is asked for.

A copy serves all models of one architecture in turn. It is loaded again only if it is asked for other weights, or for
the same ones after they changed. It is made for evaluation, prototypes and teachers, never trained; it gives float32.
"""

import copy
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from motley.errors import InvalidMessage
from motley.models.split import SplitModel

MOST = (
    32  # copies that are kept; a federation whose every client has an architecture of its own must not double in size
)
FOLDABLE = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)

State = Mapping[str, Tensor]


class InferenceCopies:
    """The copies of one process.

    Args:
        dtypes: By name of the architecture: bfloat16 for those that compute in it; all others compute in float32.
    """

    def __init__(self, dtypes: Mapping[str, torch.dtype] | None = None) -> None:
        self._dtypes = dict(dtypes or {})
        self._held: OrderedDict[str, _Copy] = OrderedDict()

    def of(self, name: str, model: SplitModel) -> SplitModel:
        """Return a copy with the present weights of a model; the model itself if a copy would gain nothing.

        Args:
            name: The model's architecture: two models of one name differ in their weights alone.
            model: Not changed. The copy is good until the next call with the same name.
        """
        held = self._find(name, model)
        if not held.gains:
            return model
        held.load(_live_state(model, held.names))
        return held.model

    def of_weights(self, name: str, template: SplitModel, weights: State) -> SplitModel:
        """Return a copy with received weights.

        Args:
            name: As for `of`.
            template: A model of this architecture; not changed.
            weights: Its whole state dict with other values. The copy is good until the next call with the same name.

        Raises:
            InvalidMessage: Names or shapes are not those of the architecture.
        """
        held = self._find(name, template)
        check_weights(name, template, weights)
        held.load(weights)
        return held.model

    def _find(self, name: str, model: SplitModel) -> "_Copy":
        if name not in self._held:
            with torch.inference_mode(False):  # a copy made inside of it could not be loaded outside of it
                self._held[name] = _Copy(model, self._dtypes.get(name, torch.float32))
            if len(self._held) > MOST:
                self._held.popitem(last=False)
        self._held.move_to_end(name)
        return self._held[name]


class _Cast(nn.Module):
    """Computes a module in another dtype and returns float32."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.module, self.dtype = module, dtype

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.module(x.to(self.dtype))
        return out.float()


@dataclass(frozen=True)
class _Fold:
    """A batch norm that is folded into the layer before it.

    Attributes:
        layer, norm: Their names in the model's state dict.
        eps: Of the batch norm.
        weight, bias: Of the layer in the copy.
    """

    layer: str
    norm: str
    eps: float
    weight: Tensor
    bias: Tensor

    def load(self, state: State) -> None:
        scale = torch.rsqrt(state[f"{self.norm}.running_var"].float() + self.eps)
        if f"{self.norm}.weight" in state:
            scale = scale * state[f"{self.norm}.weight"]
        shift = -state[f"{self.norm}.running_mean"] * scale
        if f"{self.norm}.bias" in state:
            shift = shift + state[f"{self.norm}.bias"]
        if f"{self.layer}.bias" in state:
            shift = shift + state[f"{self.layer}.bias"] * scale
        weight = state[f"{self.layer}.weight"]
        self.weight.copy_(weight * scale.view(-1, *[1] * (weight.dim() - 1)))
        self.bias.copy_(shift)


class _Tracer(fx.Tracer):
    """Sees a layer that can be folded as one call, also where its class is not one of torch's own."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, FOLDABLE) or super().is_leaf_module(m, module_qualified_name)


class _Copy:
    """The copy of one architecture."""

    def __init__(self, model: SplitModel, dtype: torch.dtype) -> None:
        held = copy.deepcopy(model).requires_grad_(False).eval()
        self.names = frozenset(held.state_dict())
        pairs = _foldable_pairs(held.backbone)
        self._folds: list[_Fold] = []
        for layer_name, norm_name in pairs:
            layer, norm = held.backbone.get_submodule(layer_name), held.backbone.get_submodule(norm_name)
            assert isinstance(layer, FOLDABLE)
            assert isinstance(norm, _BatchNorm)
            if layer.bias is None:
                layer.bias = nn.Parameter(layer.weight.new_zeros(layer.weight.shape[0]), requires_grad=False)
            held.backbone.set_submodule(norm_name, nn.Identity())
            names = f"backbone.{layer_name}", f"backbone.{norm_name}"
            self._folds.append(_Fold(*names, norm.eps, layer.weight, layer.bias))
        # A norm that could not be folded keeps float32: its statistics would be rounded to three digits.
        low = dtype != torch.float32 and not any(isinstance(part, _NormBase) for part in held.backbone.modules())
        if low:
            held.backbone.to(dtype)
            self._folds = [_with_tensors_of(fold, held) for fold in self._folds]
        folded = {f"{fold.layer}.{part}" for fold in self._folds for part in ("weight", "bias")}
        self._plain = {
            name: tensor
            for name, tensor in _live_state(held, frozenset(held.state_dict())).items()
            if name not in folded
        }
        if low:
            held.backbone = _Cast(held.backbone, dtype)
        self.model = held
        self.gains = low or bool(self._folds)
        self._loaded: list[tuple[Tensor, int]] = []

    def load(self, state: State) -> None:
        """Take over weights, unless they are those that the copy has."""
        tensors = list(state.values())
        known = not any(tensor.is_inference() for tensor in tensors)
        if known and len(tensors) == len(self._loaded):
            pairs = zip(tensors, self._loaded, strict=True)
            if all(tensor is held and tensor._version == version for tensor, (held, version) in pairs):
                return
        with torch.inference_mode(False), torch.no_grad():
            for name, tensor in self._plain.items():
                tensor.copy_(state[name])
            for fold in self._folds:
                fold.load(state)
        self._loaded = [(tensor, tensor._version) for tensor in tensors] if known else []


def _with_tensors_of(fold: _Fold, model: SplitModel) -> _Fold:
    """Return a fold that writes into the layers of a model after these were moved to another dtype."""
    layer = model.get_submodule(fold.layer)
    assert isinstance(layer, FOLDABLE)
    assert layer.bias is not None
    return _Fold(fold.layer, fold.norm, fold.eps, layer.weight, layer.bias)


def _live_state(model: nn.Module, names: frozenset[str]) -> dict[str, Tensor]:
    """Return the tensors of the state dict, of these names, themselves: their versions tell whether they changed."""
    everything = chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    return {name: tensor for name, tensor in everything if name in names}


def _foldable_pairs(backbone: nn.Module) -> list[tuple[str, str]]:
    """Return the names of each layer and the batch norm that alone follows it, where the order of layers can be told.

    A module whose flow depends on its inputs cannot be traced; its parts are looked at one by one instead.
    """
    try:
        graph = _Tracer().trace(backbone)
    except Exception:  # noqa: BLE001 - tracing runs code of any kind
        return [
            (f"{name}.{layer}", f"{name}.{norm}")
            for name, child in backbone.named_children()
            for layer, norm in _foldable_pairs(child)
        ]
    modules = dict(backbone.named_modules())
    calls = [node.target for node in graph.nodes if node.op == "call_module"]
    found = []
    for node in graph.nodes:
        norm = modules.get(node.target) if node.op == "call_module" else None
        before = node.args[0] if node.args else None
        if not isinstance(norm, _BatchNorm) or not isinstance(before, fx.Node) or before.op != "call_module":
            continue
        used_once = calls.count(node.target) == 1 and calls.count(before.target) == 1 and len(before.users) == 1
        if used_once and norm.track_running_stats and isinstance(modules[str(before.target)], FOLDABLE):
            found.append((str(before.target), str(node.target)))
    return found


def check_weights(name: str, template: SplitModel, weights: State) -> None:
    """Refuse weights that are not those of an architecture.

    Raises:
        InvalidMessage: A name is missing or unknown, or a tensor has another shape, or numbers of another kind.
    """
    wanted = template.state_dict()
    for key in [*wanted, *weights]:
        if key not in weights:
            raise InvalidMessage(f"a snapshot of {name} lacks the entry '{key}'; the sender must send its whole state")
        if key not in wanted:
            raise InvalidMessage(f"a snapshot of {name} has the entry '{key}', which its architecture does not have")
        if wanted[key].shape != weights[key].shape:
            raise InvalidMessage(
                f"a snapshot of {name} has '{key}' of shape {tuple(weights[key].shape)}, expected "
                f"{tuple(wanted[key].shape)}; both sides must build the same architecture"
            )
        if weights[key].dtype != wanted[key].dtype:
            raise InvalidMessage(
                f"a snapshot of {name} has '{key}' as {weights[key].dtype}, expected {wanted[key].dtype}"
            )
