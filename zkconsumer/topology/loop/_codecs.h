/* Serialization for compiled serdes. The including file must include Python.h first. */
#ifndef ZKCONSUMER_CODECS_H
#define ZKCONSUMER_CODECS_H

#include <stdint.h>
#include <string.h>

#include "../../_bytes.h"
#include "../../_tuples.h"
#include "../../_objects.h"

enum { OTHER, BYTES, STRING, INTEGER, LONG, DOUBLE, TIMESTAMPED = 16, TIME_WINDOWED = 32, SESSION_WINDOWED = 64 }; /* serdes.Codec */

/* Converts an int to int64_t. Returns 0 if the object is not an int from minimum to maximum. */
static inline int parse_integer(PyObject *object, int64_t minimum, int64_t maximum, int64_t *number) {
    int overflow;
    if (!PyLong_CheckExact(object)) return 0;
    *number = PyLong_AsLongLongAndOverflow(object, &overflow); /* cannot fail for an int */
    return !overflow && *number >= minimum && *number <= maximum;
}

/* Encodes an object whose type is exactly the codec's type. The result points into the object, or to the start of `number`.
 * Returns 0 for other objects, for which the Python serializer must be called. */
static inline int encode_object(PyObject *object, int codec, uint8_t *number, Slice *bytes) {
    int64_t integer;
    uint64_t bits;
    double real;
    char *at;
    Py_ssize_t size;
    bytes->at = number;
    bytes->size = 8;
    switch (codec) {
    case BYTES:
        if (!PyBytes_CheckExact(object) || PyBytes_AsStringAndSize(object, &at, &size) < 0) return 0;
        break;
    case STRING:
        if (!PyUnicode_CheckExact(object)) return 0;
        at = (char *)PyUnicode_AsUTF8AndSize(object, &size);
        if (at != NULL) break;
        PyErr_Clear();
        return 0;
    case INTEGER:
        if (!parse_integer(object, INT32_MIN, INT32_MAX, &integer)) return 0;
        store_big32(number, (uint32_t)integer);
        bytes->size = 4;
        return 1;
    case LONG:
        if (!parse_integer(object, INT64_MIN, INT64_MAX, &integer)) return 0;
        store_big64(number, (uint64_t)integer);
        return 1;
    case DOUBLE:
        if (!PyFloat_CheckExact(object)) return 0;
        real = PyFloat_AsDouble(object);
        memcpy(&bits, &real, 8);
        store_big64(number, bits);
        return 1;
    default:
        return 0;
    }
    bytes->at = (const uint8_t *)at;
    bytes->size = (size_t)size;
    return 1;
}

/* Decodes an object. NULL without an error means that the Python deserializer must be called. */
static inline PyObject *decode_object(int codec, Slice data) {
    uint64_t bits;
    double real;
    PyObject *text;
    switch (codec) {
    case BYTES:
        return to_bytes(data);
    case STRING:
        text = PyUnicode_DecodeUTF8((const char *)data.at, (Py_ssize_t)data.size, NULL);
        if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) PyErr_Clear();
        return text;
    case INTEGER:
        return data.size == 4 ? PyLong_FromLong((int32_t)load_big32(data.at)) : NULL;
    case LONG:
        return data.size == 8 ? PyLong_FromLongLong((int64_t)load_big64(data.at)) : NULL;
    case DOUBLE:
        if (data.size != 8) return NULL;
        bits = load_big64(data.at);
        memcpy(&real, &bits, 8);
        return PyFloat_FromDouble(real);
    default:
        return NULL;
    }
}

/* Imports the class ValueAndTimestamp; returns -1 on error. `target` must be NULL or own a reference. */
static inline int import_value_and_timestamp(PyTypeObject **target) {
    return import_tuple_type("zkconsumer.topology.stores.key_value_store", "ValueAndTimestamp", target);
}

/* Gets the value (borrowed) and the timestamp of a ValueAndTimestamp. Returns 2 if the value is None, and 0 if the Python
 * serializer must handle the object. */
static inline int split_timestamped(PyTypeObject *type, PyObject *object, PyObject **value, int64_t *timestamp) {
    if (Py_TYPE(object) != type || PyTuple_Size(object) != 2) return 0;
    PyObject *time = PyTuple_GetItem(object, 1);
    *value = PyTuple_GetItem(object, 0);
    if (*value == Py_None && PyLong_CheckExact(time)) return 2;
    return parse_integer(time, INT64_MIN, INT64_MAX, timestamp);
}

/* Decodes a ValueAndTimestamp; see decode_object() for the result NULL. */
static inline PyObject *decode_timestamped(PyTypeObject *type, int codec, Slice data) {
    if (data.size < 8) return NULL;
    Slice rest = {data.at + 8, data.size - 8};
    PyObject *value = decode_object(codec, rest);
    if (value == NULL) return NULL;
    /* Decode the timestamp before create_tuple(), which can run the garbage collector and free the data. */
    PyObject *const items[] = {value, PyLong_FromLongLong((int64_t)load_big64(data.at))};
    PyObject *pair = create_tuple(type, items, 2);
    if (pair != NULL) PyObject_GC_UnTrack(pair); /* it cannot be part of a reference cycle */
    return pair;
}

#endif
