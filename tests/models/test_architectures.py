from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from massmover.models import lenet, mlp, resnet8, resnet18, resnet20
from massmover.models.architectures import PixelConvolution, ZeroPadShortcut


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_lenet_has_the_keys_and_shapes_of_the_published_checkpoints() -> None:
    shapes = {name: tuple(value.shape) for name, value in lenet().state_dict().items()}
    assert shapes == {
        "0.weight": (16, 1, 4, 4),
        "0.bias": (16,),
        "2.weight": (32, 16, 4, 4),
        "2.bias": (32,),
        "5.weight": (100, 1568),
        "5.bias": (100,),
        "7.weight": (10, 100),
        "7.bias": (10,),
    }


def test_lenet_maps_digits_to_ten_scores() -> None:
    assert lenet()(torch.rand(3, 1, 28, 28)).shape == (3, 10)
    assert count_parameters(lenet()) == 166_406


def test_mlp_maps_digits_to_ten_scores_and_fits_in_three_megabytes() -> None:
    assert mlp()(torch.rand(3, 1, 28, 28)).shape == (3, 10)
    assert 4 * count_parameters(mlp()) < 3e6


@pytest.mark.parametrize(("build", "parameters"), [(resnet8, 309_322), (resnet20, 269_722), (resnet18, 11_173_962)])
def test_residual_networks_have_their_size(build: type[nn.Module], parameters: int) -> None:
    model = build().eval()
    assert count_parameters(model) == parameters
    with torch.no_grad():
        assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_resnet20_has_twenty_layers_with_weights() -> None:
    layers = [module for module in resnet20().modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    assert len(layers) == 20


@pytest.mark.parametrize("build", [resnet8, resnet20, resnet18])
def test_the_number_of_classes_can_be_chosen(build: type[nn.Module]) -> None:
    with torch.no_grad():
        assert build(classes=7).eval()(torch.rand(1, 3, 32, 32)).shape == (1, 7)


@pytest.mark.parametrize(
    ("build", "wanted"),
    [(resnet20, [(16, 32, 32), (32, 16, 16), (64, 8, 8)]), (resnet8, [(32, 16, 16), (64, 8, 8), (128, 4, 4)])],
)
def test_stages_halve_the_resolution(build: Callable[[], nn.Module], wanted: list[tuple[int, int, int]]) -> None:
    model = build().eval()
    stages = model.get_submodule("stages")
    features = model.get_submodule("stem")(torch.rand(1, 3, 32, 32))
    shapes = []
    for stage in stages.children():
        features = stage(features)
        shapes.append(tuple(features.shape[1:]))
    assert shapes == wanted


def test_the_shortcut_without_weights_keeps_pixels_and_adds_zeros() -> None:
    features = torch.rand(2, 4, 6, 6)
    shortened = ZeroPadShortcut(extra_channels=4)(features)
    assert shortened.shape == (2, 8, 3, 3)
    assert torch.equal(shortened[:, 2:6], features[:, :, ::2, ::2])
    assert not shortened[:, :2].any()
    assert not shortened[:, 6:].any()


@pytest.mark.parametrize("build", [resnet8, resnet20, resnet18])
def test_gradients_reach_the_image_through_every_network(build: Callable[[], nn.Module]) -> None:
    image = torch.rand(1, 3, 32, 32, requires_grad=True)
    (gradient,) = torch.autograd.grad(build().eval()(image).sum(), image)
    assert torch.isfinite(gradient).all()
    assert gradient.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"), [((28, 28), 4, 2, 1), ((7, 10), 3, 1, 0), ((9, 8), 5, 3, 2)]
)
def test_a_pixel_convolution_has_the_gradients_of_a_convolution(
    dtype: torch.dtype, size: tuple[int, int], kernel: int, stride: int, padding: int
) -> None:
    torch.manual_seed(0)
    quick = PixelConvolution(2, 5, kernel, stride=stride, padding=padding).to(dtype)
    plain = nn.Conv2d(2, 5, kernel, stride=stride, padding=padding).to(dtype)
    plain.load_state_dict(quick.state_dict())
    images = torch.rand(3, 2, *size, dtype=dtype, requires_grad=True)
    answers = []
    for layer in (quick, plain):
        features = layer(images)
        inputs = [images, *layer.parameters()]
        answers.append([features, *torch.autograd.grad(features.sin().sum(), inputs)])
    assert type(answers[0][0].grad_fn).__name__ != type(answers[1][0].grad_fn).__name__  # it did go another way
    for mine, theirs in zip(*answers, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_pixel_convolution_in_half_precision_is_an_ordinary_one(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    quick = PixelConvolution(1, 5, 4, stride=2, padding=1).to(dtype)
    plain = nn.Conv2d(1, 5, 4, stride=2, padding=1).to(dtype)
    plain.load_state_dict(quick.state_dict())
    images = torch.rand(3, 1, 28, 28).to(dtype).requires_grad_()
    mine, theirs = quick(images), plain(images)
    assert type(mine.grad_fn) is type(theirs.grad_fn)
    for one, other in zip(*(torch.autograd.grad(each.sum(), images) for each in (mine, theirs)), strict=True):
        assert torch.equal(one, other)


def test_a_pixel_convolution_can_be_differentiated_twice() -> None:
    torch.manual_seed(0)
    layer = PixelConvolution(1, 2, 3, stride=2, padding=1).double()
    images = torch.rand(2, 1, 5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, images)
    assert torch.autograd.gradgradcheck(lambda pixels: layer(pixels).sin(), images)


def test_lenet_has_one_gradient_for_each_image_under_vmap() -> None:
    torch.manual_seed(0)
    model, images = lenet(), torch.rand(3, 1, 28, 28)
    each = torch.func.vmap(torch.func.grad(lambda image: model(image[None])[0, 3]))(images)
    whole = images.clone().requires_grad_()
    (together,) = torch.autograd.grad(model(whole)[:, 3].sum(), whole)
    torch.testing.assert_close(each, together)


def test_a_lenet_that_is_exported_answers_the_same() -> None:
    torch.manual_seed(0)
    model, images = lenet().eval(), torch.rand(3, 1, 28, 28)
    program = torch.export.export(model, (images,)).module()
    asked = images.clone().requires_grad_()
    torch.testing.assert_close(program(images), model(images))
    (mine,) = torch.autograd.grad(program(asked).square().sum(), asked)
    (theirs,) = torch.autograd.grad(model(asked).square().sum(), asked)
    torch.testing.assert_close(mine, theirs)
