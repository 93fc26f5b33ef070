/* Decodes record batches of Kafka's message formats 0, 1 and 2 into the buffers of Arrow columns.
 *
 * This module has the same functions, results and error positions as decode_py.py, which documents
 * them. It allocates no memory per record: the caller passes writable buffers for the number of
 * records that scan() returned. Each read and each write is checked against the end of its buffer.
 * decode() and measure() call no Python API while they read records, and release the GIL unless the
 * input is small.
 *
 * An entry is one record batch of format 2, or one message of format 0 or 1. Layouts (big-endian):
 *   format 0, 1  offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | [timestamp i64] |
 *                key bytes | value bytes          (bytes: i32 length, -1 for null)
 *   format 2     base offset i64 | size i32 | leader epoch i32 | magic i8 | crc u32 |
 *                attributes i16 | last offset delta i32 | base timestamp i64 | max timestamp i64 |
 *                producer id i64 | producer epoch i16 | base sequence i32 | count i32 | records
 * Source: Kafka 3.9 DefaultRecordBatch, DefaultRecord, LegacyRecord, AbstractLegacyRecordBatch.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#include "../_columns.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_SSE42_CRC 1
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define HAVE_ARM_CRC 1
#endif

enum {
    LOG_OVERHEAD = 12,      /* size of the offset and size fields before each entry */
    MAGIC_AT = 16,          /* position of the magic byte in all formats */
    BATCH_HEADER = 61,      /* header size of format 2 */
    MESSAGE_HEADER_0 = 26,  /* header size of format 0, including the lengths of key and value */
    MESSAGE_HEADER_1 = 34,
    MIN_RECORD = 7,         /* size of the smallest record of format 2 */
};
enum { CODEC_MASK = 0x07, LOG_APPEND = 0x08, TRANSACTIONAL = 0x10, CONTROL = 0x20 };
enum { CHECK_CRC = 1, SPLIT_TRANSACTIONS = 2 };

/* Unsigned arithmetic, because offsets in corrupt input may overflow, and signed overflow is undefined. */
static int64_t add64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t sub64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

/* ---- checksums ------------------------------------------------------------------------------ */

static uint32_t crc_table[2][8][256]; /* 0: CRC-32, 1: CRC-32C */

static void make_crc_tables(void) {
    const uint32_t polynomial[2] = {0xEDB88320u, 0x82F63B78u};
    for (int kind = 0; kind < 2; kind++) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int bit = 0; bit < 8; bit++) c = (c >> 1) ^ (polynomial[kind] & (0u - (c & 1u)));
            crc_table[kind][0][i] = c;
        }
        for (uint32_t i = 0; i < 256; i++)
            for (int slice = 1; slice < 8; slice++) {
                uint32_t c = crc_table[kind][slice - 1][i];
                crc_table[kind][slice][i] = (c >> 8) ^ crc_table[kind][0][c & 0xFF];
            }
    }
}

static uint32_t crc_by_table(int kind, uint32_t crc, const uint8_t *p, size_t n) {
    uint32_t(*t)[256] = crc_table[kind];
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t low = crc ^ load_little32(p);
        crc = t[7][low & 0xFF] ^ t[6][(low >> 8) & 0xFF] ^ t[5][(low >> 16) & 0xFF] ^ t[4][low >> 24] ^
              t[3][p[4]] ^ t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
    }
    while (n--) crc = (crc >> 8) ^ t[0][(crc ^ *p++) & 0xFF];
    return crc;
}

#ifdef HAVE_SSE42_CRC
/* The CRC instruction has a latency of three cycles and a throughput of one per cycle, so three lanes
 * run in parallel. A lane's table advances the CRC of one lane over the bytes of the next lane. The long
 * lanes leave up to 6143 bytes of a batch, for which short lanes are faster.
 *
 * Received bytes are often not in the core's cache. Three streams of a few kilobytes are too short for the hardware to
 * prefetch in time, so cache lines are prefetched PREFETCH bytes ahead. The prefetched addresses may be past the end of
 * the data: a prefetch of an invalid address has no effect. */
enum { LONG_LANE = 2048, SHORT_LANE = 256, CACHE_LINE = 64, PREFETCH = 8192 };
static uint32_t long_lane[4][256], short_lane[4][256];

static void make_lane_table(uint32_t table[4][256], size_t lane) {
    static const uint8_t zeros[LONG_LANE];
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t i = 0; i < 256; i++) table[byte][i] = crc_by_table(1, i << (8 * byte), zeros, lane);
}

static uint32_t over_lane(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 0xFF] ^ table[1][(crc >> 8) & 0xFF] ^ table[2][(crc >> 16) & 0xFF] ^ table[3][crc >> 24];
}

/* Returns the CRC after three adjacent lanes. */
__attribute__((target("sse4.2"))) static uint32_t crc32c_lanes(uint32_t table[4][256], size_t lane, uint32_t crc,
                                                               const uint8_t *p) {
    uint64_t a = crc, b = 0, c = 0;
    for (size_t line = 0; line < lane; line += CACHE_LINE) {
        for (size_t n = 0; n < 3; n++)
            __builtin_prefetch((const void *)((uintptr_t)p + 3 * line + n * CACHE_LINE + PREFETCH));
        for (size_t i = line; i < line + CACHE_LINE; i += 8) {
            a = __builtin_ia32_crc32di(a, load64(p + i));
            b = __builtin_ia32_crc32di(b, load64(p + lane + i));
            c = __builtin_ia32_crc32di(c, load64(p + 2 * lane + i));
        }
    }
    return over_lane(table, over_lane(table, (uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const uint8_t *p, size_t n) {
    for (; n >= 3 * LONG_LANE; n -= 3 * LONG_LANE, p += 3 * LONG_LANE) crc = crc32c_lanes(long_lane, LONG_LANE, crc, p);
    for (; n >= 3 * SHORT_LANE; n -= 3 * SHORT_LANE, p += 3 * SHORT_LANE)
        crc = crc32c_lanes(short_lane, SHORT_LANE, crc, p);
    uint64_t wide = crc;
    for (; n >= 8; n -= 8, p += 8) wide = __builtin_ia32_crc32di(wide, load64(p));
    crc = (uint32_t)wide;
    while (n--) crc = __builtin_ia32_crc32qi(crc, *p++);
    return crc;
}
static int has_sse42;
#endif

static uint32_t crc32c_of(const uint8_t *p, size_t n) {
    uint32_t crc = 0xFFFFFFFFu;
#if defined(HAVE_SSE42_CRC)
    if (has_sse42) return ~crc32c_sse42(crc, p, n);
#elif defined(HAVE_ARM_CRC)
    for (; n >= 8; n -= 8, p += 8) crc = __crc32cd(crc, load64(p));
    while (n--) crc = __crc32cb(crc, *p++);
    return ~crc;
#endif
    return ~crc_by_table(1, crc, p, n);
}

static uint32_t crc32_of(const uint8_t *p, size_t n) { return ~crc_by_table(0, 0xFFFFFFFFu, p, n); }

/* ---- the GIL ---------------------------------------------------------------------------------- */

/* Reading fewer bytes takes less time than passing the GIL to another thread and back. */
enum { MIN_BYTES_WITHOUT_GIL = 16384 };

/* Releases the GIL if at least MIN_BYTES_WITHOUT_GIL bytes are to be read. Returns the argument for acquire_gil. */
static PyThreadState *release_gil(size_t bytes) {
    return bytes < MIN_BYTES_WITHOUT_GIL ? NULL : PyEval_SaveThread();
}

static void acquire_gil(PyThreadState *released) {
    if (released != NULL) PyEval_RestoreThread(released);
}

/* ---- entries ---------------------------------------------------------------------------------- */

typedef struct {
    const char *reason; /* not NULL if the entry is corrupt */
    int complete;
    size_t size; /* includes the offset and size fields */
    size_t payload;
    int magic, attributes;
    int64_t base_offset, next_offset, first_timestamp, max_timestamp, producer_id;
    int64_t count;
} Entry;

static Entry read_entry(const uint8_t *p, size_t left, int check_crc) {
    Entry e = {0};
    if (left < MAGIC_AT + 1) return e;
    int32_t size = (int32_t)load_big32(p + 8);
    e.magic = (int8_t)p[MAGIC_AT];
    if (e.magic < 0 || e.magic > 2) {
        e.reason = "unknown message format";
        return e;
    }
    size_t header = e.magic == 2 ? BATCH_HEADER : e.magic == 1 ? MESSAGE_HEADER_1 : MESSAGE_HEADER_0;
    if (size < 0 || (size_t)size + LOG_OVERHEAD < header) {
        e.reason = "size is smaller than the header";
        return e;
    }
    e.size = (size_t)size + LOG_OVERHEAD;
    if (e.size > left) return e;
    e.complete = 1;
    e.base_offset = (int64_t)load_big64(p);
    e.producer_id = -1;
    if (e.magic == 2) {
        if (check_crc && crc32c_of(p + 21, e.size - 21) != load_big32(p + 17)) {
            e.reason = "CRC does not match";
            return e;
        }
        e.attributes = load_big16(p + 21);
        int32_t last_delta = (int32_t)load_big32(p + 23);
        e.first_timestamp = (int64_t)load_big64(p + 27);
        e.max_timestamp = (int64_t)load_big64(p + 35);
        e.producer_id = (int64_t)load_big64(p + 43);
        e.count = (int32_t)load_big32(p + 57);
        e.payload = BATCH_HEADER;
        e.next_offset = add64(e.base_offset, (int64_t)last_delta + 1);
        if (last_delta < 0) e.reason = "negative last offset delta";
        else if (e.count < 0) e.reason = "negative record count";
        else if (!(e.attributes & CODEC_MASK) && (uint64_t)e.count > (e.size - BATCH_HEADER) / MIN_RECORD)
            e.reason = "record count exceeds the batch size";
        return e;
    }
    if (check_crc && crc32_of(p + 16, e.size - 16) != load_big32(p + 12)) {
        e.reason = "CRC does not match";
        return e;
    }
    e.attributes = p[17];
    e.next_offset = add64(e.base_offset, 1);
    e.count = 1;
    size_t at = 18;
    e.first_timestamp = e.max_timestamp = -1;
    if (e.magic == 1) {
        e.first_timestamp = e.max_timestamp = (int64_t)load_big64(p + at);
        at += 8;
    }
    int32_t key = (int32_t)load_big32(p + at);
    at += 4;
    if (key < -1 || (size_t)(key < 0 ? 0 : key) > e.size - at - 4) {
        e.reason = "key length is out of range";
        return e;
    }
    at += (size_t)(key < 0 ? 0 : key);
    int32_t value = (int32_t)load_big32(p + at);
    at += 4;
    if (value < -1 || (size_t)(value < 0 ? 0 : value) != e.size - at)
        e.reason = "value length does not match the message size";
    e.payload = at;
    return e;
}

/* Returns whether the entry can be decoded in place, in one run with adjacent entries. */
static int is_plain(const Entry *e, int flags) {
    if (e->attributes & CODEC_MASK) return 0;
    if (e->magic < 2) return 1;
    if (e->attributes & CONTROL) return 0;
    return !((flags & SPLIT_TRANSACTIONS) && (e->attributes & TRANSACTIONAL));
}

static PyObject *corrupt(const char *reason, Py_ssize_t position) {
    PyObject *args = Py_BuildValue("(sn)", reason, position);
    if (args != NULL) {
        PyErr_SetObject(PyExc_ValueError, args);
        Py_DECREF(args);
    }
    return NULL;
}

/* Returns whether [start, end) is inside a buffer of this length. */
static int within(Py_ssize_t start, Py_ssize_t end, Py_ssize_t length) {
    return 0 <= start && start <= end && end <= length;
}

PyDoc_STRVAR(scan_doc,
"scan(data, start, from_offset, until, max_rows, max_bytes, flags, /)\n--\n\n"
"Find the next segment of a partition's records. See decode_py.scan.");

static PyObject *scan(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer data;
    Py_ssize_t start;
    long long from_offset, until, max_rows, max_bytes;
    int flags;
    if (!PyArg_ParseTuple(args, "y*nLLLLi", &data, &start, &from_offset, &until, &max_rows, &max_bytes, &flags))
        return NULL;
    if (!within(start, data.len, data.len)) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_IndexError, "start is outside the data");
        return NULL;
    }
    const uint8_t *base = data.buf;
    size_t at = (size_t)start, end = (size_t)data.len, begin = at;
    Entry first = {0}, e = {0};
    int64_t rows = 0, next_offset = 0;
    int found = 0;
    PyThreadState *released = release_gil(end - at);
    while (at < end) {
        e = read_entry(base + at, end - at, flags & CHECK_CRC);
        if (e.reason != NULL || !e.complete) break;
        if (!found) {
            /* Skip entries that end below from_offset, except control batches. */
            if (e.next_offset <= from_offset && !(e.magic == 2 && (e.attributes & CONTROL))) {
                at += e.size;
                begin = at;
                continue;
            }
            first = e;
            found = 1;
            rows = e.count;
            next_offset = e.next_offset;
            at += e.size;
            if (!is_plain(&e, flags)) break;
        } else {
            if (!is_plain(&e, flags) || (e.magic == 2) != (first.magic == 2)) break;
            if (e.base_offset >= until) break;
            if (rows + e.count > max_rows || (int64_t)(at + e.size - begin) > max_bytes) break;
            rows += e.count;
            next_offset = e.next_offset;
            at += e.size;
        }
    }
    acquire_gil(released);
    PyBuffer_Release(&data);
    if (!found) {
        if (e.reason != NULL) return corrupt(e.reason, (Py_ssize_t)at);
        return Py_NewRef(Py_None);
    }
    return Py_BuildValue("(nnLiiLnLLLL)", (Py_ssize_t)begin, (Py_ssize_t)at, (long long)next_offset, first.magic,
                         first.attributes, (long long)rows, (Py_ssize_t)(begin + first.payload),
                         (long long)first.base_offset, (long long)first.first_timestamp,
                         (long long)first.max_timestamp, (long long)first.producer_id);
}

PyDoc_STRVAR(next_offset_doc,
"next_offset(data, first_offset, from_offset, end_offset, /)\n--\n\n"
"Find the end of the complete entries whose offsets are possible. See decode_py.next_offset.");

static PyObject *next_offset(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer data;
    long long first_offset, from_offset, end_offset;
    if (!PyArg_ParseTuple(args, "y*LLL", &data, &first_offset, &from_offset, &end_offset)) return NULL;
    const uint8_t *base = data.buf;
    const char *reason = NULL;
    size_t at = 0, end = (size_t)data.len, last_at = 0;
    int64_t lowest = first_offset, position = from_offset; /* limits for the current entry */
    int64_t lowest_of_last = lowest, position_of_last = position, span_of_last = 0;
    while (end - at >= 8) {
        int64_t offset = (int64_t)load_big64(base + at);
        Entry e = read_entry(base + at, end - at, 0);
        if (at && offset < position) {
            int is_entry = e.complete && e.reason == NULL;
            int may_be_right = last_at ? sub64(offset, span_of_last) >= lowest_of_last
                                       : offset >= first_offset && (!is_entry || e.next_offset > from_offset);
            if (may_be_right) {
                reason = "offset exceeds the next batch's offset";
                at = last_at;
                position = position_of_last;
                break;
            }
        }
        if ((reason = e.reason) != NULL || !e.complete) break;
        if (offset < lowest || e.next_offset <= position) reason = "offset goes backward";
        else if (e.next_offset > end_offset) reason = "offset exceeds the end of the log";
        if (reason != NULL) break;
        lowest_of_last = lowest;
        position_of_last = position;
        span_of_last = sub64(e.next_offset, offset);
        last_at = at;
        lowest = position = e.next_offset;
        at += e.size;
    }
    PyBuffer_Release(&data);
    return Py_BuildValue("(Lnz)", at ? (long long)position : -1LL, (Py_ssize_t)at, reason);
}

/* ---- columns ---------------------------------------------------------------------------------- */

typedef struct { /* a column of binary values */
    int32_t *offsets;
    uint8_t *validity, *data;
    size_t room; /* size of data in bytes */
    int64_t bytes, nulls;
} Bytes;

typedef struct { /* copied from and to the caller's state array */
    int64_t row, key_bytes, value_bytes, key_nulls, value_nulls, headers, header_key_bytes, header_value_bytes,
        header_lists_null, timestamps_clamped;
} State;

typedef struct {
    size_t rows_room, headers_room;
    int64_t *offset, *timestamp;
    int32_t *timestamp_type;
    Bytes key, value;
    int with_headers;
    int32_t *list_offsets;
    uint8_t *list_validity;
    Bytes header_key, header_value;
    State at;
    int64_t timestamp_scale, from_offset, until;
} Columns;

static void set_bit(uint8_t *bitmap, size_t i, int value) {
    if ((i & 7) == 0) bitmap[i >> 3] = 0;
    bitmap[i >> 3] |= (uint8_t)(value << (i & 7));
}

/* The loop over the records is up to 8 % faster if put_bytes() and put_record() are inlined. */
#define IN_LOOP static inline __attribute__((always_inline))

/* Appends n bytes, or a null if n is -1. Returns 0 if there is no room. */
IN_LOOP int put_bytes(Bytes *column, int64_t *bytes, int64_t *nulls, size_t row, const uint8_t *p, int64_t n) {
    if (n > 0) {
        if ((uint64_t)n > column->room - (uint64_t)*bytes) return 0;
        memcpy(column->data + *bytes, p, (size_t)n);
        *bytes += n;
    }
    column->offsets[row + 1] = (int32_t)*bytes;
    set_bit(column->validity, row, n >= 0);
    *nulls += n < 0;
    return 1;
}

IN_LOOP int put_record(Columns *c, int64_t offset, int64_t timestamp, int timestamp_type, const uint8_t *key,
                       int64_t key_size, const uint8_t *value, int64_t value_size) {
    size_t row = (size_t)c->at.row;
    if (row >= c->rows_room) return 0;
    c->offset[row] = offset;
    int64_t scaled;
    if (__builtin_mul_overflow(timestamp, c->timestamp_scale, &scaled)) {
        scaled = timestamp < 0 ? INT64_MIN : INT64_MAX;
        c->at.timestamps_clamped++;
    }
    c->timestamp[row] = scaled;
    c->timestamp_type[row] = timestamp_type;
    if (!put_bytes(&c->key, &c->at.key_bytes, &c->at.key_nulls, row, key, key_size)) return 0;
    if (!put_bytes(&c->value, &c->at.value_bytes, &c->at.value_nulls, row, value, value_size)) return 0;
    c->at.row++;
    return 1;
}

/* Ends the header list of the last row. An empty list becomes null, as in Spark's Kafka source. */
static void end_headers(Columns *c, int64_t count) {
    size_t row = (size_t)c->at.row - 1;
    c->list_offsets[row + 1] = (int32_t)c->at.headers;
    set_bit(c->list_validity, row, count > 0);
    c->at.header_lists_null += count == 0;
}

static int64_t from_zigzag(uint64_t value) { return (int64_t)(value >> 1) ^ -(int64_t)(value & 1); }

/* Reads a zigzag varint of at most max_bytes bytes. Returns NULL if it is longer or truncated. */
static const uint8_t *long_varint(const uint8_t *p, const uint8_t *end, int max_bytes, int64_t *out) {
    uint64_t value = 0;
    for (int i = 0; i < max_bytes && p < end; i++) {
        uint8_t byte = *p++;
        value |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (byte < 0x80) {
            *out = from_zigzag(value);
            return p;
        }
    }
    return NULL;
}

/* Reads a zigzag varint. Most have one or two bytes, which are read without a loop. */
static inline const uint8_t *varint(const uint8_t *p, const uint8_t *end, int max_bytes, int64_t *out) {
    if (end - p < 2 || (p[0] & p[1]) >= 0x80) return long_varint(p, end, max_bytes, out);
    if (p[0] < 0x80) {
        *out = from_zigzag(p[0]);
        return p + 1;
    }
    *out = from_zigzag((uint64_t)(p[0] & 0x7F) | (uint64_t)p[1] << 7);
    return p + 2;
}

/* Reads length-prefixed bytes. Length -1 means null, if nullable. Returns NULL if the data is corrupt. */
static const uint8_t *sized(const uint8_t *p, const uint8_t *end, int nullable, const uint8_t **data, int64_t *n) {
    p = varint(p, end, 5, n);
    if (p == NULL || *n < (nullable ? -1 : 0) || *n > end - p) return NULL;
    *data = p;
    return *n > 0 ? p + *n : p;
}

/* Reads the records of a format 2 batch. Returns 0 if they are corrupt. If c is NULL, only counts headers. */
static int decode_records(const uint8_t *p, const uint8_t *end, int64_t count, int64_t base_offset,
                          int64_t first_timestamp, int64_t max_timestamp, int attributes, Columns *c,
                          State *measured) {
    int append_time = (attributes & LOG_APPEND) != 0;
    while (count-- > 0) {
        int64_t length, timestamp_delta, offset_delta, key_size, value_size, headers;
        const uint8_t *key, *value, *name, *content;
        p = varint(p, end, 5, &length);
        if (p == NULL || length < 0 || length > end - p || length < 1) return 0;
        const uint8_t *stop = p + length;
        p++; /* attributes, unused */
        if ((p = varint(p, stop, 10, &timestamp_delta)) == NULL) return 0;
        if ((p = varint(p, stop, 5, &offset_delta)) == NULL) return 0;
        if ((p = sized(p, stop, 1, &key, &key_size)) == NULL) return 0;
        if ((p = sized(p, stop, 1, &value, &value_size)) == NULL) return 0;
        int64_t offset = add64(base_offset, offset_delta);
        int wanted = c == NULL || (offset >= c->from_offset && offset < c->until);
        if (c != NULL && wanted &&
            !put_record(c, offset, append_time ? max_timestamp : add64(first_timestamp, timestamp_delta), append_time,
                        key, key_size, value, value_size))
            return 0;
        if (c != NULL && !(c->with_headers && wanted)) {
            p = stop;
            continue;
        }
        if ((p = varint(p, stop, 5, &headers)) == NULL || headers < 0) return 0;
        for (int64_t i = 0; i < headers; i++) {
            int64_t name_size, content_size;
            if ((p = sized(p, stop, 0, &name, &name_size)) == NULL) return 0;
            if ((p = sized(p, stop, 1, &content, &content_size)) == NULL) return 0;
            if (c != NULL) {
                size_t at = (size_t)c->at.headers;
                int64_t no_nulls = 0;
                if (at >= c->headers_room) return 0;
                if (!put_bytes(&c->header_key, &c->at.header_key_bytes, &no_nulls, at, name, name_size)) return 0;
                if (!put_bytes(&c->header_value, &c->at.header_value_bytes, &no_nulls, at, content, content_size)) return 0;
                c->at.headers++;
            } else {
                measured->headers++;
                measured->header_key_bytes += name_size;
                measured->header_value_bytes += content_size > 0 ? content_size : 0;
            }
        }
        if (p != stop) return 0;
        if (c != NULL) end_headers(c, headers);
    }
    return p == end;
}

/* Reads a run of format 2 batches. Returns the position of the first corrupt batch, or -1. */
static Py_ssize_t decode_batches(const uint8_t *base, size_t at, size_t end, Columns *c, State *measured) {
    while (at < end) {
        Entry e = read_entry(base + at, end - at, 0);
        State before = c != NULL ? c->at : *measured;
        if (!e.complete || e.reason != NULL || e.magic != 2 || (e.attributes & CODEC_MASK) ||
            !decode_records(base + at + BATCH_HEADER, base + at + e.size, e.count, e.base_offset, e.first_timestamp,
                            e.max_timestamp, e.attributes, c, measured)) {
            *(c != NULL ? &c->at : measured) = before;
            return (Py_ssize_t)at;
        }
        at += e.size;
    }
    return -1;
}

/* Reads messages of formats 0 and 1, applying the base offset and append time of their wrapper. */
static Py_ssize_t decode_messages(const uint8_t *base, size_t at, size_t end, int64_t offset_shift, int64_t wrapper_time,
                                  int wrapped_append_time, Columns *c) {
    while (at < end) {
        const uint8_t *p = base + at;
        Entry e = read_entry(p, end - at, 0);
        State before = c->at;
        if (!e.complete || e.reason != NULL || e.magic > 1 || (e.attributes & CODEC_MASK)) return (Py_ssize_t)at;
        size_t key_at = e.magic == 1 ? 30 : 22;
        int32_t key_size = (int32_t)load_big32(p + key_at - 4);
        int32_t value_size = (int32_t)load_big32(p + e.payload - 4);
        int64_t offset = add64(e.base_offset, offset_shift);
        int append_time = wrapped_append_time || (e.attributes & LOG_APPEND);
        int type = e.magic == 0 ? -1 : append_time ? 1 : 0;
        int64_t time = e.magic == 0 ? -1 : wrapped_append_time ? wrapper_time : e.max_timestamp;
        if (offset >= c->from_offset && offset < c->until) {
            if (!put_record(c, offset, time, type, p + key_at, key_size, p + e.payload, value_size)) {
                c->at = before;
                return (Py_ssize_t)at;
            }
            if (c->with_headers) end_headers(c, 0);
        }
        at += e.size;
    }
    return -1;
}

PyDoc_STRVAR(decode_doc,
"decode(data, start, end, magic, attributes, base_offset, first_timestamp, max_timestamp, count,\n"
"       from_offset, until, timestamp_scale, state, columns, headers, /)\n--\n\n"
"Append the records of one segment to the columns. See decode_py.decode.");

static int get_buffers(PyObject *tuple, Py_buffer *views, int n) {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != n) {
        PyErr_SetString(PyExc_TypeError, "columns and headers must be tuples of buffers");
        return 0;
    }
    for (int i = 0; i < n; i++)
        if (PyObject_GetBuffer(PyTuple_GetItem(tuple, i), &views[i], PyBUF_WRITABLE) < 0) {
            while (i--) PyBuffer_Release(&views[i]);
            return 0;
        }
    return 1;
}

static Bytes bytes_column(const Py_buffer *offsets, const Py_buffer *validity, const Py_buffer *data) {
    Bytes b = {offsets->buf, validity->buf, data->buf, least((size_t)data->len, INT32_MAX), 0, 0};
    return b;
}

static PyObject *decode(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer data, state, column[N_COLUMNS], header[N_HEADERS];
    Py_ssize_t start, end, failed = -1;
    int magic, attributes, has_headers;
    long long base_offset, first_timestamp, max_timestamp, count, from_offset, until, scale;
    PyObject *columns, *headers, *result = NULL;
    if (!PyArg_ParseTuple(args, "y*nniiLLLLLLLw*OO", &data, &start, &end, &magic, &attributes, &base_offset,
                          &first_timestamp, &max_timestamp, &count, &from_offset, &until, &scale, &state, &columns,
                          &headers))
        return NULL;
    has_headers = headers != Py_None;
    if (!within(start, end, data.len) || state.len < (Py_ssize_t)sizeof(State)) {
        PyErr_SetString(PyExc_IndexError, "byte range or state exceeds its buffer");
        goto release;
    }
    if (!get_buffers(columns, column, N_COLUMNS)) goto release;
    if (has_headers && !get_buffers(headers, header, N_HEADERS)) goto release_columns;

    Columns c = {0};
    memcpy(&c.at, state.buf, sizeof(State));
    c.offset = column[0].buf;
    c.timestamp = column[1].buf;
    c.timestamp_type = column[2].buf;
    c.key = bytes_column(&column[3], &column[4], &column[5]);
    c.value = bytes_column(&column[6], &column[7], &column[8]);
    c.rows_room = columns_rows(column);
    c.timestamp_scale = scale;
    c.from_offset = from_offset;
    c.until = until;
    c.with_headers = has_headers;
    if (has_headers) {
        c.list_offsets = header[0].buf;
        c.list_validity = header[1].buf;
        c.rows_room = least(c.rows_room, bytes_rows(&header[0], &header[1]));
        c.header_key = bytes_column(&header[2], &header[3], &header[4]);
        c.header_value = bytes_column(&header[5], &header[6], &header[7]);
        c.headers_room = columns_headers(header);
    }
    const State *s = &c.at;
    if (s->row < 0 || s->key_bytes < 0 || s->value_bytes < 0 || s->headers < 0 || s->header_key_bytes < 0 ||
        s->header_value_bytes < 0 || s->key_nulls < 0 || s->key_nulls > s->row || s->value_nulls < 0 ||
        s->value_nulls > s->row || s->header_lists_null < 0 || s->header_lists_null > s->row ||
        s->timestamps_clamped < 0 || s->timestamps_clamped > s->row ||
        (size_t)s->key_bytes > c.key.room || (size_t)s->value_bytes > c.value.room ||
        (has_headers && ((size_t)s->header_key_bytes > c.header_key.room ||
                         (size_t)s->header_value_bytes > c.header_value.room))) {
        PyErr_SetString(PyExc_IndexError, "state does not match the column capacity");
        goto release_all;
    }
    if (c.rows_room && s->row == 0) {
        c.key.offsets[0] = c.value.offsets[0] = 0;
        if (has_headers) c.list_offsets[0] = 0;
    }
    if (has_headers && c.headers_room && s->headers == 0) c.header_key.offsets[0] = c.header_value.offsets[0] = 0;

    const uint8_t *base = data.buf;
    PyThreadState *released = release_gil((size_t)(end - start));
    if (magic == 2 && count < 0) {
        failed = decode_batches(base, (size_t)start, (size_t)end, &c, NULL);
    } else if (magic == 2) {
        State before = c.at;
        if (!decode_records(base + start, base + end, count, base_offset, first_timestamp, max_timestamp, attributes,
                            &c, NULL)) {
            c.at = before;
            failed = start;
        }
    } else {
        failed = decode_messages(base, (size_t)start, (size_t)end, base_offset, max_timestamp,
                                 (attributes & LOG_APPEND) != 0, &c);
    }
    acquire_gil(released);
    memcpy(state.buf, &c.at, sizeof(State));
    result = PyLong_FromSsize_t(failed);

release_all:
    if (has_headers)
        for (int i = 0; i < N_HEADERS; i++) PyBuffer_Release(&header[i]);
release_columns:
    for (int i = 0; i < N_COLUMNS; i++) PyBuffer_Release(&column[i]);
release:
    PyBuffer_Release(&data);
    PyBuffer_Release(&state);
    return result;
}

PyDoc_STRVAR(measure_doc,
"measure(data, start, end, count, /)\n--\n\n"
"Return the number of headers in a segment, the total header key size and the total header value size.\n"
"See decode_py.measure.");

static PyObject *measure(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer data;
    Py_ssize_t start, end;
    long long count;
    if (!PyArg_ParseTuple(args, "y*nnL", &data, &start, &end, &count)) return NULL;
    if (!within(start, end, data.len)) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_IndexError, "byte range exceeds the data");
        return NULL;
    }
    State m = {0};
    const uint8_t *base = data.buf;
    PyThreadState *released = release_gil((size_t)(end - start));
    if (count < 0) decode_batches(base, (size_t)start, (size_t)end, NULL, &m);
    else decode_records(base + start, base + end, count, 0, 0, 0, 0, NULL, &m);
    acquire_gil(released);
    PyBuffer_Release(&data);
    return Py_BuildValue("(LLL)", (long long)m.headers, (long long)m.header_key_bytes,
                         (long long)m.header_value_bytes);
}

PyDoc_STRVAR(split_doc,
"split(data, start, end, count, max_rows, max_bytes, /)\n--\n\n"
"Return how many records of a payload fit into a block, and the position after them. See decode_py.split.");

static PyObject *split(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer data;
    Py_ssize_t start, end;
    long long count, max_rows, max_bytes;
    if (!PyArg_ParseTuple(args, "y*nnLLL", &data, &start, &end, &count, &max_rows, &max_bytes)) return NULL;
    if (!within(start, end, data.len)) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_IndexError, "byte range exceeds the data");
        return NULL;
    }
    const uint8_t *base = data.buf, *p = base + start, *stop = base + end;
    long long rows = 0;
    PyThreadState *released = release_gil((size_t)(end - start));
    while (rows < count && rows < max_rows) {
        int64_t length;
        const uint8_t *record = varint(p, stop, 5, &length);
        if (record == NULL || length < 1 || length > stop - record) break;
        record += length;
        if (rows && record - (base + start) > max_bytes) break;
        p = record;
        rows++;
    }
    acquire_gil(released);
    Py_ssize_t split_at = p - base;
    PyBuffer_Release(&data);
    if (!rows || rows == count) return Py_BuildValue("(Ln)", count, end);
    return Py_BuildValue("(Ln)", rows, split_at);
}

/* ---- the module ------------------------------------------------------------------------------- */

PyDoc_STRVAR(crc32c_doc, "crc32c(data, /)\n--\n\nReturn the CRC-32C (Castagnoli) of data.");

static PyObject *crc32c(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer data;
    if (!PyArg_ParseTuple(args, "y*", &data)) return NULL;
    uint32_t crc;
    PyThreadState *released = release_gil((size_t)data.len);
    crc = crc32c_of(data.buf, (size_t)data.len);
    acquire_gil(released);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}

static PyMethodDef functions[] = {
    {"crc32c", crc32c, METH_VARARGS, crc32c_doc},
    {"decode", decode, METH_VARARGS, decode_doc},
    {"measure", measure, METH_VARARGS, measure_doc},
    {"next_offset", next_offset, METH_VARARGS, next_offset_doc},
    {"scan", scan, METH_VARARGS, scan_doc},
    {"split", split, METH_VARARGS, split_doc},
    {NULL, NULL, 0, NULL},
};

/* Fills the tables when the first interpreter of the process imports the module. Later imports must not write them, because
 * other threads can be reading them without the GIL. */
static int execute(PyObject *Py_UNUSED(object)) {
    static int has_tables;
    if (has_tables) return 0;
    make_crc_tables();
#ifdef HAVE_SSE42_CRC
    make_lane_table(long_lane, LONG_LANE);
    make_lane_table(short_lane, SHORT_LANE);
    has_sse42 = __builtin_cpu_supports("sse4.2");
#endif
    has_tables = 1;
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_decode", "Compiled decoder; see decode_py.", 0, functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__decode(void) { return PyModuleDef_Init(&definition); }
