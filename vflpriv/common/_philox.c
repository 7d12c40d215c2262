/* Philox4x32-10 (Salmon et al. 2011) in C: what vflpriv/common/philox.py computes with tensors, several times faster;
 * and what vflpriv/laws/continuous.py and grid.py compute, noise on a grid from random bits.
 *
 * It is optional, and both give the same bits: sums, products, quotients and square roots are rounded correctly in either,
 * and nothing is contracted. Logarithms, sines and cosines in single precision are left to torch, whose last bits are its
 * own; those in double precision are sums and products, and the same on every processor.
 *
 * A draw is an array (R replicas, K sequences, blocks). Each of its cells is one counter and gives four words. A call
 * fills the cells from `begin` on, in the order of memory, as many as its target holds.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>

#if defined(_MSC_VER)
#define INLINE static __forceinline
#else
#define INLINE static inline __attribute__((always_inline))
#endif

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAS_AVX2 __builtin_cpu_supports("avx2")
#define HAS_AVX512 __builtin_cpu_supports("avx512f")
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f")))
#include <immintrin.h>
#endif

/* No product is contracted with a sum, which would change the last bits. That comparisons set no flags leaves loops free
 * for vectors, and changes no value. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off", "no-trapping-math")
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

enum { LANES = 128, PIECE = 2 * LANES - 8, NUMBERS = 3, TILE = 16 };

static const uint32_t MULTIPLIERS[2] = {0xD2511F53u, 0xCD9E8D57u}, KEY_STEPS[2] = {0x9E3779B9u, 0xBB67AE85u};

/* Of fdlibm: series of the logarithm, sine and cosine; logarithm of 2 in two parts. */
static const double LOG[7] = {0x1.5555555555593p-1, 0x1.999999997fa04p-2, 0x1.2492494229359p-2, 0x1.c71c51d8e78afp-3,
                              0x1.7466496cb03dep-3, 0x1.39a09d078c69fp-3, 0x1.2f112df3e5244p-3};
static const double SIN[6] = {-0x1.5555555555549p-3, 0x1.111111110f8a6p-7, -0x1.a01a019c161d5p-13,
                              0x1.71de357b1fe7dp-19, -0x1.ae5e68a2b9cebp-26, 0x1.5d93a5acfd57cp-33};
static const double COS[6] = {0x1.555555555554cp-5, -0x1.6c16c16c15177p-10, 0x1.a01a019cb159p-16,
                              -0x1.27e4f809c52adp-22, 0x1.1ee9ebdb4b1c4p-29, -0x1.8fae9be8838d4p-37};
static const double LN2_HIGH = 0x1.62e42feep-1, LN2_LOW = 0x1.a39ef35793c76p-33, HALF_PI = 0x1.921fb54442d18p+0;

/* Every lane has its own counter and key, so that short sequences of many replicas fill the processor's vectors too. */
typedef struct {
    uint32_t c[4][LANES], k[2][LANES];
} Lanes;

INLINE void rounds(Lanes *lanes, int count)
{
    for (int j = 0; j < count; j++) {
        uint32_t c0 = lanes->c[0][j], c1 = lanes->c[1][j], c2 = lanes->c[2][j], c3 = lanes->c[3][j];
        uint32_t k0 = lanes->k[0][j], k1 = lanes->k[1][j];
        for (int round = 0; round < 10; round++) {
            uint64_t p0 = (uint64_t)c0 * MULTIPLIERS[0], p1 = (uint64_t)c2 * MULTIPLIERS[1];
            c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, c1 = (uint32_t)p1;
            c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1, c3 = (uint32_t)p0;
            k0 += KEY_STEPS[0], k1 += KEY_STEPS[1];
        }
        lanes->c[0][j] = c0, lanes->c[1][j] = c1, lanes->c[2][j] = c2, lanes->c[3][j] = c3;
    }
}

#ifdef AVX2
/* A block a 64-bit word of a vector, each of its words in the low half; a product ignores what is in the high halves.
 * As many lanes as fill two vectors are computed at a time; what is computed in lanes from `count` on is not read. */
#define WIDE_ROUNDS(TARGET, SUFFIX, VECTOR, INTRINSIC, BITS, BLENDED, AT_ONCE)                                         \
    typedef struct {                                                                                                   \
        VECTOR c0, c1, c2, c3, k0, k1;                                                                                 \
    } Words##SUFFIX;                                                                                                   \
                                                                                                                       \
    TARGET INLINE void round_of##SUFFIX(Words##SUFFIX *w)                                                              \
    {                                                                                                                  \
        VECTOR p0 = INTRINSIC(mul_epu32)(w->c0, INTRINSIC(set1_epi64)(MULTIPLIERS[0]));                                \
        VECTOR p1 = INTRINSIC(mul_epu32)(w->c2, INTRINSIC(set1_epi64)(MULTIPLIERS[1]));                                \
        w->c0 = BITS(xor)(INTRINSIC(srli_epi64)(p1, 32), BITS(xor)(w->c1, w->k0)), w->c1 = p1;                         \
        w->c2 = BITS(xor)(INTRINSIC(srli_epi64)(p0, 32), BITS(xor)(w->c3, w->k1)), w->c3 = p0;                         \
        w->k0 = INTRINSIC(add_epi64)(w->k0, INTRINSIC(set1_epi64)(KEY_STEPS[0]));                                      \
        w->k1 = INTRINSIC(add_epi64)(w->k1, INTRINSIC(set1_epi64)(KEY_STEPS[1]));                                      \
    }                                                                                                                  \
                                                                                                                       \
    TARGET INLINE VECTOR of_lanes##SUFFIX(const uint32_t *words, int odd)                                              \
    {                                                                                                                  \
        VECTOR both = BITS(loadu)((const VECTOR *)words);                                                              \
        return odd ? INTRINSIC(srli_epi64)(both, 32) : both;                                                           \
    }                                                                                                                  \
                                                                                                                       \
    TARGET INLINE void to_lanes##SUFFIX(uint32_t *words, VECTOR even, VECTOR odd)                                      \
    {                                                                                                                  \
        BITS(storeu)((VECTOR *)words, BLENDED(even, INTRINSIC(slli_epi64)(odd, 32)));                                  \
    }                                                                                                                  \
                                                                                                                       \
    TARGET INLINE void rounds##SUFFIX(Lanes *lanes, int count)                                                         \
    {                                                                                                                  \
        for (int j = 0; j < count; j += AT_ONCE) {                                                                     \
            Words##SUFFIX w[2];                                                                                        \
            for (int odd = 0; odd < 2; odd++) {                                                                        \
                w[odd].c0 = of_lanes##SUFFIX(lanes->c[0] + j, odd), w[odd].c1 = of_lanes##SUFFIX(lanes->c[1] + j, odd);\
                w[odd].c2 = of_lanes##SUFFIX(lanes->c[2] + j, odd), w[odd].c3 = of_lanes##SUFFIX(lanes->c[3] + j, odd);\
                w[odd].k0 = of_lanes##SUFFIX(lanes->k[0] + j, odd), w[odd].k1 = of_lanes##SUFFIX(lanes->k[1] + j, odd);\
            }                                                                                                          \
            for (int round = 0; round < 10; round++)                                                                   \
                round_of##SUFFIX(&w[0]), round_of##SUFFIX(&w[1]);                                                      \
            to_lanes##SUFFIX(lanes->c[0] + j, w[0].c0, w[1].c0), to_lanes##SUFFIX(lanes->c[1] + j, w[0].c1, w[1].c1);  \
            to_lanes##SUFFIX(lanes->c[2] + j, w[0].c2, w[1].c2), to_lanes##SUFFIX(lanes->c[3] + j, w[0].c3, w[1].c3);  \
        }                                                                                                              \
    }

#define OF_256(NAME) _mm256_##NAME
#define BITS_256(NAME) _mm256_##NAME##_si256
#define BLENDED_256(EVEN, ODD) _mm256_blend_epi32(EVEN, ODD, 0xAA)
#define OF_512(NAME) _mm512_##NAME
#define BITS_512(NAME) _mm512_##NAME##_si512
#define BLENDED_512(EVEN, ODD) _mm512_mask_blend_epi32(0xAAAA, EVEN, ODD)
#define _mm256_set1_epi64 _mm256_set1_epi64x
WIDE_ROUNDS(AVX2, _avx2, __m256i, OF_256, BITS_256, BLENDED_256, 8)
WIDE_ROUNDS(AVX512, _avx512, __m512i, OF_512, BITS_512, BLENDED_512, 16)
#endif

/* A float in (0, 1]. */
INLINE float unit(uint32_t word) { return ((float)word + 0.5f) * 0x1p-32f; }

INLINE void store_words(const Lanes *lanes, int count, int64_t *words)
{
    for (int j = 0; j < count; j++)
        for (int i = 0; i < 4; i++)
            words[4 * j + i] = lanes->c[i][j];
}

/* Two numbers of 63 bits a cell. */
INLINE void store_bits(const Lanes *lanes, int count, int64_t *bits)
{
    for (int j = 0; j < count; j++) {
        bits[2 * j] = ((int64_t)lanes->c[0][j] << 31) ^ lanes->c[1][j];
        bits[2 * j + 1] = ((int64_t)lanes->c[2][j] << 31) ^ lanes->c[3][j];
    }
}

INLINE void store_units(const Lanes *lanes, int count, float *units)
{
    for (int j = 0; j < count; j++) {
        units[4 * j] = unit(lanes->c[0][j]), units[4 * j + 1] = unit(lanes->c[1][j]);
        units[4 * j + 2] = unit(lanes->c[2][j]), units[4 * j + 3] = unit(lanes->c[3][j]);
    }
}

INLINE void store_pairs(const uint32_t *first, const uint32_t *second, int count, float factor, float *pairs)
{
    for (int j = 0; j < count; j++)
        pairs[2 * j] = unit(first[j]) * factor, pairs[2 * j + 1] = unit(second[j]) * factor;
}

INLINE void store_polar(const Lanes *lanes, int count, float *radii, float *angles)
{
    store_pairs(lanes->c[0], lanes->c[2], count, 1.0f, radii);
    store_pairs(lanes->c[1], lanes->c[3], count, 6.28318530717958647692f, angles);
}

INLINE void store_normals(Py_ssize_t count, const float *lengths, const float *cosines, const float *sines, float *normals)
{
    for (Py_ssize_t j = 0; j < count; j++)
        normals[2 * j] = lengths[j] * cosines[j], normals[2 * j + 1] = lengths[j] * sines[j];
}

typedef union {
    uint64_t bits;
    double value;
} Double;

/* The double nearest to a number of 64 bits with sign: by halves, since vectors have no conversion of it. */
INLINE double as_double(int64_t number)
{
    Double low = {((uint64_t)number & 0xFFFFFFFFu) | 0x4330000000000000u};
    Double high = {((uint64_t)number >> 32) ^ 0x4530000080000000u};
    return (high.value - 0x1.00000801p84) + low.value;
}

/* rint(), which compilers turn into a call where they could use vectors. */
INLINE double whole(double number)
{
    double size = fabs(number), rounded = (size + 0x1p52) - 0x1p52;
    return copysign(size < 0x1p52 ? rounded : size, number);
}

/* The logarithm of a normal number, as in fdlibm: 2^k m with m in [sqrt(1/2), sqrt(2)), and a series in f / (2 + f). */
INLINE double logarithm(double number)
{
    Double given = {.value = number}, reduced;
    uint64_t exponent = (given.bits + 0x0009576200000000u) >> 52;
    reduced.bits = given.bits - (exponent << 52) + 0x3FF0000000000000u;
    double k = as_double((int64_t)exponent) - 1023.0, f = reduced.value - 1.0, half = 0.5 * f * f, s = f / (2.0 + f);
    double z = s * s, w = z * z;
    double odd = z * (LOG[0] + w * (LOG[2] + w * (LOG[4] + w * LOG[6])));
    double even = w * (LOG[1] + w * (LOG[3] + w * LOG[5]));
    return k * LN2_HIGH - ((half - (s * (half + (odd + even)) + k * LN2_LOW)) - f);
}

/* Cosine and sine of turns / 2^62 half turns, less one, as in fdlibm: of what is left of the nearest quarter. */
INLINE void circle(int64_t turns, double *cosine, double *sine)
{
    uint64_t quarter = ((uint64_t)turns + 0x1000000000000000u) >> 61;
    double x = as_double((int64_t)((uint64_t)turns - (quarter << 61))) * 0x1p-61 * HALF_PI, z = x * x, w = z * z;
    double of_sine = (SIN[1] + z * (SIN[2] + z * SIN[3])) + z * w * (SIN[4] + z * SIN[5]);
    double of_cosine = z * (COS[0] + z * (COS[1] + z * COS[2])) + w * w * (COS[3] + z * (COS[4] + z * COS[5]));
    double half = 0.5 * z, high = 1.0 - half;
    Double s = {.value = x + z * x * (SIN[0] + z * of_sine)};
    Double c = {.value = high + (((1.0 - high) - half) + z * of_cosine)};
    uint64_t swapped = (s.bits ^ c.bits) & (0 - (quarter & 1));
    s.bits ^= swapped ^ ((~quarter & 2) << 62), c.bits ^= swapped ^ ((~(quarter + 1) & 2) << 62);
    *sine = s.value, *cosine = c.value;
}

/* Logarithms of uniform numbers in (0, 1] from two numbers of 63 bits each: all digits of them are right. */
INLINE double log_uniform(int64_t coarse, int64_t fine)
{
    return logarithm((as_double(coarse) + (as_double(fine) + 0.5) * 0x1p-63) * 0x1p-63);
}

/* In the vectors that every x86-64 has: compilers turn sqrt() into a call for the sake of errno. */
INLINE void roots(double *numbers, int count)
{
    int j = 0;
#if defined(__SSE2__)
    for (; j + 2 <= count; j += 2)
        _mm_storeu_pd(numbers + j, _mm_sqrt_pd(_mm_loadu_pd(numbers + j)));
#endif
    for (; j < count; j++)
        numbers[j] = sqrt(numbers[j]);
}

/* Two standard normals from three numbers, by Box-Muller. */
INLINE void store_gaussian(int64_t *const numbers[3], int count, double *first, double *second)
{
    double lengths[PIECE];
    for (int j = 0; j < count; j++)
        lengths[j] = log_uniform(numbers[0][j], numbers[1][j]) * -2.0;
    roots(lengths, count);
    for (int j = 0; j < count; j++) {
        double cosine, sine;
        circle(numbers[2][j], &cosine, &sine);
        first[j] = lengths[j] * cosine, second[j] = lengths[j] * sine;
    }
}

/* Laplace noise of scale 1 from three numbers. */
INLINE void store_laplace(int64_t *const numbers[3], int count, double *first, double *second)
{
    (void)second;
    for (int j = 0; j < count; j++)
        first[j] = log_uniform(numbers[0][j], numbers[1][j]) * (as_double(numbers[2][j] & 1) * 2.0 - 1.0);
}

/* How noise is rounded: the level has so many steps, and a whole number of a window is added, a power of two. */
typedef struct {
    double steps;
    int64_t width;
} Window;

/* How a sum is made: a draw of 1 is so many steps, each of such a size. */
typedef struct {
    double steps, step;
} Scale;

INLINE void store_spread(const double *draws, const int64_t *bits, int count, Window window, double *target)
{
    for (int j = 0; j < count; j++) {
        double further = as_double((bits[j] & (window.width - 1)) - window.width / 2);
        target[j] = (whole(draws[j] * window.steps) + further) / window.steps;
    }
}

INLINE void store_placed(const float *values, const double *draws, Py_ssize_t count, Scale scale, float *placed)
{
    for (Py_ssize_t j = 0; j < count; j++)
        placed[j] = (float)((whole((double)values[j] / scale.step) + whole(draws[j] * scale.steps)) * scale.step);
}

/* The same of a matrix whose draws lie in memory by rows, and values by columns: a tile of draws is turned at a time. */
INLINE void store_turned(const float *values, const double *draws, Py_ssize_t rows, Py_ssize_t columns, Scale scale,
                         float *placed)
{
    double tile[TILE][TILE];
    for (Py_ssize_t row = 0; row < rows; row += TILE)
        for (Py_ssize_t column = 0; column < columns; column += TILE) {
            Py_ssize_t high = rows - row < TILE ? rows - row : TILE, wide = columns - column;
            if (wide > TILE)
                wide = TILE;
            for (Py_ssize_t i = 0; i < high; i++)
                for (Py_ssize_t j = 0; j < wide; j++)
                    tile[j][i] = draws[(row + i) * columns + column + j];
            for (Py_ssize_t j = 0; j < wide; j++) {
                Py_ssize_t place = (column + j) * rows + row;
                store_placed(values + place, tile[j], high, scale, placed + place);
            }
        }
}

/* What the rounds leave in the lanes, in the target's format, behind the `done` cells that it holds already. */
typedef void Store(Lanes *lanes, int count, Py_ssize_t done, void *target, void *second);
typedef void Combine(Py_ssize_t, const float *, const float *, const float *, float *);
typedef void Standard(int64_t *const numbers[3], int count, double *first, double *second);
typedef void Spread(const double *, const int64_t *, int, Window, double *);
typedef void Placed(const float *, const double *, Py_ssize_t, Py_ssize_t, Scale, float *);

#define VERSION(TARGET, ROUNDS, SUFFIX)                                                                             \
    TARGET static void words##SUFFIX(Lanes *lanes, int count, Py_ssize_t done, void *target, void *second)          \
    {                                                                                                               \
        (void)second, ROUNDS(lanes, count), store_words(lanes, count, (int64_t *)target + 4 * done);                \
    }                                                                                                               \
    TARGET static void bits##SUFFIX(Lanes *lanes, int count, Py_ssize_t done, void *target, void *second)           \
    {                                                                                                               \
        (void)second, ROUNDS(lanes, count), store_bits(lanes, count, (int64_t *)target + 2 * done);                 \
    }                                                                                                               \
    TARGET static void gaussian##SUFFIX(int64_t *const numbers[3], int count, double *first, double *second)         \
    {                                                                                                               \
        store_gaussian(numbers, count, first, second);                                                               \
    }                                                                                                               \
    TARGET static void laplace##SUFFIX(int64_t *const numbers[3], int count, double *first, double *second)         \
    {                                                                                                               \
        store_laplace(numbers, count, first, second);                                                               \
    }                                                                                                               \
    TARGET static void spread##SUFFIX(const double *draws, const int64_t *bits, int count, Window window,           \
                                      double *target)                                                               \
    {                                                                                                               \
        store_spread(draws, bits, count, window, target);                                                           \
    }                                                                                                               \
    TARGET static void placed##SUFFIX(const float *values, const double *draws, Py_ssize_t rows,                    \
                                      Py_ssize_t columns, Scale scale, float *placed)                               \
    {                                                                                                               \
        if (rows == 1)                                                                                              \
            store_placed(values, draws, columns, scale, placed);                                                    \
        else                                                                                                        \
            store_turned(values, draws, rows, columns, scale, placed);                                              \
    }                                                                                                               \
    TARGET static void units##SUFFIX(Lanes *lanes, int count, Py_ssize_t done, void *target, void *second)          \
    {                                                                                                               \
        (void)second, ROUNDS(lanes, count), store_units(lanes, count, (float *)target + 4 * done);                  \
    }                                                                                                               \
    TARGET static void polar##SUFFIX(Lanes *lanes, int count, Py_ssize_t done, void *target, void *second)          \
    {                                                                                                               \
        ROUNDS(lanes, count);                                                                                       \
        store_polar(lanes, count, (float *)target + 2 * done, (float *)second + 2 * done);                          \
    }                                                                                                               \
    TARGET static void normals##SUFFIX(Py_ssize_t count, const float *a, const float *b, const float *c, float *to) \
    {                                                                                                               \
        store_normals(count, a, b, c, to);                                                                          \
    }

VERSION(, rounds, )
#ifdef AVX2
VERSION(AVX2, rounds_avx2, _avx2)
VERSION(AVX512, rounds_avx512, _avx512)
#define BEST(NAME) (HAS_AVX512 ? NAME##_avx512 : HAS_AVX2 ? NAME##_avx2 : NAME)
#else
#define BEST(NAME) NAME
#endif

typedef struct {
    const int64_t *keys, *numbers[NUMBERS];
    int64_t single[NUMBERS];
    Py_ssize_t length[NUMBERS], replicas, sequences, blocks, first;
} Draw;

/* Counters and keys of the cells from `cell` on; returns how many, at most `wanted`. */
static int load(const Draw *draw, Py_ssize_t cell, Py_ssize_t wanted, Lanes *lanes)
{
    int count = (int)(wanted < LANES ? wanted : LANES), filled = 0;
    Py_ssize_t row = cell / draw->blocks, block = cell % draw->blocks;
    while (filled < count) {
        const int64_t *key = draw->keys + 2 * (row / draw->sequences);
        Py_ssize_t sequence = row % draw->sequences, left = draw->blocks - block;
        int end = left < count - filled ? filled + (int)left : count;
        uint32_t number[NUMBERS], counter = (uint32_t)(draw->first + block);
        for (int i = 0; i < NUMBERS; i++)
            number[i] = (uint32_t)draw->numbers[i][draw->length[i] == 1 ? 0 : sequence];
        for (int j = filled; j < end; j++)
            lanes->c[0][j] = counter + (uint32_t)(j - filled);
        for (int i = 0; i < NUMBERS; i++)
            for (int j = filled; j < end; j++)
                lanes->c[1 + i][j] = number[i];
        for (int i = 0; i < 2; i++)
            for (int j = filled; j < end; j++)
                lanes->k[i][j] = (uint32_t)key[i];
        filled = end, block = 0, row++;
    }
    return count;
}

static void fill(const Draw *draw, Py_ssize_t begin, Py_ssize_t count, Store *store, void *target, void *second)
{
    Lanes lanes = {{{0}}, {{0}}};
    for (Py_ssize_t done = 0; done < count;) {
        int loaded = load(draw, begin + done, count - done, &lanes);
        store(&lanes, loaded, done, target, second);
        done += loaded;
    }
}

/* The buffers that a call holds, released together. */
typedef struct {
    Py_buffer views[8];
    int held;
} Buffers;

/* The data of a contiguous buffer of 64-bit integers ('q'), floats ('f') or doubles ('d'); NULL with an error set if it
 * is another. */
static void *take(Buffers *buffers, PyObject *object, char kind, int writable, Py_ssize_t *length)
{
    Py_buffer *view = &buffers->views[buffers->held];
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags) < 0)
        return NULL;
    buffers->held++;
    const char *format = view->format ? view->format : "B";
    int fits = format[0] == kind || (kind == 'q' && format[0] == 'l' && sizeof(long) == 8);
    if (!fits || format[1] != '\0') {
        PyErr_Format(PyExc_TypeError, "Expected a buffer of format '%c', got '%s'.", kind, format);
        return NULL;
    }
    *length = view->len / view->itemsize;
    return view->buf;
}

static PyObject *leave(Buffers *buffers, int done)
{
    while (buffers->held > 0)
        PyBuffer_Release(&buffers->views[--buffers->held]);
    return done ? Py_NewRef(Py_None) : NULL;
}

static int take_number(Buffers *buffers, PyObject *object, Draw *draw, int i)
{
    draw->length[i] = 1;
    if (PyLong_Check(object)) {
        draw->single[i] = PyLong_AsLongLong(object), draw->numbers[i] = &draw->single[i];
        return !PyErr_Occurred();
    }
    draw->numbers[i] = take(buffers, object, 'q', 0, &draw->length[i]);
    if (draw->numbers[i] == NULL)
        return 0;
    if (draw->length[i] != 1 && draw->sequences != 1 && draw->length[i] != draw->sequences) {
        PyErr_Format(PyExc_ValueError, "Expected %zd numbers, got %zd.", draw->sequences, draw->length[i]);
        return 0;
    }
    if (draw->length[i] != 1)
        draw->sequences = draw->length[i];
    return 1;
}

/* Whether the draw has these cells, without a product or sum that could overflow. */
static int inside(const Draw *draw, Py_ssize_t begin, Py_ssize_t count)
{
    Py_ssize_t rows = draw->replicas * draw->sequences;
    if (begin < 0 || draw->blocks < 0 || draw->first < 0 || begin > PY_SSIZE_T_MAX - count)
        return 0;
    return count == 0 || (rows > 0 && draw->blocks > 0 && (begin + count - 1) / draw->blocks < rows);
}

/* Reads (keys, number, number, number, first, blocks, begin, target[, second]) and fills the targets. */
static PyObject *draw_into(PyObject *arguments, Store *store, char kind, int per_cell, int targets)
{
    PyObject *keys, *numbers[NUMBERS], *outputs[2] = {NULL, NULL};
    Py_ssize_t begin, words, lengths[2] = {0, 0};
    Buffers buffers = {.held = 0};
    Draw draw = {.sequences = 1};
    void *data[2] = {NULL, NULL};
    if (!PyArg_ParseTuple(arguments, targets == 2 ? "OOOOnnnOO" : "OOOOnnnO", &keys, &numbers[0], &numbers[1],
                          &numbers[2], &draw.first, &draw.blocks, &begin, &outputs[0], &outputs[1]))
        return NULL;
    draw.keys = take(&buffers, keys, 'q', 0, &words);
    if (draw.keys == NULL)
        return leave(&buffers, 0);
    draw.replicas = words / 2;
    for (int i = 0; i < NUMBERS; i++)
        if (!take_number(&buffers, numbers[i], &draw, i))
            return leave(&buffers, 0);
    for (int i = 0; i < targets; i++) {
        data[i] = take(&buffers, outputs[i], kind, 1, &lengths[i]);
        if (data[i] == NULL)
            return leave(&buffers, 0);
    }
    Py_ssize_t count = lengths[0] / per_cell;
    int whole = words % 2 == 0 && lengths[0] % per_cell == 0 && (targets == 1 || lengths[0] == lengths[1]);
    if (!whole || !inside(&draw, begin, count)) {
        PyErr_Format(PyExc_ValueError, "Expected %zd cells from %zd on to lie in (%zd, %zd, %zd).", count, begin,
                     draw.replicas, draw.sequences, draw.blocks);
        return leave(&buffers, 0);
    }
    Py_BEGIN_ALLOW_THREADS
    fill(&draw, begin, count, store, data[0], data[1]);
    Py_END_ALLOW_THREADS
    return leave(&buffers, 1);
}

static PyObject *call_words(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    return draw_into(arguments, BEST(words), 'q', 4, 1);
}

static PyObject *call_units(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    return draw_into(arguments, BEST(units), 'f', 4, 1);
}

static PyObject *call_bits(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    return draw_into(arguments, BEST(bits), 'q', 2, 1);
}

static PyObject *call_polar(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    return draw_into(arguments, BEST(polar), 'f', 2, 2);
}

static PyObject *call_normals(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *objects[4];
    Py_ssize_t lengths[4];
    float *data[4];
    Buffers buffers = {.held = 0};
    Combine *combine = BEST(normals);
    if (!PyArg_ParseTuple(arguments, "OOOO", &objects[0], &objects[1], &objects[2], &objects[3]))
        return NULL;
    for (int i = 0; i < 4; i++) {
        data[i] = take(&buffers, objects[i], 'f', i == 3, &lengths[i]);
        if (data[i] == NULL)
            return leave(&buffers, 0);
    }
    if (lengths[1] != lengths[0] || lengths[2] != lengths[0] || lengths[3] != 2 * lengths[0]) {
        PyErr_SetString(PyExc_ValueError, "Expected three buffers of one length and a target of twice that length.");
        return leave(&buffers, 0);
    }
    Py_BEGIN_ALLOW_THREADS
    combine(lengths[0], data[0], data[1], data[2], data[3]);
    Py_END_ALLOW_THREADS
    return leave(&buffers, 1);
}

/* Where random bits come from, so many of 63 each a row: a draw that makes them, or memory that holds them. */
typedef struct {
    const Draw *draw;
    const int64_t *held;
    Py_ssize_t width;
    Lanes lanes;
} Source;

/* Numbers of a row from `begin` on; `room` is for two more than are asked for. */
static int64_t *fetch(Source *source, Py_ssize_t row, Py_ssize_t begin, int count, int64_t *room)
{
    if (source->draw == NULL)
        return (int64_t *)source->held + row * source->width + begin;
    Py_ssize_t first = begin / 2, blocks = (begin + count + 1) / 2 - first;
    int loaded = load(source->draw, row * source->draw->blocks + first, blocks, &source->lanes);
    BEST(bits)(&source->lanes, loaded, 0, room, NULL);
    return room + begin % 2;
}

typedef struct {
    Standard *law;
    int halves; /* Draws that three numbers make: their first ones fill the first part of a row, the second ones the rest. */
    Spread *spread;
    Window window;
} Noise;

/* A row has three parts of numbers for the law, as long as the first part of the draws, and one number a draw. */
static void fill_row(const Noise *noise, Source *source, Py_ssize_t row, Py_ssize_t count, double *target)
{
    int64_t rooms[3][PIECE + 2], *numbers[3];
    double draws[2][PIECE];
    Py_ssize_t part = (count + noise->halves - 1) / noise->halves;
    for (Py_ssize_t done = 0; done < part; done += PIECE) {
        int piece = part - done < PIECE ? (int)(part - done) : PIECE;
        for (int i = 0; i < 3; i++)
            numbers[i] = fetch(source, row, i * part + done, piece, rooms[i]);
        noise->law(numbers, piece, draws[0], draws[1]);
        for (int half = 0; half < noise->halves; half++) {
            Py_ssize_t place = half * part + done;
            int some = count - place < piece ? (int)(count - place) : piece;
            if (some > 0)
                noise->spread(draws[half], fetch(source, row, 3 * part + place, some, rooms[0]), some, noise->window,
                              target + place);
        }
    }
}

/* Reads (law, steps, width, rows, target, bits) or (law, steps, width, rows, target, keys, number, number, number). */
static PyObject *call_noise(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *target, *given, *numbers[NUMBERS] = {NULL, NULL, NULL};
    Py_ssize_t rows, wanted, length;
    int law;
    Buffers buffers = {.held = 0};
    Draw draw = {.sequences = 1};
    Source source = {.draw = NULL};
    Noise noise = {.spread = BEST(spread)};
    if (!PyArg_ParseTuple(arguments, "idLnOO|OOO", &law, &noise.window.steps, &noise.window.width, &rows, &target, &given,
                          &numbers[0], &numbers[1], &numbers[2]))
        return NULL;
    if ((numbers[0] == NULL) != (numbers[2] == NULL)) {
        PyErr_SetString(PyExc_TypeError, "Expected three numbers beside keys, and none beside bits.");
        return NULL;
    }
    double *data = take(&buffers, target, 'd', 1, &wanted);
    source.held = data == NULL ? NULL : take(&buffers, given, 'q', 0, &length);
    if (source.held == NULL)
        return leave(&buffers, 0);
    noise.law = law ? BEST(laplace) : BEST(gaussian), noise.halves = law ? 1 : 2;
    Py_ssize_t count = rows > 0 && wanted % rows == 0 ? wanted / rows : -1;
    Py_ssize_t part = (count + noise.halves - 1) / noise.halves, needed = 3 * part + noise.halves * part;
    if (numbers[0] != NULL) {
        for (int i = 0; i < NUMBERS; i++)
            if (!take_number(&buffers, numbers[i], &draw, i))
                return leave(&buffers, 0);
        draw.keys = source.held, draw.replicas = length / 2, draw.blocks = (needed + 1) / 2;
        source.draw = &draw;
    } else
        source.width = rows > 0 ? length / rows : 0;
    int fits = source.draw ? draw.sequences == 1 && length == 2 * rows : length == source.width * rows;
    if (count < 0 || count > PY_SSIZE_T_MAX / 16 || !fits || (source.draw == NULL && source.width < needed) ||
        noise.window.width < 2 || (noise.window.width & (noise.window.width - 1))) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "Expected rows of draws, as many of keys or bits, and a power of two.");
        return leave(&buffers, 0);
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t row = 0; row < rows; row++)
        fill_row(&noise, &source, row, count, data + row * count);
    Py_END_ALLOW_THREADS
    return leave(&buffers, 1);
}

/* Reads (values, draws, rows, columns, steps, step, target), of any number of matrices. */
static PyObject *call_placed(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *objects[3];
    Py_ssize_t lengths[3], rows, columns;
    void *data[3];
    Scale scale;
    Buffers buffers = {.held = 0};
    Placed *function = BEST(placed);
    if (!PyArg_ParseTuple(arguments, "OOnnddO", &objects[0], &objects[1], &rows, &columns, &scale.steps, &scale.step,
                          &objects[2]))
        return NULL;
    for (int i = 0; i < 3; i++) {
        data[i] = take(&buffers, objects[i], i == 1 ? 'd' : 'f', i == 2, &lengths[i]);
        if (data[i] == NULL)
            return leave(&buffers, 0);
    }
    int whole = rows > 0 && columns > 0 && lengths[0] / rows >= columns && lengths[0] % (rows * columns) == 0;
    if (!whole || lengths[1] != lengths[0] || lengths[2] != lengths[0]) {
        PyErr_SetString(PyExc_ValueError, "Expected values, draws and a target of one length, in whole matrices.");
        return leave(&buffers, 0);
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t done = 0; done < lengths[0]; done += rows * columns)
        function((float *)data[0] + done, (double *)data[1] + done, rows, columns, scale, (float *)data[2] + done);
    Py_END_ALLOW_THREADS
    return leave(&buffers, 1);
}

static PyMethodDef methods[] = {
    {"words", call_words, METH_VARARGS, "Writes four 32-bit words a cell, as 64-bit integers."},
    {"bits", call_bits, METH_VARARGS, "Writes two numbers of 63 bits a cell."},
    {"noise", call_noise, METH_VARARGS, "Writes normal (0) or Laplace (1) draws, in whole steps spread over a window."},
    {"placed", call_placed, METH_VARARGS, "Writes values in whole steps plus draws in whole steps."},
    {"units", call_units, METH_VARARGS, "Writes four floats in (0, 1] a cell."},
    {"polar", call_polar, METH_VARARGS, "Writes two floats in (0, 1] a cell, and two in (0, 2 pi] to the second target."},
    {"normals", call_normals, METH_VARARGS, "Writes length times cosine and length times sine in turn."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_philox",
    .m_doc = "Philox4x32-10 on buffers.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__philox(void) { return PyModuleDef_Init(&definition); }
