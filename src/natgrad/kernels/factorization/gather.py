"""What all ratings of a row say of it, summed: packed moments of the other side in, normal equations of every row out.

    Σ_n t_j E[y yᵀ],   Σ_n t_j E[y],   Σ_n t_j r_n E[y],   Σ_n t_j,   Σ_n t_j r_n,   Σ_n t_j r_n²        y = y_j, j of rating n

`pack` puts the lower triangle of E[y yᵀ] and E[y] of each row of the other side side by side, so that a rating costs one pass
over contiguous numbers. These are D²/2 numbers, so that the table of a large side does not fit in the processor's cache, and
ratings, in any order, would wait for memory: five to ten times as long as the sums take. So the other side is cut into
blocks that do fit, and all rows of a thread read a block before any of them goes on to the next: ratings of a row must come
in ascending order of ``other``. Sums are made in this order whatever the number of threads.
"""

from __future__ import annotations

from natgrad.kernels._njit import lane_kernel, of_pieces, of_rows, parallel_kernel, serial_kernel
from natgrad.kernels.factorization import plain

__all__ = ["gather_rows", "normal_equations", "pack", "sum_rows", "unpack"]


@parallel_kernel(of_rows, plain=plain.pack)
def pack(low, high, mean, second, tell):
    """``tell`` [rows, D(D+1)/2 + D]: the lower triangle of E[y yᵀ], then E[y]."""
    size = mean.shape[1]
    for row in range(low, high):
        place = 0
        for k in range(size):
            for h in range(k + 1):
                tell[row, place] = second[row, k, h]
                place += 1
        for k in range(size):
            tell[row, place + k] = mean[row, k]


@serial_kernel
def unpack(tell, mean, second):
    """Back from ``tell`` to the vector and both triangles of the matrix of each row."""
    size = mean.shape[1]
    for row in range(mean.shape[0]):
        place = 0
        for k in range(size):
            for h in range(k + 1):
                second[row, k, h] = tell[row, place]
                second[row, h, k] = tell[row, place]
                place += 1
        for k in range(size):
            mean[row, k] = tell[row, place + k]


@serial_kernel
def sum_rows(start, values, out):
    """The sum of each row, number after number: those of a row are added alike wherever the row lies."""
    for row in range(out.shape[0]):
        total = 0.0
        for n in range(start[row], start[row + 1]):
            total += values[n]
        out[row] = total


@parallel_kernel(of_pieces, plain=plain.gather_rows, work=plain.work_of_ratings)
def gather_rows(low, high, pieces, start, other, values, offset, trust, less, tell, weight, block, sums):
    """The sums of the rows ``pieces[0] … pieces[-1]``; a thread has a run of pieces of about equal work.

    ``block`` is how many rows of ``tell`` are read at a time; ``offset`` is taken off every rating; ``weight`` is t of the
    other side; ``trust`` [n], or [1] for all, multiplies the precision of single ratings; ``less`` [n] or [1] is what zeros of
    all pairs have counted of a rating's pair: it goes from Σ t, Σ t E[y yᵀ] and Σ t E[y].
    ``sums`` [rows, D(D+1)/2 + 2 D + 3].
    """
    first = pieces[0]
    own, end_own = pieces[low], pieces[high]
    cursor = start[own:end_own].copy()
    sums[own - first : end_own - first, :] = 0.0
    for begin in range(0, tell.shape[0], block):
        edge = begin + block
        for row in range(own, end_own):
            here, last = cursor[row - own], start[row + 1]
            end = last if edge >= tell.shape[0] else here
            while end < last and other[end] < edge:
                end += 1
            _add_ratings(here, end, other, values, offset, trust, less, tell, weight, sums[row - first])
            cursor[row - own] = end


@lane_kernel
def _add_ratings(begin, end, other, values, offset, trust, less, tell, weight, out):
    """Add what the ratings ``begin … end`` say, two at a time: half the traffic to the sums."""
    width = tell.shape[1]
    size = out.shape[0] - 3 - width
    mean = width - size
    common, same = trust.shape[0] == 1, less.shape[0] == 1
    total, first, second = 0.0, 0.0, 0.0
    n = begin
    while n < end:
        j, rating = other[n], values[n] - offset
        w = weight[j] * trust[0 if common else n]
        rated = w * rating
        w -= less[0 if same else n]
        total += w
        first += rated
        second += rated * rating
        n += 1
        if n == end:
            for t in range(width):
                out[t] += w * tell[j, t]
            for k in range(size):
                out[width + k] += rated * tell[j, mean + k]
            break
        i, rating = other[n], values[n] - offset
        v = weight[i] * trust[0 if common else n]
        also = v * rating
        v -= less[0 if same else n]
        total += v
        first += also
        second += also * rating
        n += 1
        for t in range(width):
            out[t] += w * tell[j, t] + v * tell[i, t]
        for k in range(size):
            out[width + k] += rated * tell[j, mean + k] + also * tell[i, mean + k]
    out[width + size] += total
    out[width + size + 1] += first
    out[width + size + 2] += second


@lane_kernel
def normal_equations(sums, biased, matrix, vector):
    """Σ t E[a aᵀ] and Σ t E[(r − c) a], a = (v, 1), from the sums of a row; returns Σ t E[(r − c)²]."""
    size = vector.shape[0]
    n_factors = size - 1 if biased else size
    means = size * (size + 1) // 2
    linear, totals = means + size, means + 2 * size
    place = 0
    for k in range(n_factors):
        vector[k] = sums[linear + k]
        for h in range(k + 1):
            matrix[k, h] = sums[place]
            matrix[h, k] = sums[place]
            place += 1
    if not biased:
        return sums[totals + 2]
    # The last row of the triangle is E[c v], then E[c²].
    for k in range(n_factors):
        vector[k] -= sums[place + k]
        matrix[n_factors, k] = sums[means + k]
        matrix[k, n_factors] = sums[means + k]
    matrix[n_factors, n_factors] = sums[totals]
    vector[n_factors] = sums[totals + 1] - sums[means + n_factors]
    return sums[totals + 2] - 2.0 * sums[linear + n_factors] + sums[place + n_factors]
