/* Capacities of column buffers, whose layout column_writer.py describes. The including file must include Python.h first. */
#ifndef ZKCONSUMER_COLUMNS_H
#define ZKCONSUMER_COLUMNS_H

#include "_bytes.h"

enum { N_COLUMNS = 9, N_HEADERS = 8 };

/* Returns the capacity of a binary column in rows: n rows need n + 1 offsets and n validity bits. */
static inline size_t bytes_rows(const Py_buffer *offsets, const Py_buffer *validity) {
    size_t by_offsets = offsets->len < 4 ? 0 : (size_t)offsets->len / 4 - 1;
    return least(by_offsets, (size_t)validity->len * 8);
}

/* Returns the capacity of the columns in rows. */
static inline size_t columns_rows(const Py_buffer *columns) {
    size_t numbers = least(least((size_t)columns[0].len / 8, (size_t)columns[1].len / 8), (size_t)columns[2].len / 4);
    return least(numbers, least(bytes_rows(&columns[3], &columns[4]), bytes_rows(&columns[6], &columns[7])));
}

/* Returns the capacity of the header columns in headers. */
static inline size_t columns_headers(const Py_buffer *headers) {
    return least(bytes_rows(&headers[2], &headers[3]), bytes_rows(&headers[5], &headers[6]));
}

#endif
