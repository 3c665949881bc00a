"""Which client has which architecture, and whether all of them work on the inputs of a run."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from motley.draws import Draws
from motley.errors import InvalidModel
from motley.models.registry import ALIASES, POOLS, find_architecture, find_pool
from motley.models.spec import InputSpec
from motley.models.split import SplitModel
from motley.options import ModelOptions

ModelFactory = Callable[[int, tuple[int, ...], int], nn.Module]


@dataclass(frozen=True)
class ModelPlan:
    """The architecture of every client; it can be pickled if its factory can.

    Args:
        names: Name of the architecture (or of the factory) of each client.
        input_shape: Shape of one input.
        num_classes: C.
        width: Common feature width; None: each architecture's own.
        factory: Makes the models instead of the registry: a callable of client, input shape and number of classes, or
            its address "package.module:name".
        same_start: All clients' weights are drawn from one address, so that those of one architecture start alike.
    """

    names: tuple[str, ...]
    input_shape: tuple[int, ...]
    num_classes: int
    width: int | None = None
    factory: ModelFactory | str | None = None
    same_start: bool = False

    def architecture(self, client_id: int) -> str:
        """Return the name of a client's architecture."""
        return self.names[client_id]

    def kind(self, client_id: int) -> str:
        """Return a name that two clients share only if their models differ in their weights alone."""
        return self.names[client_id] if self.factory is None else f"client {client_id}"

    def build(self, client_id: int) -> SplitModel:
        """Return a new model for a client, its weights drawn from torch's global generator.

        A factory's module without a recognisable head becomes a model of which only the scores are known.

        Raises:
            InvalidModel: The model cannot be made, or has not the common width.
        """
        if self.factory is None:
            spec = InputSpec(self.input_shape, self.num_classes, self.width)
            return find_architecture(self.names[client_id]).build(spec)
        factory = _import_factory(self.factory) if isinstance(self.factory, str) else self.factory
        module = factory(client_id, self.input_shape, self.num_classes)
        if not isinstance(module, nn.Module):
            raise InvalidModel(
                f"{self.names[client_id]} returned an object of type {type(module).__name__} for client {client_id}; "
                "expected a torch.nn.Module"
            )
        model = (
            module
            if isinstance(module, SplitModel)
            else SplitModel.from_module(module, num_classes=self.num_classes, scores_only=True)
        )
        if self.width is not None and model.has_features and model.feature_width != self.width:
            raise InvalidModel(
                f"{self.names[client_id]} gives client {client_id} a {model.class_name} with features of width "
                f"{model.feature_width}, but the common width is {self.width}; build it with this width or set the "
                "width to 'own'"
            )
        return model

    def clients_of(self, name: str) -> tuple[int, ...]:
        """Return the clients that have the architecture of this name."""
        return tuple(client for client, other in enumerate(self.names) if other == name)


def plan_models(
    options: ModelOptions,
    *,
    clients: int,
    input_shape: tuple[int, ...],
    num_classes: int,
    factory: ModelFactory | None = None,
) -> ModelPlan:
    """Give every client an architecture: client i has member i mod K of the pool.

    Args:
        options: Pool and feature width.
        clients: Number of clients.
        input_shape: Shape of one input.
        num_classes: C.
        factory: Takes the place of the pool if given; called with client, input shape and number of classes.

    Raises:
        InvalidModel: The pool names something unknown.
    """
    if factory is not None or ":" in options.pool:
        name = options.pool if factory is None else _name_of(factory)
        own = options.width if isinstance(options.width, int) else None
        if factory is None:
            _import_factory(options.pool)  # an address that leads nowhere is found here, not in a trial
        source = options.pool if factory is None else factory
        return ModelPlan((name,) * clients, input_shape, num_classes, own, source, options.same_start)
    members, width = _members(options.pool)
    if options.width is not None:
        width = None if options.width == "own" else options.width
    if width is not None and width < 1:
        raise InvalidModel(f"the feature width is {width}; it must be at least 1 or 'own'")
    names = tuple(members[client % len(members)] for client in range(clients))
    return ModelPlan(names, input_shape, num_classes, width, same_start=options.same_start)


def initial_model(plan: ModelPlan, client_id: int, draws: Draws) -> SplitModel:
    """Return a client's model with the initial weights of its address; the global generators are left as they were."""
    with draws.scope("init", client=0 if plan.same_start else client_id):
        return plan.build(client_id)


def auxiliary_model(plan: ModelPlan, name: str, width: int | None, draws: Draws) -> SplitModel:
    """Return a new model that all clients have beside their own, always with the same initial weights (rule R7).

    Args:
        plan: Gives input shape and number of classes.
        name: Name of the architecture.
        width: Its feature width; None: its own.
        draws: Address of the weights; client -1, the server's.

    Raises:
        InvalidModel: There is no such architecture, or it does not fit the inputs.
    """
    with draws.scope("init"):
        return find_architecture(name).build(InputSpec(plan.input_shape, plan.num_classes, width))


def check_models(
    plan: ModelPlan, draws: Draws, *, needs_features: bool = True, device: torch.device | str = "cpu"
) -> None:
    """Make one evaluation and one training step with every architecture before round 1.

    Args:
        plan: All clients' architectures. A factory may give each client another module, so each is tried.
        draws: Address of weights and inputs of the trial.
        needs_features: The method uses features or the head, so that models of which only the scores are known will
            not do.
        device: Where the trial runs.

    Raises:
        InvalidModel: A model fails; the message has architecture, input shape, smallest size if known, and clients.
    """
    tried = plan.names if plan.factory is not None else tuple(dict.fromkeys(plan.names))
    for position, name in enumerate(tried):
        users = (position,) if plan.factory is not None else plan.clients_of(name)
        try:
            model = initial_model(plan, users[0], draws)
            with draws.scope("trial", client=users[0]):
                trial(model, plan.input_shape, plan.num_classes, needs_features=needs_features, device=device)
        except Exception as error:
            smallest = "" if plan.factory else f"; its smallest size is {find_architecture(name).min_size}"
            raise InvalidModel(
                f"model {name} does not work on inputs of shape {plan.input_shape} with {plan.num_classes} classes"
                f"{smallest}; {_who(users)}: {error}"
            ) from error


def trial(
    model: SplitModel,
    input_shape: tuple[int, ...],
    num_classes: int,
    *,
    needs_features: bool = True,
    device: torch.device | str = "cpu",
) -> None:
    """Make one evaluation and one training step on two random inputs and check what comes back.

    The model is changed by it. Inputs are drawn from torch's global generator.

    Raises:
        InvalidModel: Wrong shapes, scores that do not follow from the features, or parameters outside of both parts.
    """
    if needs_features and not model.has_features:
        model.features(torch.zeros(2, *input_shape))  # raises, with the words for it
    model.to(device)
    x = torch.randn(2, *input_shape).to(device)
    y = torch.arange(2, device=device) % num_classes
    if model.has_features:
        _check_parts(model)
    # Evaluation first: after a single step some deep networks overflow with their young running statistics.
    model.eval()
    with torch.no_grad():
        logits = model(x)
        _check_shape(model, logits, num_classes)
        tolerance = 1e-5 * max(1.0, float(logits.abs().max()))
        if not torch.allclose(model.unsplit(x), logits, rtol=0, atol=tolerance, equal_nan=True):
            raise InvalidModel(
                f"the scores of {model.class_name} are not its last linear layer applied to its features (something "
                "follows that layer, or it is used twice); let the module return logits, or state the split with "
                "SplitModel(backbone, head)"
            )
    model.train()
    logits = model(x)
    _check_shape(model, logits, num_classes)
    loss = cross_entropy(logits, y)
    if not loss.requires_grad:
        raise InvalidModel(f"{model.class_name} has no trainable parameter that reaches its scores")
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _check_shape(model: SplitModel, logits: torch.Tensor, num_classes: int) -> None:
    if logits.shape != (2, num_classes):
        mode = "training" if model.training else "evaluation"
        raise InvalidModel(
            f"{model.class_name} returned scores of shape {tuple(logits.shape)} for two inputs in {mode} mode; "
            f"expected (2, {num_classes})"
        )


def _check_parts(model: SplitModel) -> None:
    parts = [id(p) for p in model.backbone.parameters()], [id(p) for p in model.head.parameters()]
    if set(parts[0]) & set(parts[1]):
        raise InvalidModel(
            f"backbone and head of {model.class_name} share parameters; give the head weights of its own"
        )
    other = [name for name, p in model.named_parameters() if id(p) not in {*parts[0], *parts[1]}]
    if other:
        raise InvalidModel(
            f"{model.class_name} has parameters outside of backbone and head: {', '.join(other[:10])}; put them into "
            "one of the two"
        )


def _members(pool: str) -> tuple[tuple[str, ...], int | None]:
    """Return the architectures that a pool text means, and their default feature width."""
    named = None if "," in pool else find_pool(pool)
    if named is not None:
        return named.members, named.width
    entries = [entry.strip() for entry in pool.split(",")]
    also = (*POOLS, *ALIASES) if len(entries) == 1 else ()
    found = [find_architecture(entry, also=also) for entry in entries]
    families = {architecture.family for architecture in found}
    family = find_pool(families.pop()) if len(families) == 1 else None
    return tuple(architecture.name for architecture in found), family.width if family else None


def _import_factory(address: str) -> ModelFactory:
    module_name, _, name = address.partition(":")
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.append(str(Path.cwd()))  # an installed command does not look into the working directory by itself
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise InvalidModel(
            f"the module {module_name!r} of the model factory {address!r} cannot be imported: {error}"
        ) from error
    factory = getattr(module, name, None)
    if not callable(factory):
        raise InvalidModel(
            f"the module {module_name!r} has no function {name!r}; a factory is 'package.module:function'"
        )
    found: ModelFactory = factory
    return found


def _name_of(factory: ModelFactory) -> str:
    name = getattr(factory, "__qualname__", type(factory).__qualname__)
    return f"{getattr(factory, '__module__', type(factory).__module__)}:{name}"


def _who(clients: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, clients[:10]))
    more = f" and {len(clients) - 10} more" if len(clients) > 10 else ""
    return f"it is the model of {'client' if len(clients) == 1 else 'clients'} {shown}{more}"
