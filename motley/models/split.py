"""SplitModel: a backbone that makes features and a head that makes logits of them."""

from collections.abc import Mapping
from typing import Self

from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from motley.errors import InvalidModel

HOW_TO_SPLIT = (
    "state the split with SplitModel(backbone, head) or SplitModel.from_module(module, num_classes=..., head='name of "
    "the last linear layer'), or take a method that needs scores only (scores_only=True)"
)


class SplitModel(nn.Module):
    """A classifier in two parts.

    Args:
        backbone: Maps inputs (B, ...) to features (B, d), or to what `pool` makes features of.
        head: Maps features (B, d) to logits (B, C).
        pool: Brings the output of the backbone to the width d; it has no parameters.
        feature_width: d; read off a linear head if not given.
        num_classes: C; read off a linear head if not given.

    Raises:
        InvalidModel: A width is neither given nor that of a linear head.
    """

    backbone: nn.Module
    pool: nn.Module
    head: nn.Module
    feature_width: int
    num_classes: int
    has_features: bool

    def __init__(
        self,
        backbone: nn.Module,
        head: nn.Module,
        *,
        pool: nn.Module | None = None,
        feature_width: int | None = None,
        num_classes: int | None = None,
    ) -> None:
        super().__init__()
        if isinstance(head, nn.Linear):
            feature_width = head.in_features if feature_width is None else feature_width
            num_classes = head.out_features if num_classes is None else num_classes
        if feature_width is None or num_classes is None:
            raise InvalidModel(
                f"the head of the model is {type(head).__name__}, of which feature_width and num_classes cannot be "
                "read; pass both to SplitModel"
            )
        self.backbone = backbone
        self.pool = nn.Identity() if pool is None else pool
        self.head = head
        self.feature_width = feature_width
        self.num_classes = num_classes
        self.has_features = True

    @classmethod
    def from_module(
        cls, module: nn.Module, *, num_classes: int, head: str | None = None, scores_only: bool = False
    ) -> Self:
        """Make a SplitModel of any classifier, whose head is its last linear layer.

        The module is taken over, not copied: its head is moved out of it and an identity stands in its place.

        Args:
            module: Returns logits (B, C), or an object or mapping that holds them as `logits`.
            num_classes: C.
            head: Dotted name of the head in the module, if it is not the last linear layer.
            scores_only: Go without features if the module has no recognisable head and `head` is not given.

        Raises:
            InvalidModel: The head is not found, is not linear, or does not make C logits.
        """
        try:
            name = _find_head(module, num_classes, head)
        except InvalidModel:
            if head is not None or not scores_only:
                raise
            model = cls(_Adapter(module), nn.Identity(), feature_width=0, num_classes=num_classes)
            model.has_features = False
            return model
        layer = module.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        return cls(_Adapter(module, name), layer)

    def raw_features(self, x: Tensor) -> Tensor:
        """Return the output of the backbone before it is pooled to the common width, (B, own width).

        Raises:
            InvalidModel: Only the scores of the module are known.
        """
        if not self.has_features:
            raise InvalidModel(f"{self.class_name} has no recognisable head, so it gives no features; {HOW_TO_SPLIT}")
        raw: Tensor = self.backbone(x)
        return raw

    def features(self, x: Tensor) -> Tensor:
        """Return the features (B, d) of inputs (B, ...).

        Raises:
            InvalidModel: Only the scores of the module are known.
        """
        features: Tensor = self.pool(self.raw_features(x))
        if features.dim() != 2 or features.shape[1] != self.feature_width:
            raise InvalidModel(
                f"the backbone of {self.class_name} returned features of shape {tuple(features.shape)}; expected "
                f"({len(x)}, {self.feature_width}); {HOW_TO_SPLIT}"
            )
        return features

    def classify(self, z: Tensor) -> Tensor:
        """Return the logits (B, C) of features (B, d).

        Raises:
            InvalidModel: Only the scores of the module are known.
        """
        if not self.has_features:
            raise InvalidModel(f"{self.class_name} has no recognisable head that could classify; {HOW_TO_SPLIT}")
        logits: Tensor = self.head(z)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (B, C) of inputs (B, ...)."""
        logits: Tensor = self.classify(self.features(x)) if self.has_features else self.backbone(x)
        if logits.dim() != 2 or logits.shape[1] != self.num_classes:
            raise InvalidModel(
                f"{self.class_name} returned scores of shape {tuple(logits.shape)}; expected "
                f"({len(x)}, {self.num_classes})"
            )
        return logits

    def unsplit(self, x: Tensor) -> Tensor:
        """Return the logits (B, C) of the module as it was before the split, with its head in its old place."""
        if isinstance(self.backbone, _Adapter) and self.has_features:
            return self.backbone.with_head(self.head, x)
        logits: Tensor = self(x)
        return logits

    @property
    def class_name(self) -> str:
        """Name of the class that the user knows: that of the module this model was made from."""
        return type(self.backbone.module if isinstance(self.backbone, _Adapter) else self.backbone).__name__


class _Adapter(nn.Module):
    """A user's module whose output is read as one tensor; a named head is replaced by an identity."""

    def __init__(self, module: nn.Module, head: str | None = None) -> None:
        super().__init__()
        self.module = module
        self.head_name = head
        if head is not None:
            self._place(nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        output = self.module(x)
        if isinstance(output, Tensor):
            return output
        logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
        if isinstance(logits, Tensor):
            return logits
        mode = "training" if self.training else "evaluation"
        raise InvalidModel(
            f"{type(self.module).__name__} returned {_describe(output)} in {mode} mode; expected a tensor "
            "(n, classes), or an object or mapping with such a tensor as 'logits'; wrap the module to return one"
        )

    def with_head(self, head: nn.Module, x: Tensor) -> Tensor:
        self._place(head)
        try:
            scores: Tensor = self(x)
            return scores
        finally:
            self._place(nn.Identity())

    def _place(self, layer: nn.Module) -> None:
        assert self.head_name is not None
        if self.head_name == "":  # the module is itself the linear layer
            self.module = layer
        else:
            self.module.set_submodule(self.head_name, layer)


def _find_head(module: nn.Module, num_classes: int, head: str | None) -> str:
    owner = type(module).__name__
    linear = {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear) and not isinstance(layer, NonDynamicallyQuantizableLinear)
    }
    if head is None:
        if not linear:
            raise InvalidModel(f"{owner} has no linear layer that could be its head; {HOW_TO_SPLIT}")
        head = list(linear)[-1]
    elif head not in linear:
        known = ", ".join(repr(name) for name in list(linear)[-10:]) or "none"
        raise InvalidModel(f"{owner} has no linear layer named {head!r}; its last linear layers are: {known}")
    if linear[head].out_features != num_classes:
        fitting = [repr(name) for name, layer in linear.items() if layer.out_features == num_classes][-10:]
        found = f"the layers with {num_classes} outputs are {', '.join(fitting)}" if fitting else "no layer has so many"
        raise InvalidModel(
            f"{owner}: the linear layer {head!r} has {linear[head].out_features} outputs, but there are {num_classes} "
            f"classes ({found}); {HOW_TO_SPLIT}"
        )
    return head


def _describe(output: object) -> str:
    if isinstance(output, (tuple, list)):
        return f"a {type(output).__name__} of {len(output)}"
    if isinstance(output, Mapping):
        return f"a {type(output).__name__} with the keys {', '.join(map(repr, list(output)[:10])) or 'none'}"
    return f"an object of type {type(output).__name__}"
