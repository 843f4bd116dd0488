"""The plan step of the search on GPUs, in Triton: a dozen launches and no wait (docs/algorithms.md, section 4).

The arithmetic of `potential.move_mass_torch`. The plan is never written out: the flow along a move is computed again
wherever it is needed, from the potentials at both ends and two numbers a pixel,

    P_ij = source_i exp(potential_j - potential_i - toll_ij - top_i),   source_i = x_i / sum_j exp(... - top_i).

Every pixel gathers, none scatters, so results are the same from run to run. The kernels never ask the host: the price
of an image is found by one program in one loop. A program works on a tile of planes (the channels of all images, one
after the other) and pixels. GPUs get one plane a program; Triton's interpreter, which pays by the operation and not
by the pixel, gets as many as fit.

Only code that has Triton imports this file. Kernels are typed by Triton, which reads no annotations but `constexpr`.
"""

# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from massmover.ball import Balls
from massmover.geometry import Window
from massmover.transport.potential import Move, Pull
from massmover.types import Images, MassmoverError

SEND_BACK_SWEEPS = 8  # as in `potential`
TILE = 256  # pixels a program on a GPU
PRICE_TILE = 1024  # the program of an image takes that many of its pixels at a time
INTERPRETED_TILE = 2**17  # numbers in an array of the interpreter
MOST_ATTEMPTS = 60  # at a price: 3 or 4 where potentials are flat, up to 24 where they are steep and plans sharp
MOST_POTENTIAL = 1e37  # larger ones count as this much, so that no difference overflows

ROOT_ACCURACY = tl.constexpr(1e-6)  # of the budget; the certificate solves it to float64
CLIFF = tl.constexpr(1e-9)  # a bracket this narrow holds no price that meets the budget
DEAREST = tl.constexpr(1e30)  # the price of an image without a budget
OUTSIDE = tl.constexpr(-1e38)  # potential beyond the border: lower than any inside, yet finite, for it is subtracted
NO_MOVE = tl.constexpr(-5e37)  # best move of a ring without any
NEVER = tl.constexpr(2e38)  # `top` of a pixel beyond the border: nothing comes from there
SPECK = tl.constexpr(1e-30)  # a pixel darker than this keeps its mass: its reciprocal would overflow
LEAST_MOBILE = tl.constexpr(1e-6)
OVERFULL = tl.constexpr(1e-6)  # by how much a pixel may exceed 1 in the search
TINY = tl.constexpr(1e-300)
SHORT = tl.constexpr(-4096)  # a mask that leaves a float32 twelve bits: products of two such numbers are exact


class Table(NamedTuple):
    """A window's moves but "stay", ring by ring; costs in two parts, twelve bits and the rest."""

    rows: Any  # (K - 1,)
    columns: Any
    coarse: Any  # (K - 1,)
    fine: Any
    ends: Any  # (R,), the number of moves up to the end of each ring
    moves: Any  # K - 1
    rings: Any  # R


class Given(NamedTuple):
    """Potentials and balls."""

    potential: Any
    originals: Any
    weights: Any  # float64, as are all that follow
    budget: Any
    guess: Any
    guess_step: Any  # 0 where one guess serves all images
    floor: Any


class Rings(NamedTuple):
    """Sums of exp(potential - own potential) over rings, as a maximum and a sum relative to it: (B * C, R, H * W)."""

    best: Any
    total: Any


class Rows(NamedTuple):
    """What makes a plan of a potential: the price, what a unit of distance costs a plane, and two numbers a pixel."""

    price: Any  # (B,)
    coarse: Any  # (B * C,), twelve bits of the price of the plane
    fine: Any  # (B * C,), the rest
    top: Any  # (B, C, H, W), the score of the row's best move
    source: Any  # (B, C, H, W), mass over the sum of the row relative to it


class Shares(NamedTuple):
    """The share of its inflow each pixel keeps, and how many pixels of a tile lowered theirs in the last sweep."""

    share: Any  # (B, C, H, W)
    lowered: Any  # (B * C, tiles of a plane)


class Arrived(NamedTuple):
    """Where mass arrives, and the answers go."""

    images: Any
    crowding: Any
    inflow: Any  # what comes in once swaps stay home and before any is sent back
    spent: Any  # (B, C * tiles of a plane)


class Shape(NamedTuple):
    """Of the images."""

    channels: Any
    height: Any
    width: Any


@triton.jit
def _tile(shape, planes, PLANES: tl.constexpr, PIXELS: tl.constexpr):
    """The planes of a program, where its pixels are in memory, which of them exist, and their rows and columns."""
    plane = (tl.program_id(0) * PLANES + tl.arange(0, PLANES)[:, None]).to(tl.int64)
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)[None, :]
    size = shape.height * shape.width
    valid = (plane < planes) & (pixel < size)
    return plane, plane * size + pixel, valid, (pixel // shape.width, pixel % shape.width)


@triton.jit
def _end(table, shape, place, k):
    """How far away in memory a move ends, and whether it ends inside the image."""
    down, right = tl.load(table.rows + k), tl.load(table.columns + k)
    y, x = place[0] + down, place[1] + right
    return down * shape.width + right, (y >= 0) & (y < shape.height) & (x >= 0) & (x < shape.width)


@triton.jit
def _split(number):
    """A float64 as a float32 of twelve bits and the rest."""
    coarse = (number.to(tl.float32).to(tl.int32, bitcast=True) & SHORT).to(tl.float32, bitcast=True)
    return coarse, (number - coarse.to(tl.float64)).to(tl.float32)


@triton.jit
def _after_toll(gain, coarse, fine, table, k):
    """The score of a move: the gain in potential less the toll.

    A toll in float32 would make the cost a staircase in the price, too coarse for its root. The product of the leading
    bits is exact and the rest is small.
    """
    high, low = tl.load(table.coarse + k), tl.load(table.fine + k)
    return (gain - coarse * high) - (coarse * low + fine * (high + low))


@triton.jit(do_not_specialize=["planes"])
def write_rings(given, rings, table, shape, planes, PLANES: tl.constexpr, PIXELS: tl.constexpr):
    """Add up what every pixel sees in each ring, whatever the price."""
    plane, at, valid, place = _tile(shape, planes, PLANES, PIXELS)
    own = tl.load(given.potential + at, mask=valid, other=0.0)
    size = shape.height * shape.width
    out = at + plane * (table.rings - 1) * size
    begin = 0
    for r in range(table.rings):
        best = tl.full((PLANES, PIXELS), NO_MOVE, tl.float32)
        total = tl.zeros((PLANES, PIXELS), tl.float32)
        end = tl.load(table.ends + r)
        for k in range(begin, end):
            step, inside = _end(table, shape, place, k)
            gain = tl.load(given.potential + at + step, mask=valid & inside, other=OUTSIDE) - own
            lesser = tl.exp(-tl.abs(gain - best))
            total = tl.where(gain > best, total * lesser + 1.0, total + lesser)
            best = tl.maximum(best, gain)
        tl.store(rings.best + out, best, mask=valid)
        tl.store(rings.total + out, total, mask=valid)
        out += size
        begin = end


@triton.jit
def _cost(given, rings, table, shape, image, valid, point, mass, PIXELS: tl.constexpr):
    """What the plans of some images cost at a price, and minus the derivative by the price."""
    size = shape.height * shape.width
    cost, slope = tl.zeros_like(point), tl.zeros_like(point)
    for c in range(shape.channels):
        plane = image * shape.channels + c
        weight = tl.load(given.weights + plane, mask=valid, other=0.0)
        relative = weight * mass
        coarse, fine = _split(tl.minimum(point * relative, DEAREST))
        weight = tl.minimum(weight, DEAREST).to(tl.float32)[:, None]  # it is more where there is only a speck of mass
        coarse, fine = coarse[:, None], fine[:, None]
        for start in range(0, size, PIXELS):
            pixel = start + tl.arange(0, PIXELS)[None, :]
            here = valid[:, None] & (pixel < size)
            paid = tl.load(given.originals + plane[:, None] * size + pixel, mask=here, other=0.0) * weight
            ring = plane[:, None] * table.rings * size + pixel
            top = tl.zeros_like(paid)
            at = ring
            for r in range(table.rings):
                k = tl.load(table.ends + r) - 1
                high, low = tl.load(table.coarse + k), tl.load(table.fine + k)
                best = tl.load(rings.best + at, mask=here, other=NO_MOVE)
                top = tl.maximum(top, (best - coarse * high) - (coarse * low + fine * (high + low)))  # _after_toll
                at += size
            total = tl.exp(-top)
            first, second = tl.zeros_like(paid), tl.zeros_like(paid)
            at = ring
            for r in range(table.rings):
                k = tl.load(table.ends + r) - 1
                high, low = tl.load(table.coarse + k), tl.load(table.fine + k)
                distance = high + low
                best = tl.load(rings.best + at, mask=here, other=NO_MOVE)
                many = tl.load(rings.total + at, mask=here, other=0.0)
                part = many * tl.exp(((best - coarse * high) - (coarse * low + fine * distance)) - top)
                total += part
                first += distance * part
                second += distance * distance * part
                at += size
            mean = first / total
            cost += tl.sum(paid * mean, axis=1).to(tl.float64)
            slope += tl.sum(paid * (second / total - mean * mean), axis=1).to(tl.float64) * relative
    return cost, slope


@triton.jit(do_not_specialize=["images"])
def find_price(given, rings, rows, table, shape, images, attempts, IMAGES: tl.constexpr, PIXELS: tl.constexpr):
    """The price at which the plan of an image costs its budget; where none is found, one that can be paid.

    Newton on the logarithm of the cost, kept in a bracket, as `_price_of` of the Numba kernels.
    """
    image = (tl.program_id(0) * IMAGES + tl.arange(0, IMAGES)).to(tl.int64)
    valid = image < images
    size = shape.channels * shape.height * shape.width
    mass = tl.zeros((IMAGES,), tl.float64)
    for start in range(0, size, PIXELS):
        pixel = start + tl.arange(0, PIXELS)[None, :]
        here = valid[:, None] & (pixel < size)
        there = tl.load(given.originals + image[:, None] * size + pixel, mask=here, other=0.0)
        mass += tl.sum(there.to(tl.float64), axis=1)
    budget = tl.load(given.budget + image, mask=valid, other=0.0)
    floor = tl.load(given.floor) + tl.zeros_like(budget)
    point = tl.maximum(tl.load(given.guess + image * given.guess_step, mask=valid, other=0.0), floor)
    low, high = floor, tl.full((IMAGES,), float("inf"), tl.float64)
    dearest = tl.full((IMAGES,), DEAREST, tl.float64)
    searching = budget > 0.0
    attempt = 0
    while (attempt < attempts) & (tl.sum(searching.to(tl.int32)) > 0):
        cost, slope = _cost(given, rings, table, shape, image, valid, point, mass, PIXELS)
        above = cost > budget
        low = tl.where(searching & above, point, low)
        high = tl.where(searching & (cost <= budget), point, high)
        unbounded = high == float("inf")
        met = (tl.abs(cost - budget) <= ROOT_ACCURACY * budget) | ((point == floor) & (cost <= budget))
        cliff = high - low <= CLIFF * low
        wider = 4.0 * low + 8.0
        middle = tl.where(unbounded, wider, 0.5 * (low + tl.where(unbounded, low, high)))
        newton = point + tl.log(tl.maximum(cost, TINY) / tl.maximum(budget, TINY)) * cost / tl.maximum(slope, TINY)
        newton = tl.where((slope > 0.0) & (cost > 0.0), newton, point)
        newton = tl.where(unbounded, tl.minimum(newton, wider), newton)
        # Newton may creep along a cliff: every fourth attempt halves the bracket.
        sound = (newton > low) & (newton < high) & (unbounded | (attempt % 4 != 3))
        free = (low == floor) & (cost <= budget) & ((newton <= floor) | (newton >= point))
        following = tl.where(free, floor, tl.where(sound, newton, middle))
        following = tl.where(met, point, tl.where(cliff, high, following))
        point = tl.where(searching, following, point)
        searching = searching & (met == 0) & (cliff == 0) & (point < dearest)
        attempt += 1
    price = tl.where(budget > 0.0, tl.minimum(tl.where(searching, high, point), dearest), dearest)
    tl.store(rows.price + image, price, mask=valid)
    for c in range(shape.channels):
        weight = tl.load(given.weights + image * shape.channels + c, mask=valid, other=0.0)
        coarse, fine = _split(tl.minimum(price * weight * mass, DEAREST))
        tl.store(rows.coarse + image * shape.channels + c, coarse, mask=valid)
        tl.store(rows.fine + image * shape.channels + c, fine, mask=valid)


@triton.jit
def _rate(rows, plane, planes):
    """What a unit of distance costs in each plane, in two parts."""
    valid = plane < planes
    return tl.load(rows.coarse + plane, mask=valid, other=0.0), tl.load(rows.fine + plane, mask=valid, other=0.0)


@triton.jit(do_not_specialize=["planes"])
def write_rows(given, rings, rows, table, shape, planes, PLANES: tl.constexpr, PIXELS: tl.constexpr):
    """The two numbers of every pixel from which its row follows at the price that was found."""
    plane, at, valid, place = _tile(shape, planes, PLANES, PIXELS)
    coarse, fine = _rate(rows, plane, planes)
    own = tl.load(given.potential + at, mask=valid, other=0.0)
    top = tl.zeros_like(own)
    size = shape.height * shape.width
    ring = at + plane * (table.rings - 1) * size
    for r in range(table.rings):
        best = tl.load(rings.best + ring, mask=valid, other=NO_MOVE)
        top = tl.maximum(top, _after_toll(best, coarse, fine, table, tl.load(table.ends + r) - 1))
        ring += size
    # Move by move, not ring by ring: what leaves a row then adds up to its mass even where potentials are huge.
    total = tl.exp(-top)
    for k in range(table.moves):
        step, inside = _end(table, shape, place, k)
        gain = tl.load(given.potential + at + step, mask=valid & inside, other=OUTSIDE) - own
        total += tl.exp(_after_toll(gain, coarse, fine, table, k) - top)
    mass = tl.load(given.originals + at, mask=valid, other=0.0)
    price = tl.load(rows.price + plane // shape.channels, mask=plane < planes, other=0.0)
    movable = (mass > SPECK) & (price < tl.full((PLANES, 1), DEAREST, tl.float64))
    tl.store(rows.top + at, top, mask=valid)
    tl.store(rows.source + at, tl.where(movable, mass / total, 0.0), mask=valid)


@triton.jit
def _pixels(given, rows, at, valid, place, plane, planes):
    """What the flows of a pixel depend on."""
    own = tl.load(given.potential + at, mask=valid, other=0.0)
    top = tl.load(rows.top + at, mask=valid, other=0.0)
    source = tl.load(rows.source + at, mask=valid, other=0.0)
    coarse, fine = _rate(rows, plane, planes)
    return at, valid, place, own, top, source, coarse, fine


@triton.jit
def _exchange(given, rows, table, shape, pixels, k):
    """What pixels send along a move, what the pixels at its end send back, where those are, and if inside the image."""
    at, valid, place, own, top, source, coarse, fine = pixels
    step, inside = _end(table, shape, place, k)
    there, inside = at + step, inside & valid
    gain = tl.load(given.potential + there, mask=inside, other=OUTSIDE) - own
    their_top = tl.load(rows.top + there, mask=inside, other=NEVER)
    their_source = tl.load(rows.source + there, mask=inside, other=0.0)
    high, low = tl.load(table.coarse + k), tl.load(table.fine + k)
    toll, rest = coarse * high, coarse * low + fine * (high + low)  # as in _after_toll; the same both ways
    sent = source * tl.exp(((gain - toll) - rest) - top)
    received = their_source * tl.exp(((-gain - toll) - rest) - their_top)
    return sent, received, there, inside


@triton.jit
def _lowered(share, inflow, leaving, mass):
    """The share a pixel keeps if it is not to overflow, and whether that is less than it kept. Equation (2)."""
    room = tl.maximum(1.0 - mass + leaving, 0.0)
    overfull = share * inflow > room + OVERFULL
    return tl.where(overfull, room / tl.maximum(inflow, SPECK), share), overfull


@triton.jit
def _store_shares(shares, share, overfull, at, valid, plane, planes):
    tl.store(shares.share + at, share, mask=valid)
    count = tl.sum((overfull & valid).to(tl.int32), axis=1)[:, None]
    tl.store(shares.lowered + plane * tl.num_programs(1) + tl.program_id(1), count, mask=plane < planes)


@triton.jit(do_not_specialize=["planes"])
def write_arrivals(given, rows, arrived, shares, table, shape, planes, PLANES: tl.constexpr, PIXELS: tl.constexpr):
    """How crowded pixels would be if none sent mass back; what comes in once swaps stay home; the first shares."""
    plane, at, valid, place = _tile(shape, planes, PLANES, PIXELS)
    pixels = _pixels(given, rows, at, valid, place, plane, planes)
    mass = tl.load(given.originals + at, mask=valid, other=0.0)
    came, left = tl.zeros((PLANES, PIXELS), tl.float32), tl.zeros((PLANES, PIXELS), tl.float32)
    inflow, leaving = tl.zeros((PLANES, PIXELS), tl.float32), tl.zeros((PLANES, PIXELS), tl.float32)
    mobile = tl.full((PLANES, PIXELS), LEAST_MOBILE, tl.float32)  # how fast a pixel's mass grows with its potential
    for k in range(table.moves):
        sent, received, there, inside = _exchange(given, rows, table, shape, pixels, k)
        theirs = tl.load(given.originals + there, mask=inside, other=0.0)
        came += received
        left += sent
        mobile += received * (1.0 - received / tl.maximum(theirs, SPECK))
        inflow += tl.maximum(received - sent, 0.0)
        leaving += tl.maximum(sent - received, 0.0)
    mobile += left * (1.0 - left / tl.maximum(mass, SPECK))
    tl.store(arrived.crowding + at, ((mass - 1.0) + (came - left)) / mobile, mask=valid)
    tl.store(arrived.inflow + at, inflow, mask=valid)
    share, overfull = _lowered(tl.full((PLANES, PIXELS), 1.0, tl.float32), inflow, leaving, mass)
    _store_shares(shares, share, overfull, at, valid, plane, planes)


@triton.jit(do_not_specialize=["planes"])
def send_back(given, rows, arrived, before, after, table, shape, planes, PLANES: tl.constexpr, PIXELS: tl.constexpr):
    """One sweep: what leaves at the present shares, and the shares that then fit. Planes that fit are left alone."""
    plane, at, valid, place = _tile(shape, planes, PLANES, PIXELS)
    changed = tl.zeros((PLANES, 1), tl.int32)
    for tile in range(tl.num_programs(1)):
        changed += tl.load(before.lowered + plane * tl.num_programs(1) + tile, mask=plane < planes, other=0)
    share = tl.load(before.share + at, mask=valid, other=1.0)
    overfull = share < 0.0
    if tl.sum(changed) > 0:
        pixels = _pixels(given, rows, at, valid, place, plane, planes)
        leaving = tl.zeros((PLANES, PIXELS), tl.float32)
        for k in range(table.moves):
            sent, received, there, inside = _exchange(given, rows, table, shape, pixels, k)
            leaving += tl.maximum(sent - received, 0.0) * tl.load(before.share + there, mask=inside, other=0.0)
        mass = tl.load(given.originals + at, mask=valid, other=0.0)
        inflow = tl.load(arrived.inflow + at, mask=valid, other=0.0)
        share, overfull = _lowered(share, inflow, leaving, mass)
    _store_shares(after, share, overfull, at, valid, plane, planes)


@triton.jit(do_not_specialize=["planes"])
def arrive(given, rows, arrived, shares, table, shape, planes, PLANES: tl.constexpr, PIXELS: tl.constexpr):
    """The images after the move, and what each tile pays for it."""
    plane, at, valid, place = _tile(shape, planes, PLANES, PIXELS)
    pixels = _pixels(given, rows, at, valid, place, plane, planes)
    leaving, paid = tl.zeros((PLANES, PIXELS), tl.float32), tl.zeros((PLANES, PIXELS), tl.float32)
    for k in range(table.moves):
        sent, received, there, inside = _exchange(given, rows, table, shape, pixels, k)
        kept = tl.maximum(sent - received, 0.0) * tl.load(shares.share + there, mask=inside, other=0.0)
        leaving += kept
        paid += kept * (tl.load(table.coarse + k) + tl.load(table.fine + k))
    mass = tl.load(given.originals + at, mask=valid, other=0.0)
    inflow = tl.load(arrived.inflow + at, mask=valid, other=0.0)
    share = tl.load(shares.share + at, mask=valid, other=0.0)
    tl.store(arrived.images + at, tl.minimum(tl.maximum(mass - leaving + share * inflow, 0.0), 1.0), mask=valid)
    weight = tl.load(given.weights + plane, mask=plane < planes, other=0.0)
    spent = tl.sum(paid, axis=1).to(tl.float64)[:, None] * weight
    tl.store(arrived.spent + plane * tl.num_programs(1) + tl.program_id(1), spent, mask=plane < planes)


INTERPRETED = not isinstance(write_rings, triton.JITFunction)  # TRITON_INTERPRET=1 was set: any device will do


def move_mass_triton(pull: Pull, balls: Balls) -> Move:
    """`potential.move_mass` for images on a GPU."""
    _check(balls.originals)
    B, C, H, W = balls.originals.shape
    device, shape = balls.originals.device, Shape(C, H, W)
    if not balls.originals.numel():
        nothing = torch.empty(balls.originals.shape, device=device)
        return Move(images=nothing, crowding=nothing, price=balls.budget.clone(), spent=balls.budget.clone())
    table = table_on(balls.window, device)
    given = Given(
        potential=pull.potential.float().clamp(-MOST_POTENTIAL, MOST_POTENTIAL).contiguous(),
        originals=balls.originals.float().contiguous(),
        weights=balls.weights.contiguous(),
        budget=pull.budget(balls).contiguous(),
        guess=_constant(1.0, device) if pull.price is None else pull.price.double().contiguous(),
        guess_step=int(pull.price is not None),
        floor=_constant(pull.floor, device),
    )
    planes, pixels = _tile_size(B * C, H * W, TILE)
    across, tiles = triton.cdiv(B * C, planes), triton.cdiv(H * W, pixels)

    def single(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(sizes, dtype=dtype, device=device)

    rings = Rings(single(B * C, table.rings, H * W), single(B * C, table.rings, H * W))
    rows = Rows(single(B, dtype=torch.float64), single(B, C), single(B, C), single(B, C, H, W), single(B, C, H, W))
    arrived = Arrived(
        images=single(B, C, H, W),
        crowding=single(B, C, H, W),
        inflow=single(B, C, H, W),
        spent=single(B, C * tiles, dtype=torch.float64),
    )
    shares, other = (Shares(single(B, C, H, W), single(B * C, tiles, dtype=torch.int32)) for _ in range(2))

    def over_pixels(kernel: Any, *values: Any) -> None:
        _launch(kernel, (across, tiles), *values, table, shape, B * C, PLANES=planes, PIXELS=pixels)

    over_pixels(write_rings, given, rings)
    _launch_price(given, rings, rows, table, shape)
    over_pixels(write_rows, given, rings, rows)
    over_pixels(write_arrivals, given, rows, arrived, shares)
    for _ in range(SEND_BACK_SWEEPS - 1):
        over_pixels(send_back, given, rows, arrived, shares, other)
        shares, other = other, shares
    over_pixels(arrive, given, rows, arrived, shares)
    return Move(images=arrived.images, price=rows.price, crowding=arrived.crowding, spent=arrived.spent.sum(dim=1))


def _launch_price(given: Given, rings: Rings, rows: Rows, table: Table, shape: Shape) -> None:
    """One program an image."""
    count = len(rows.price)
    images, pixels = _tile_size(count, shape.height * shape.width, PRICE_TILE)
    grid = (triton.cdiv(count, images),)
    _launch(find_price, grid, given, rings, rows, table, shape, count, MOST_ATTEMPTS, IMAGES=images, PIXELS=pixels)


def _launch(kernel: Any, grid: tuple[int, ...], *values: Any, **sizes: int) -> None:
    """Start a kernel: every launch of this file comes through here, so a test or benchmark can count them."""
    warps = max(1, min(8, sizes["PIXELS"] // 64))
    with torch.cuda.device_of(values[0].potential):  # Triton starts kernels where torch is, not where the images are
        kernel[grid](*values, **sizes, num_warps=warps, enable_fp_fusion=False)


def _tile_size(rows: int, pixels: int, most: int) -> tuple[int, int]:
    """Rows and pixels of a program, as powers of two."""
    if not INTERPRETED:
        return 1, min(triton.next_power_of_2(pixels), most)
    wide = min(triton.next_power_of_2(pixels), INTERPRETED_TILE)
    return min(triton.next_power_of_2(rows), INTERPRETED_TILE // wide), wide


def _check(originals: Images) -> None:
    if originals.device.type == "cpu" and not INTERPRETED:
        raise MassmoverError(
            "images are on the CPU: move them to a GPU, or set TRITON_INTERPRET=1 before Python starts"
        )


@lru_cache(maxsize=64)
def table_on(window: Window, device: torch.device) -> Table:
    """The moves of a window, ring by ring, on a device."""
    number = {pair: r for r, ring in enumerate(window.rings) for pair in ring.pairs}
    moves = sorted(window.offsets[1:], key=lambda move: number[abs(move[0]), abs(move[1])])
    ring_of = torch.tensor([number[abs(dy), abs(dx)] for dy, dx in moves], dtype=torch.int64)
    costs = torch.tensor([ring.cost for ring in window.rings], dtype=torch.float64)[ring_of]
    coarse = (costs.float().view(torch.int32) & SHORT.value).view(torch.float32)
    return Table(
        rows=torch.tensor([dy for dy, _ in moves], dtype=torch.int32, device=device),
        columns=torch.tensor([dx for _, dx in moves], dtype=torch.int32, device=device),
        coarse=coarse.to(device),
        fine=(costs - coarse.double()).float().to(device),
        ends=torch.tensor([ring.size for ring in window.rings]).cumsum(0).to(torch.int32).to(device),
        moves=len(moves),
        rings=len(window.rings),
    )


@lru_cache(maxsize=64)
def _constant(value: float, device: torch.device) -> Tensor:
    return torch.tensor([value], dtype=torch.float64, device=device)
