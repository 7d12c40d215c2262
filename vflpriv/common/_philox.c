/* Philox4x32-10 (Salmon et al. 2011) in C: what vflpriv/common/philox.py computes with tensors, several times faster.
 *
 * It is optional, and both give the same bits: conversions, sums and products are rounded correctly in either, none here
 * can be contracted, and logarithms, square roots, sines and cosines are left to torch, whose last bits are its own.
 *
 * A draw is an array (R replicas, K sequences, blocks). Each of its cells is one counter and gives four words. A call
 * fills the cells from `begin` on, in the order of memory, as many as its target holds.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#if defined(_MSC_VER)
#define INLINE static __forceinline
#else
#define INLINE static inline __attribute__((always_inline))
#endif

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAS_AVX2 __builtin_cpu_supports("avx2")
#define AVX2 __attribute__((target("avx2")))
#include <immintrin.h>
#endif

enum { LANES = 128, NUMBERS = 3 };

static const uint32_t MULTIPLIERS[2] = {0xD2511F53u, 0xCD9E8D57u}, KEY_STEPS[2] = {0x9E3779B9u, 0xBB67AE85u};

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
/* Four blocks a vector, each word in the low half of 64 bits; a product ignores what is in the high halves. */
typedef struct {
    __m256i c0, c1, c2, c3, k0, k1;
} Quad;

AVX2 INLINE void round_of(Quad *q)
{
    __m256i p0 = _mm256_mul_epu32(q->c0, _mm256_set1_epi64x(MULTIPLIERS[0]));
    __m256i p1 = _mm256_mul_epu32(q->c2, _mm256_set1_epi64x(MULTIPLIERS[1]));
    q->c0 = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(q->c1, q->k0)), q->c1 = p1;
    q->c2 = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(q->c3, q->k1)), q->c3 = p0;
    q->k0 = _mm256_add_epi64(q->k0, _mm256_set1_epi64x(KEY_STEPS[0]));
    q->k1 = _mm256_add_epi64(q->k1, _mm256_set1_epi64x(KEY_STEPS[1]));
}

AVX2 INLINE __m256i of_lanes(const uint32_t *words, int odd)
{
    __m256i both = _mm256_loadu_si256((const __m256i *)words);
    return odd ? _mm256_srli_epi64(both, 32) : both;
}

AVX2 INLINE void to_lanes(uint32_t *words, __m256i even, __m256i odd)
{
    _mm256_storeu_si256((__m256i *)words, _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA));
}

/* Eight lanes at a time; what is computed in lanes from `count` on is not read. */
AVX2 INLINE void rounds_avx2(Lanes *lanes, int count)
{
    for (int j = 0; j < count; j += 8) {
        Quad quads[2];
        for (int odd = 0; odd < 2; odd++) {
            quads[odd].c0 = of_lanes(lanes->c[0] + j, odd), quads[odd].c1 = of_lanes(lanes->c[1] + j, odd);
            quads[odd].c2 = of_lanes(lanes->c[2] + j, odd), quads[odd].c3 = of_lanes(lanes->c[3] + j, odd);
            quads[odd].k0 = of_lanes(lanes->k[0] + j, odd), quads[odd].k1 = of_lanes(lanes->k[1] + j, odd);
        }
        for (int round = 0; round < 10; round++)
            round_of(&quads[0]), round_of(&quads[1]);
        to_lanes(lanes->c[0] + j, quads[0].c0, quads[1].c0), to_lanes(lanes->c[1] + j, quads[0].c1, quads[1].c1);
        to_lanes(lanes->c[2] + j, quads[0].c2, quads[1].c2), to_lanes(lanes->c[3] + j, quads[0].c3, quads[1].c3);
    }
}
#endif

/* A float in (0, 1]. */
INLINE float unit(uint32_t word) { return ((float)word + 0.5f) * 0x1p-32f; }

INLINE void store_words(const Lanes *lanes, int count, int64_t *words)
{
    for (int j = 0; j < count; j++)
        for (int i = 0; i < 4; i++)
            words[4 * j + i] = lanes->c[i][j];
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

/* What the rounds leave in the lanes, in the target's format, behind the `done` cells that it holds already. */
typedef void Store(Lanes *lanes, int count, Py_ssize_t done, void *target, void *second);
typedef void Combine(Py_ssize_t, const float *, const float *, const float *, float *);

#define VERSION(TARGET, ROUNDS, SUFFIX)                                                                             \
    TARGET static void words##SUFFIX(Lanes *lanes, int count, Py_ssize_t done, void *target, void *second)          \
    {                                                                                                               \
        (void)second, ROUNDS(lanes, count), store_words(lanes, count, (int64_t *)target + 4 * done);                \
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
#define BEST(NAME) (HAS_AVX2 ? NAME##_avx2 : NAME)
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

/* The data of a contiguous buffer of 64-bit integers ('q') or floats ('f'), NULL with an error set if it is another. */
static void *take(Buffers *buffers, PyObject *object, char kind, int writable, Py_ssize_t *length)
{
    Py_buffer *view = &buffers->views[buffers->held];
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags) < 0)
        return NULL;
    buffers->held++;
    const char *format = view->format ? view->format : "B";
    int fits = kind == 'f' ? format[0] == 'f' : format[0] == 'q' || (format[0] == 'l' && sizeof(long) == 8);
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

static PyMethodDef methods[] = {
    {"words", call_words, METH_VARARGS, "Writes four 32-bit words a cell, as 64-bit integers."},
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
