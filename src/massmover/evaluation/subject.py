"""What is evaluated: a classifier and the images it has to stand up on, checked against each other once."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from massmover import data
from massmover.ball import WassersteinBall
from massmover.classifier import Drawn, borrowed, first_logits_of, logits_of
from massmover.data import ImageSet
from massmover.evaluation.settings import Choice, Settings, same_scores
from massmover.inputs import check_labels, check_mask
from massmover.memory import free_memory
from massmover.models.loading import as_built, load_model
from massmover.names import BUNDLED, TEACHERS
from massmover.types import Images, Labels, Logits, MassmoverError

FINGERPRINTED = 4  # images whose scores tell one model from another
BATCH_NUMBERS = 400_000  # pixels times channels of a batch whose exact distances do not take long


@dataclass(frozen=True, eq=False)
class Subject:
    """A classifier and labelled images that fit it."""

    model: nn.Module
    images: ImageSet  # only those that are evaluated
    start: int  # number of the first of them in the whole set
    device: torch.device
    notes: tuple[str, ...] = ()  # what was done to make the weights fit, for the command line to say
    mask: Images | None = None  # bool, True where mass may move: for all images, or one an image
    draws: int | None = None  # over which a model that answers by chance is averaged
    seed: int = 0  # of the draws

    def pixels(self, batch: range) -> Images:
        """Images by their numbers in the whole set, in [0, 1], on the device."""
        return self.images.images_as_float(batch.start - self.start, batch.stop - self.start).to(self.device)

    def labels(self, batch: range) -> Labels:
        """Their labels, on the device."""
        return self.images.labels[batch.start - self.start : batch.stop - self.start].to(self.device)

    def free(self, batch: range) -> Images | None:
        """Where the mass of some images may move, in their shape; None without a mask."""
        if self.mask is None:
            return None
        rows = self.mask[batch.start - self.start : batch.stop - self.start] if self.mask.ndim == 4 else self.mask
        return rows.expand(len(batch), *self.images.images.shape[1:]).to(self.device)

    @property
    def numbers_per_image(self) -> int:
        """Channels x rows x columns: the n_pixel of the published tables."""
        return self.images.images[0].numel()

    def logits(self, images: Images) -> Logits:
        """The model's scores, in eval mode, without gradients; of a drawn one by the same draws each time."""
        judge = self.drawn(self.seed, judge=True)
        with torch.no_grad(), borrowed(judge):
            return logits_of(judge, images)

    def drawn(self, seed: int, *, judge: bool = False) -> nn.Module:
        """The model averaged over its draws, or as it is."""
        return self.model if self.draws is None else Drawn(self.model, draws=self.draws, seed=seed, judge=judge)

    def predictions(self, images: Images) -> Labels:
        """The class of the largest score."""
        return self.logits(images).argmax(dim=1)

    def eight_bit(self) -> bool:
        """Whether every pixel is a whole number of 255ths."""
        pixels = self.images.images
        return pixels.dtype == torch.uint8 or bool(((pixels * 255).round() / 255 - pixels).abs().max() < 1e-6)


def ball_for(settings: Settings, radius: float) -> WassersteinBall:
    """The ball that some settings mean, at a radius."""
    return WassersteinBall(
        radius,
        window=settings.window,
        ground=settings.ground,
        power=settings.power,
        normalisation=settings.normalisation,
        scatter=settings.scatter,
        width=settings.width,
    )


@contextmanager
def naming(option: str) -> Iterator[None]:
    """Let an error say which option it is about."""
    try:
        yield
    except MassmoverError as problem:
        message = str(problem)
        raise MassmoverError(message if option in message else f"{option}: {message}") from problem


def resolve_device(name: str) -> torch.device:
    """The device of this process; `auto` takes a CUDA device where there is one."""
    wanted = name
    if name == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % max(torch.cuda.device_count(), 1))
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        reason = str(problem).splitlines()[0]
        raise MassmoverError(f"--device {name} cannot be used ({reason}): use auto or cpu") from None
    return device


def load_subject(choice: Choice) -> Subject:
    """Load a classifier and images, and refuse a pair that does not belong together."""
    place = resolve_device(choice.device)
    with naming("--data"):
        whole = data.load(choice.data, split=choice.split)
    chosen = _slice(whole, start=choice.start, count=choice.count)
    notes: list[str] = []
    if choice.count is not None and choice.count > len(chosen):
        notes.append(
            f"--count is {choice.count}: {whole.name} holds {len(chosen)} images from --start {choice.start} on, "
            "so these are all"
        )
    with naming("--weights" if choice.weights else "--model"):
        load = load_model if choice.draws is None else as_built
        network = load(
            choice.model, weights=choice.weights, mean=choice.mean, std=choice.std, device=place, tell=notes.append
        )
    subject = Subject(
        model=network,
        images=chosen,
        start=choice.start,
        device=place,
        notes=tuple(notes),
        mask=_mask(choice, chosen, whole=len(whole)),
        draws=choice.draws,
        seed=choice.seed,
    )
    _check_pair(subject, choice)
    return subject


def _mask(choice: Choice, chosen: ImageSet, *, whole: int) -> Images | None:
    """The mask of a file, for all images or for those that are evaluated."""
    if choice.mask is None:
        return None
    mask = read_mask(choice.mask)
    if mask.ndim == 4 and len(mask) not in (1, len(chosen)):
        if len(mask) != whole:
            raise MassmoverError(
                f"--mask {choice.mask} holds {len(mask)} masks: give 1, one for each of the {len(chosen)} images, or "
                f"one for each of the {whole} of {choice.data}"
            )
        mask = mask[choice.start : choice.start + len(chosen)]
    with naming("--mask"):
        free = check_mask(mask, chosen.images)
    if not free.any():
        raise MassmoverError(f"--mask {choice.mask} lets no pixel move: it holds True (or 1) where mass may move")
    return mask[0].bool() if mask.ndim == 4 and len(mask) == 1 else mask.bool()


def read_mask(file: str) -> Images:
    """The mask in a .npy file, or the array mask of an .npz file; read without pickle."""
    try:
        loaded = np.load(file, allow_pickle=False)
        array = loaded["mask"] if isinstance(loaded, np.lib.npyio.NpzFile) else loaded
        return torch.from_numpy(np.ascontiguousarray(array))
    except (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile) as problem:
        reason = "no such file" if isinstance(problem, FileNotFoundError) else "it cannot be read as such"
        raise MassmoverError(
            f"--mask {file}: {reason}. Give a .npy file, True where mass may move, or an .npz file with an array mask"
        ) from None


def _slice(whole: ImageSet, *, start: int, count: int | None) -> ImageSet:
    if start < 0 or start >= len(whole):
        raise MassmoverError(f"--start is {start}: {whole.name} holds images 0 to {len(whole) - 1}")
    if count is not None and count < 1:
        raise MassmoverError(f"--count is {count}: give 1 or more, or leave it out for all images")
    return whole.subset(start, None if count is None else min(count, len(whole) - start))


def _check_pair(subject: Subject, choice: Choice) -> None:
    first = range(subject.start, subject.start + 1)
    pixels = subject.pixels(first)
    model = subject.drawn(choice.seed)
    with naming(f"--model {choice.model}, --data {choice.data}"), borrowed(model), torch.no_grad():
        logits = first_logits_of(model, pixels)
    with naming("--data"):
        check_labels(subject.images.labels, batch=len(subject.images), classes=logits.shape[1])


def weights_checksum(model: nn.Module) -> str:
    """The sha256 of a model's named tensors, whatever file they came from."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        if isinstance(value, Tensor):
            tensor = value.detach().cpu().contiguous()
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()


def score_fingerprint(subject: Subject) -> list[list[float]] | None:
    """What a model answers on the first few images, in eight numbers each; None for a model that answers by chance.

    Unlike a checksum of weights it knows a model whose weights are out of sight, such as a function. Threads and batch
    sizes change the last digits, so compare with `same_scores`.
    """
    images = subject.pixels(range(subject.start, subject.start + min(FINGERPRINTED, len(subject.images))))
    first, second = (_mixed(subject.logits(images)) for _ in range(2))
    return first if same_scores(first, second) else None


def _mixed(scores: Logits) -> list[list[float]]:
    """Eight fixed mixtures of the scores of each image, so that a thousand classes take no more room than ten."""
    waves = torch.outer(torch.arange(scores.shape[1]), torch.arange(1, 9)).double().cos()  # (classes, 8)
    mixed: list[list[float]] = (scores.detach().cpu().double() @ waves).tolist()
    return [[float(f"{number:.6g}") for number in row] for row in mixed]


def training_time(choice: Choice) -> str | None:
    """What training took: by the card of a bundled model, by the history that `massmover train` left beside others."""
    if choice.weights is None and choice.model in BUNDLED:
        card = files("massmover").joinpath("bundled", f"{choice.model}.md")
        lines = card.read_text(encoding="utf-8").splitlines() if card.is_file() else []
        cells = [line.split("|") for line in lines if line.startswith("| training time |")]
        return cells[0][2].strip() if cells else None
    if choice.weights is None or not (folder := Path(choice.weights).parent).joinpath("history.jsonl").exists():
        return None
    histories = [folder / part / "history.jsonl" for part in ("", *TEACHERS)]
    try:
        texts = [history.read_text(encoding="utf-8") for history in histories if history.exists()]
        lines = [line for text in texts for line in text.splitlines()]
        seconds = sum(float(json.loads(line)["seconds"]) for line in lines)
    except (ValueError, KeyError, TypeError):
        return None  # some other program's history
    return f"{seconds:,.0f} seconds"


def file_checksum(path: str | None) -> str | None:
    """The sha256 of a file, as sha256sum prints it."""
    return None if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()


def fitting_batch_size(subject: Subject, settings: Settings, *, processes: int) -> int:
    """As many images as a quarter of the free memory holds with their plans, and no more than 100.

    Results are saved after each batch, so that a larger one would only lose more when a run is killed. `auto` takes
    seconds for an image that stands, so on a processor its batches are of 50: records come twice as early for a fifth
    more processor time (of 20, two fifths). A card wants many images at once. Exact transport takes minutes for a
    photograph, so a batch of those is as large as the judge has threads.
    """
    channels, height, width = subject.images.images.shape[1:]
    window = settings.window
    reach_down, reach_across = (side - 1 if window is None else min(window // 2, side - 1) for side in (height, width))
    moves = (2 * reach_down + 1) * (2 * reach_across + 1)
    network = 4 * 200 * (subject.draws or 1)  # the draws of a gradient are held at once
    per_image = channels * height * width * (moves * 8 * 6 + network)  # six copies of a float64 plan, and the network
    on_card = subject.device.type == "cuda"
    free = torch.cuda.mem_get_info(subject.device)[0] if on_card else free_memory() // processes
    soon_judged = max(BATCH_NUMBERS // subject.numbers_per_image, torch.get_num_threads())
    most = 50 if settings.attack == "auto" and not on_card else 100
    return int(max(1, min(most, soon_judged, free // 4 // per_image)))
