"""Pieces that both kernels share: memory, synchronisation between levels, products."""

from __future__ import annotations

import triton
import triton.language as tl

from dagnn.kernels.call import INTERPRETED

# What differs from batch to batch: sizes, and the alignment of what is cut out of longer tensors.
# A kernel compiled for each would be compiled often.
ANY = {
    "do_not_specialize": (
        "nodes", "edges", "levels", "first_stage", "last_stage", "first_step", "last_step",
        "workers",
    ),
    "do_not_specialize_on_alignment": (
        "level_ptr", "pred_ptr", "pred", "succ_ptr", "succ", "succ_slot", "edge_score",
        "edge_scores",
    ),
}  # fmt: skip

__all__ = [
    "ANY",
    "add_compensated",
    "arrive",
    "dot",
    "fresh",
    "has_tile",
    "level_bounds",
    "of_pair",
    "pin",
    "rows",
    "scales",
    "sigmoid",
    "store_each",
    "stored",
    "tanh",
    "wait",
]


@triton.jit
def wait(counter, expected):
    """Spin until :obj:`expected` tiles have arrived; later loads see what they wrote. One warp asks
    and the others wait for it: with eight times as many questions, arrivals would stand in line
    behind them."""
    if not INTERPRETED:  # which runs one program after the other
        tl.inline_asm_elementwise(
            """{
            .reg .pred waits;
            .reg .u32 thread, arrived;
            mov.u32 thread, %tid.x;
            setp.ge.u32 waits, thread, 32;
            @waits bra DONE;
            ASK:
            ld.acquire.gpu.global.u32 arrived, [$1];
            setp.lt.s32 waits, arrived, $2;
            @waits bra ASK;
            DONE:
            bar.sync 0;
            mov.u32 $0, 0;
            }""",
            "=r,l,r",
            [counter.to(tl.int64, bitcast=True), expected],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def arrive(counter, tiles):
    """Announce finished tiles, after all threads of the program have stored them."""
    tl.debug_barrier()
    tl.atomic_add(counter, tiles, sem="release", scope="gpu")


@triton.jit
def of_pair(pair, second):
    """One of two tensors, where only the running kernel knows which."""
    chosen = pair[0]
    if second:
        chosen = pair[1]
    return chosen


@triton.jit
def level_bounds(level_ptr, level, levels):
    """The nodes of a level; none before the first level and after the last one."""
    inside = (level >= 0) & (level < levels)
    low = tl.load(level_ptr + level, mask=inside, other=0)
    high = tl.load(level_ptr + level + 1, mask=inside, other=0)
    return low, high


@triton.jit
def has_tile(level_ptr, level, levels, tile, BM: tl.constexpr):
    """Whether a level has so many tiles."""
    low, high = level_bounds(level_ptr, level, levels)
    return low + tile * BM < high


@triton.jit
def stored(row_ptr, column, row_mask, column_mask, FRESH: tl.constexpr):
    """Rows of a matrix as they are. ``[rows, columns]``

    What other programs of this launch have written is read around the first-level cache.
    """
    mask = row_mask[:, None] & column_mask[None, :]
    at = row_ptr[:, None] + column[None, :]
    if FRESH:
        return tl.load(at, mask=mask, other=0.0, cache_modifier=".cg")
    return tl.load(at, mask=mask, other=0.0)


@triton.jit
def rows(row_ptr, column, row_mask, column_mask):
    """Rows of a matrix, in float32. ``[rows, columns]``"""
    return stored(row_ptr, column, row_mask, column_mask, False).to(tl.float32)


@triton.jit
def fresh(row_ptr, column, row_mask, column_mask):
    """Rows that other programs of this launch have written, in float32."""
    return stored(row_ptr, column, row_mask, column_mask, True).to(tl.float32)


@triton.jit
def store_each(at, x, mask):
    """Store a number of each row, by all threads that have it: the same bits. The compiler would
    first give each row to one thread, which is an exchange between warps."""
    if INTERPRETED:
        tl.store(at, x, mask=mask)
    else:
        tl.inline_asm_elementwise(
            """{
            .reg .pred p;
            setp.ne.u32 p, $3, 0;
            @p st.global.f32 [$1], $2;
            mov.u32 $0, 0;
            }""",
            "=r,l,f,r",
            [at.to(tl.int64, bitcast=True), x, mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def pin(x):
    """The same values, in the layout that they have.

    The compiler likes to move a change of layout up through arithmetic to the loads. Before a
    product with few rows, that would make every warp do all the arithmetic (and spill): an
    opaque move stops it.
    """
    if INTERPRETED:
        return x
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=False, pack=1
    )


@triton.jit
def _nearest(x):
    """Rounded to TF32's 11 bits. The matrix units would cut the rest off, and errors that all
    point to zero add up over the levels."""
    bits = (x.to(tl.int32, bitcast=True) + 4096) & -8192
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def scales(top):
    """Powers of two, of which the largest number of a row, or of a matrix, has at least 2 ** 13 and
    less than 2 ** 14; and their inverses. (So numbers of fp16 that are 2 ** 28 times smaller still
    have all their bits, and sums of products are far from float32's largest.)"""
    # By the exponent's bits, so that nothing is rounded; both are kept within float32's range.
    exponent = top.to(tl.int32, bitcast=True) >> 23
    exponent = tl.minimum(tl.maximum(exponent, 14), 253)
    scale = ((exponent - 13) << 23).to(tl.float32, bitcast=True)
    return scale, ((267 - exponent) << 23).to(tl.float32, bitcast=True)


@triton.jit
def dot(a, b, acc, PRECISION: tl.constexpr):
    """``acc + a @ b``; ``b`` is in the operands' type already."""
    if INTERPRETED:  # which does not know bfloat16
        return tl.dot(a.to(b.dtype).to(tl.float32), b.to(tl.float32), acc)
    if PRECISION == "fp32":
        # Three products of TF32 parts: 22 bits of mantissa.
        a_high = pin(_nearest(a))
        a_low = pin(_nearest(a - a_high))
        b_high = _nearest(b)
        low = tl.dot(a_low, b_high, input_precision="tf32")
        low = tl.dot(a_high, _nearest(b - b_high), low, input_precision="tf32")
        # Not into acc: the units round their sums towards zero, which a large start would feel.
        return acc + (tl.dot(a_high, b_high, input_precision="tf32") + low)
    if PRECISION == "bf16x3":  # 16 bits, in the memory of TF32's 11
        a_high = pin(a.to(tl.bfloat16).to(tl.float32))
        a_low = pin(a - a_high)
        b_high = b.to(tl.bfloat16)
        acc = tl.dot(a_low.to(tl.bfloat16), b_high, acc)
        acc = tl.dot(a_high.to(tl.bfloat16), (b - b_high.to(tl.float32)).to(tl.bfloat16), acc)
        return tl.dot(a_high.to(tl.bfloat16), b_high, acc)
    if PRECISION == "tf32":
        return tl.dot(pin(_nearest(a)), _nearest(b), acc, input_precision="tf32")
    return tl.dot(a.to(b.dtype), b, acc)


@triton.jit
def add_compensated(total, lost, term):
    """One more term of a sum, and what its rounding takes from it (Kahan)."""
    term -= lost
    larger = total + term
    return larger, (larger - total) - term


@triton.jit
def sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def tanh(x):
    # Through exp of a negative number, which cannot overflow; near zero, where that would be a
    # difference of large numbers, by a polynomial of Cephes (S. L. Moshier), tanhf.c.
    e = tl.exp(-2 * tl.abs(x))
    t = (1 - e) / (1 + e)
    s = x * x
    p = -5.70498872745e-3 * s + 2.06390887954e-2
    p = ((p * s - 5.37397155531e-2) * s + 1.33314422036e-1) * s - 3.33332819422e-1
    return tl.where(tl.abs(x) < 0.625, p * s * x + x, tl.where(x < 0, -t, t))
