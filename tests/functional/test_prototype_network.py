import torch
from torch import nn

from motley.functional.contrastive import contrastive_loss
from motley.functional.prototype_network import network_prototypes, new_network, train_network
from motley.functional.shuffling import shuffled_batches


def test_training_is_sgd_of_the_layers_by_autograd():
    C, d, n = 5, 16, 12
    classes = torch.tensor([0, 2, 3, 4])
    network = {name: tensor.double() for name, tensor in new_network(C, d).items()}
    layers = nn.Sequential(nn.Embedding(C, d), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d)).double()
    layers.load_state_dict(network)
    torch.testing.assert_close(network_prototypes(network, classes), layers(classes).detach(), rtol=0, atol=1e-12)
    generator = torch.Generator().manual_seed(3)
    prototypes = torch.randn(n, d, dtype=torch.float64, generator=generator)
    labels = torch.randint(0, 4, (n,), generator=generator)
    batches = list(shuffled_batches(n, 5, 4, generator))
    made = train_network(network, prototypes, labels, classes, margin=2.0, lr=0.3, batches=batches)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.3)
    for index in batches:
        optimizer.zero_grad()
        contrastive_loss(prototypes[index], labels[index], layers(classes), 2.0).backward()
        optimizer.step()
    for name, tensor in layers.state_dict().items():
        torch.testing.assert_close(made[name], tensor, rtol=0, atol=1e-10)
        if name != "0.weight":
            assert not torch.equal(made[name], network[name])
    assert torch.equal(made["0.weight"][1], network["0.weight"][1])  # a class that does not compete


def test_the_given_network_is_not_changed():
    network = new_network(3, 4)
    before = {name: tensor.clone() for name, tensor in network.items()}
    both = torch.tensor([0, 1])
    train_network(network, torch.randn(2, 4), both, both, margin=1.0, lr=0.1, batches=[both])
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.items())
