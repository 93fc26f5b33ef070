/* Record processing of a task: compiled versions of the types and functions in loop_py.py, cache_py.py and aggregator_py.py.
 *
 * The Python modules document them, and have the same results and errors. Errors of records, sinks and forward() are raised
 * by Python functions, so each message exists only once.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "_codecs.h"

/* Sampling interval of node timing: one call out of this many is timed. */
enum { TIMED_CALLS = 64 };

typedef struct {
    PyTypeObject *record_type, *state_type, *guarded_type, *forwarder_type, *columns_type, *writer_type;
    PyTypeObject *serializer_type, *deserializer_type, *budget_type, *node_type, *entries_type, *aggregator_type, *windows_type;
    PyObject *copy_headers, *reject_timestamp, *count_header_bytes; /* functions in headers.py */
} Module;

static struct PyModuleDef definition;

#define module_of(object) ((Module *)PyType_GetModuleState(Py_TYPE((PyObject *)(object))))

/* ---- records -------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD PyObject *key, *value, *headers; /* headers: NULL if there are none */
    int64_t timestamp;
} Record;

static PyObject *record_create(PyTypeObject *type, PyObject *key, PyObject *value, int64_t timestamp) {
    /* The allocation can run finalizers, which can change the list or record that contains the objects. */
    Py_INCREF(key);
    Py_INCREF(value);
    Record *self = PyObject_GC_New(Record, type);
    if (self == NULL) {
        Py_DECREF(key);
        Py_DECREF(value);
        return NULL;
    }
    self->key = key;
    self->value = value;
    self->headers = NULL;
    self->timestamp = timestamp;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* Copies headers to a record if there are any; returns -1 on error. */
static int record_set_headers(Record *self, PyObject *headers) {
    if (headers == NULL || headers == Py_None) return 0;
    int has_headers = PyObject_IsTrue(headers);
    if (has_headers <= 0) return has_headers;
    PyObject *copied = PyObject_CallFunctionObjArgs(module_of(self)->copy_headers, headers, NULL);
    if (copied == NULL) return -1;
    PyObject *old = self->headers;
    self->headers = copied;
    Py_XDECREF(old);
    return 0;
}

/* Converts an object to a timestamp; returns -1 on error. */
static int64_t to_timestamp(Module *module, PyObject *timestamp) {
    if (PyLong_Check(timestamp)) {
        int64_t number = PyLong_AsLongLong(timestamp);
        if (number >= 0) return number;
        PyErr_Clear();
    }
    PyObject *result = PyObject_CallFunctionObjArgs(module->reject_timestamp, timestamp, NULL);
    if (result != NULL) {
        Py_DECREF(result);
        PyErr_SetString(PyExc_SystemError, "reject_timestamp() returned");
    }
    return -1;
}

static PyObject *record_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"key", "value", "timestamp", "headers", NULL};
    PyObject *key, *value, *timestamp, *headers = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|O:Record", names, &key, &value, &timestamp, &headers)) return NULL;
    int64_t number = to_timestamp(PyType_GetModuleState(type), timestamp);
    if (number < 0) return NULL;
    PyObject *self = record_create(type, key, value, number);
    if (self != NULL && record_set_headers((Record *)self, headers) < 0) Py_CLEAR(self);
    return self;
}

/* Raises AttributeError for an attribute that was deleted through its descriptor. */
static void raise_missing(Record *self, const char *name) {
    PyObject *found = PyObject_GetAttrString((PyObject *)self, name);
    if (found == NULL) return;
    Py_DECREF(found);
    PyErr_SetString(PyExc_AttributeError, name);
}

/* Returns 1 if key and value are set, or raises AttributeError and returns 0. */
static int record_is_whole(Record *self) {
    const char *missing = self->key == NULL ? "key" : self->value == NULL ? "value" : NULL;
    if (missing == NULL) return 1;
    raise_missing(self, missing);
    return 0;
}

static PyObject *record_copy(Record *self, PyObject *key, PyObject *value, int64_t timestamp, PyObject *headers) {
    if (key == NULL || value == NULL) {
        raise_missing(self, key == NULL ? "key" : "value");
        return NULL;
    }
    Py_XINCREF(headers); /* the allocation can run finalizers, which can replace the headers of the record */
    PyObject *copy = record_create(Py_TYPE((PyObject *)self), key, value, timestamp);
    if (copy != NULL && record_set_headers((Record *)copy, headers) < 0) Py_CLEAR(copy);
    Py_XDECREF(headers);
    return copy;
}

static PyObject *record_with_key(PyObject *object, PyObject *key) {
    Record *self = (Record *)object;
    return record_copy(self, key, self->value, self->timestamp, self->headers);
}

static PyObject *record_with_value(PyObject *object, PyObject *value) {
    Record *self = (Record *)object;
    return record_copy(self, self->key, value, self->timestamp, self->headers);
}

static PyObject *record_with_timestamp(PyObject *object, PyObject *timestamp) {
    Record *self = (Record *)object;
    if (!record_is_whole(self)) return NULL;
    int64_t number = to_timestamp(module_of(self), timestamp);
    return number < 0 ? NULL : record_copy(self, self->key, self->value, number, self->headers);
}

static PyObject *record_with_headers(PyObject *object, PyObject *headers) {
    Record *self = (Record *)object;
    return record_copy(self, self->key, self->value, self->timestamp, headers);
}

static PyObject *record_get_headers(PyObject *object, void *Py_UNUSED(closure)) {
    Record *self = (Record *)object;
    if (self->headers == NULL && (self->headers = PyList_New(0)) == NULL) return NULL;
    Py_INCREF(self->headers);
    return self->headers;
}

static int record_assign_headers(PyObject *object, PyObject *headers, void *Py_UNUSED(closure)) {
    Record *self = (Record *)object;
    if (headers == NULL) {
        PyErr_SetString(PyExc_AttributeError, "headers");
        return -1;
    }
    PyObject *old = self->headers;
    Py_INCREF(headers);
    self->headers = headers;
    Py_XDECREF(old);
    return 0;
}

static PyObject *record_get_timestamp(PyObject *object, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(((Record *)object)->timestamp);
}

static int record_assign_timestamp(PyObject *object, PyObject *timestamp, void *Py_UNUSED(closure)) {
    if (timestamp == NULL) {
        PyErr_SetString(PyExc_AttributeError, "timestamp");
        return -1;
    }
    int64_t number = to_timestamp(module_of(object), timestamp);
    if (number < 0) return -1;
    ((Record *)object)->timestamp = number;
    return 0;
}

/* Returns the attributes of a record as a tuple. */
static PyObject *record_fields(PyObject *object) {
    Record *self = (Record *)object;
    PyObject *headers = record_get_headers(object, NULL);
    if (headers == NULL) return NULL;
    if (!record_is_whole(self)) {
        Py_DECREF(headers);
        return NULL;
    }
    Py_INCREF(self->key);
    Py_INCREF(self->value);
    return Py_BuildValue("(NNLN)", self->key, self->value, (long long)self->timestamp, headers);
}

static PyObject *record_reduce(PyObject *self, PyObject *Py_UNUSED(unused)) {
    PyObject *fields = record_fields(self);
    return fields == NULL ? NULL : Py_BuildValue("(ON)", (PyObject *)Py_TYPE(self), fields);
}

static PyObject *record_repr(PyObject *self) {
    PyObject *fields = record_fields(self); /* keeps the objects alive if a __repr__ changes the record */
    if (fields == NULL) return NULL;
    PyObject *text = PyUnicode_FromFormat(
        "Record(key=%R, value=%R, timestamp=%R, headers=%R)", PyTuple_GetItem(fields, 0), PyTuple_GetItem(fields, 1),
        PyTuple_GetItem(fields, 2), PyTuple_GetItem(fields, 3));
    Py_DECREF(fields);
    return text;
}

static int record_set_attribute(PyObject *self, PyObject *name, PyObject *value) {
    if (value != NULL) return PyObject_GenericSetAttr(self, name, value);
    PyErr_Format(PyExc_AttributeError, "attribute %R of a record cannot be deleted", name);
    return -1;
}

static PyObject *record_compare(PyObject *self, PyObject *other, int operation) {
    if ((operation != Py_EQ && operation != Py_NE) || Py_TYPE(self) != Py_TYPE(other)) return Py_NewRef(Py_NotImplemented);
    PyObject *fields = record_fields(self), *others = fields == NULL ? NULL : record_fields(other), *result = NULL;
    if (others != NULL) result = PyObject_RichCompare(fields, others, operation);
    Py_XDECREF(fields);
    Py_XDECREF(others);
    return result;
}

static int record_traverse(PyObject *object, visitproc visit, void *arg) {
    Record *self = (Record *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->key);
    Py_VISIT(self->value);
    Py_VISIT(self->headers);
    return 0;
}

static int record_clear(PyObject *object) {
    Record *self = (Record *)object;
    /* Other threads and finalizers can still access the record, so its attributes must never be NULL. */
    PyObject *key = self->key, *value = self->value;
    Py_INCREF(Py_None);
    Py_INCREF(Py_None);
    self->key = self->value = Py_None;
    Py_XDECREF(key);
    Py_XDECREF(value);
    Py_CLEAR(self->headers);
    return 0;
}

static void record_dealloc(PyObject *object) {
    Record *self = (Record *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->key);
    Py_XDECREF(self->value);
    Py_XDECREF(self->headers);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyMethodDef record_methods[] = {
    {"with_key", record_with_key, METH_O, "Return a copy with the given key."},
    {"with_value", record_with_value, METH_O, "Return a copy with the given value."},
    {"with_timestamp", record_with_timestamp, METH_O, "Return a copy with the given timestamp, in milliseconds since the epoch."},
    {"with_headers", record_with_headers, METH_O, "Return a copy with the given headers."},
    {"__reduce__", record_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef record_members[] = {
    {"key", T_OBJECT_EX, offsetof(Record, key), 0, NULL},
    {"value", T_OBJECT_EX, offsetof(Record, value), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef record_properties[] = {
    {"timestamp", record_get_timestamp, record_assign_timestamp, NULL, NULL},
    {"headers", record_get_headers, record_assign_headers, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot record_slots[] = {
    {Py_tp_doc, "A record inside a topology; see ``zkconsumer.topology.loop.records.Record``."},
    {Py_tp_new, record_new},
    {Py_tp_methods, record_methods},
    {Py_tp_members, record_members},
    {Py_tp_getset, record_properties},
    {Py_tp_repr, record_repr},
    {Py_tp_setattro, record_set_attribute},
    {Py_tp_richcompare, record_compare},
    {Py_tp_hash, PyObject_HashNotImplemented},
    {Py_tp_traverse, record_traverse},
    {Py_tp_clear, record_clear},
    {Py_tp_dealloc, record_dealloc},
    {0, NULL},
};
static PyType_Spec record_spec = {
    "zkconsumer.topology.loop.records.Record", sizeof(Record), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, record_slots};

/* ---- the state of a task -------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD long long row, partition_time_ms, stream_time_ms, due_ms;
    PyObject *source, *record; /* NULL for None */
    char is_processing;
} State;

static PyObject *state_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":RunState", names)) return NULL;
    State *self = PyObject_GC_New(State, type);
    if (self == NULL) return NULL;
    self->row = 0;
    self->partition_time_ms = self->stream_time_ms = -1;
    self->due_ms = INT64_MAX;
    self->source = self->record = NULL;
    self->is_processing = 0;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* Sets the current record, and returns the previous one, which the caller owns. */
static PyObject *state_swap_record(State *self, PyObject *record) {
    PyObject *old = self->record;
    Py_XINCREF(record);
    self->record = record;
    return old;
}

static int state_traverse(PyObject *object, visitproc visit, void *arg) {
    State *self = (State *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->source);
    Py_VISIT(self->record);
    return 0;
}

static int state_clear(PyObject *object) {
    State *self = (State *)object;
    PyObject *source = self->source, *record = self->record;
    self->source = self->record = NULL;
    Py_XDECREF(source);
    Py_XDECREF(record);
    return 0;
}

static void state_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    state_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMemberDef state_members[] = {
    {"row", T_LONGLONG, offsetof(State, row), 0, NULL},
    {"partition_time_ms", T_LONGLONG, offsetof(State, partition_time_ms), 0, NULL},
    {"stream_time_ms", T_LONGLONG, offsetof(State, stream_time_ms), 0, NULL},
    {"due_ms", T_LONGLONG, offsetof(State, due_ms), 0, NULL},
    {"source", T_OBJECT, offsetof(State, source), 0, NULL},
    {"record", T_OBJECT, offsetof(State, record), 0, NULL},
    {"is_processing", T_BOOL, offsetof(State, is_processing), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot state_slots[] = {
    {Py_tp_new, state_new},         {Py_tp_members, state_members}, {Py_tp_traverse, state_traverse},
    {Py_tp_clear, state_clear},     {Py_tp_dealloc, state_dealloc}, {0, NULL},
};
static PyType_Spec state_spec = {
    "zkconsumer.topology.loop._loop.RunState", sizeof(State), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, state_slots};

/* ---- nodes ---------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD PyObject *process, *on_error;
    long long calls, nanoseconds;
} Guarded;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Calls a processor, and passes its exceptions to on_error. Returns -1 on error. */
static int guarded_process(Guarded *self, PyObject *record) {
    if (self->process == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the node was deleted");
        return -1;
    }
    int is_timed = self->calls++ % TIMED_CALLS == 0;
    int64_t started = is_timed ? now_ns() : 0;
    PyObject *process = self->process; /* the call can replace it */
    Py_INCREF(process);
    PyObject *result = PyObject_CallFunctionObjArgs(process, record, NULL);
    Py_DECREF(process);
    if (result == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        PyErr_NormalizeException(&type, &error, &traceback);
        if (traceback != NULL) PyException_SetTraceback(error, traceback);
        /* As in an except block, sys.exc_info() returns the error, and it becomes the __context__ of further errors. */
        PyObject *outer = PyErr_GetHandledException();
        PyErr_SetHandledException(error);
        result = PyObject_CallFunctionObjArgs(self->on_error, record, error, NULL);
        PyErr_SetHandledException(outer);
        Py_XDECREF(outer);
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
    }
    if (is_timed) self->nanoseconds += TIMED_CALLS * (now_ns() - started);
    if (result == NULL) return -1;
    Py_DECREF(result);
    return 0;
}

typedef struct Columns Columns;
typedef struct Writer Writer;
static int writer_process(Writer *self, PyObject *record);

/* Calls a node; returns -1 on error. */
static int call_node(Module *module, PyObject *node, PyObject *record) {
    PyTypeObject *type = Py_TYPE(node);
    if (type == module->guarded_type) return guarded_process((Guarded *)node, record);
    if (type == module->writer_type) return writer_process((Writer *)node, record);
    PyObject *result = PyObject_CallFunctionObjArgs(node, record, NULL);
    if (result == NULL) return -1;
    Py_DECREF(result);
    return 0;
}

static int call_nodes(Module *module, PyObject *nodes, PyObject *record) {
    for (Py_ssize_t i = 0; i < PyList_Size(nodes); i++) {
        PyObject *node = PyList_GetItem(nodes, i);
        Py_INCREF(node);
        int failed = call_node(module, node, record);
        Py_DECREF(node);
        if (failed) return -1;
    }
    return 0;
}

static PyObject *guarded_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"process", "on_error", NULL};
    PyObject *process, *on_error;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Guarded", names, &process, &on_error)) return NULL;
    Guarded *self = PyObject_GC_New(Guarded, type);
    if (self == NULL) return NULL;
    Py_INCREF(process);
    Py_INCREF(on_error);
    self->process = process;
    self->on_error = on_error;
    self->calls = self->nanoseconds = 0;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyObject *guarded_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"record", NULL};
    PyObject *record;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:process", names, &record)) return NULL;
    if (guarded_process((Guarded *)self, record) < 0) return NULL;
    return Py_NewRef(Py_None);
}

static int guarded_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Guarded *)object)->process);
    Py_VISIT(((Guarded *)object)->on_error);
    return 0;
}

static int guarded_clear(PyObject *object) {
    Py_CLEAR(((Guarded *)object)->process);
    Py_CLEAR(((Guarded *)object)->on_error);
    return 0;
}

static void guarded_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    guarded_clear(object);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyMemberDef guarded_members[] = {
    {"process", T_OBJECT, offsetof(Guarded, process), 0, NULL},
    {"calls", T_LONGLONG, offsetof(Guarded, calls), READONLY, NULL},
    {"nanoseconds", T_LONGLONG, offsetof(Guarded, nanoseconds), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot guarded_slots[] = {
    {Py_tp_new, guarded_new},         {Py_tp_call, guarded_call},   {Py_tp_members, guarded_members},
    {Py_tp_traverse, guarded_traverse}, {Py_tp_clear, guarded_clear}, {Py_tp_dealloc, guarded_dealloc},
    {0, NULL},
};
static PyType_Spec guarded_spec = {
    "zkconsumer.topology.loop._loop.Guarded", sizeof(Guarded), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, guarded_slots};

/* ---- forward -------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD PyObject *state, *children, *by_name, *reject;
} Forwarder;

static PyObject *forwarder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"state", "children", "by_name", "reject", NULL};
    Module *module = PyType_GetModuleState(type);
    PyObject *state, *children, *by_name, *reject;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!O!O!O:Forwarder", names, module->state_type, &state, &PyList_Type, &children, &PyDict_Type, &by_name,
            &reject))
        return NULL;
    Forwarder *self = PyObject_GC_New(Forwarder, type);
    if (self == NULL) return NULL;
    Py_INCREF(state);
    Py_INCREF(children);
    Py_INCREF(by_name);
    Py_INCREF(reject);
    self->state = state;
    self->children = children;
    self->by_name = by_name;
    self->reject = reject;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyObject *forwarder_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"record", "child", NULL};
    Forwarder *self = (Forwarder *)object;
    Module *module = module_of(object);
    PyObject *record, *child = Py_None, *node = NULL;
    if (kwargs == NULL && PyTuple_Size(args) == 1)
        record = PyTuple_GetItem(args, 0);
    else if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:forward", names, &record, &child))
        return NULL;
    int is_valid = ((State *)self->state)->is_processing && Py_TYPE(record) == module->record_type;
    if (is_valid && child != Py_None) {
        node = PyDict_GetItemWithError(self->by_name, child);
        if (node == NULL && PyErr_Occurred()) return NULL;
        is_valid = node != NULL;
    }
    int failed;
    State *state = (State *)self->state;
    if (!is_valid) {
        PyObject *result = PyObject_CallFunctionObjArgs(self->reject, record, child, NULL);
        if (result == NULL) return NULL;
        Py_DECREF(result);
        return Py_NewRef(Py_None);
    }
    PyObject *previous = state_swap_record(state, record);
    if (node == NULL) {
        failed = call_nodes(module, self->children, record);
    } else {
        Py_INCREF(node);
        failed = call_node(module, node, record);
        Py_DECREF(node);
    }
    Py_XDECREF(state_swap_record(state, previous));
    Py_XDECREF(previous);
    if (failed) return NULL;
    return Py_NewRef(Py_None);
}

static int forwarder_traverse(PyObject *object, visitproc visit, void *arg) {
    Forwarder *self = (Forwarder *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->state);
    Py_VISIT(self->children);
    Py_VISIT(self->by_name);
    Py_VISIT(self->reject);
    return 0;
}

/* No tp_clear: guarded_clear() and lists break the reference cycles, and the fields stay valid for calls. */
static void forwarder_dealloc(PyObject *object) {
    Forwarder *self = (Forwarder *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_DECREF(self->state);
    Py_DECREF(self->children);
    Py_DECREF(self->by_name);
    Py_DECREF(self->reject);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyType_Slot forwarder_slots[] = {
    {Py_tp_new, forwarder_new},
    {Py_tp_call, forwarder_call},
    {Py_tp_traverse, forwarder_traverse},
    {Py_tp_dealloc, forwarder_dealloc},
    {0, NULL},
};
static PyType_Spec forwarder_spec = {
    "zkconsumer.topology.loop._loop.Forwarder", sizeof(Forwarder), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, forwarder_slots};

/* ---- output columns ------------------------------------------------------------------------- */

/* A growable buffer. */
typedef struct {
    char *data;
    size_t size, capacity;
} Buffer;

/* Reserves space for `count` more bytes; returns -1 on error. */
static int buffer_reserve(Buffer *buffer, size_t count) {
    if (count <= buffer->capacity - buffer->size) return 0;
    size_t capacity = buffer->capacity ? buffer->capacity : 1024;
    while (capacity - buffer->size < count) {
        if (capacity > SIZE_MAX / 4) {
            PyErr_NoMemory();
            return -1;
        }
        capacity *= 2;
    }
    char *data = PyMem_Realloc(buffer->data, capacity);
    if (data == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return 0;
}

/* Appends bytes for which space is reserved. */
static void buffer_append(Buffer *buffer, const void *data, size_t count) {
    if (count == 0) return;
    memcpy(buffer->data + buffer->size, data, count);
    buffer->size += count;
}

/* A binary column: row data, row end offsets, and one validity byte per row (0 for null). */
typedef struct {
    Buffer bytes, ends, valid;
} Binary;

struct Columns {
    PyObject_HEAD PyObject *topics; /* topic -> number */
    PyObject *headers;              /* row -> headers tuple */
    Buffer topic, partition, timestamp;
    Binary key, value;
    Py_ssize_t rows;
};

/* Reserves space for a row; returns -1 on error. */
static int binary_reserve(Binary *column, Slice data) {
    if (data.size > INT32_MAX - column->bytes.size) {
        PyErr_SetString(PyExc_OverflowError, "the keys and the values in a task's output must each be less than 2 GiB; commit more often (on Spark: reduce max_records_per_task)");
        return -1;
    }
    if (buffer_reserve(&column->bytes, data.size) < 0) return -1;
    return buffer_reserve(&column->ends, sizeof(int32_t)) < 0 ? -1 : buffer_reserve(&column->valid, 1);
}

/* Appends a row for which space is reserved. The address of the data is NULL for None. */
static void binary_append(Binary *column, Slice data) {
    char is_valid = data.at != NULL;
    buffer_append(&column->bytes, data.at, data.size);
    int32_t end = (int32_t)column->bytes.size;
    buffer_append(&column->ends, &end, sizeof end);
    buffer_append(&column->valid, &is_valid, 1);
}

/* Returns the number of a topic, or -1 on error. */
static int32_t find_topic(PyObject *topics, PyObject *topic, int *is_new) {
    PyObject *number = PyDict_GetItemWithError(topics, topic);
    if (number != NULL) {
        long found = PyLong_CheckExact(number) ? PyLong_AsLong(number) : -1;
        if (found >= 0 && found <= INT32_MAX) return (int32_t)found;
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the topic numbers were modified");
        return -1;
    }
    if (PyErr_Occurred()) return -1;
    Py_ssize_t count = PyDict_Size(topics);
    if ((number = PyLong_FromSsize_t(count)) == NULL) return -1;
    int failed = PyDict_SetItem(topics, topic, number);
    Py_DECREF(number);
    *is_new = !failed;
    return failed ? -1 : (int32_t)count;
}

/* Removes an item after an error, and keeps the error set. */
static void remove_item(PyObject *dict, PyObject *key) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (PyDict_DelItem(dict, key) < 0) PyErr_Clear();
    PyErr_Restore(type, error, traceback);
}

/* Appends a row; on error, returns -1 and appends nothing. `headers` can be NULL. */
static int columns_add(
    Columns *self, PyObject *topic, int32_t partition, int64_t timestamp, Slice key, Slice value, PyObject *headers) {
    PyObject *topics = self->topics, *of_rows = self->headers, *row = NULL;
    Py_INCREF(topics);
    Py_INCREF(of_rows);
    int is_new = 0, has_headers = 0, failed = 1;
    int32_t number = find_topic(topics, topic, &is_new);
    if (number < 0) goto done;
    if (headers != NULL) {
        if ((row = PyLong_FromSsize_t(self->rows)) == NULL || PyDict_SetItem(of_rows, row, headers) < 0) goto done;
        has_headers = 1;
    }
    /* No Python code can run after this point. */
    if (buffer_reserve(&self->topic, sizeof number) < 0 || buffer_reserve(&self->partition, sizeof partition) < 0 ||
        buffer_reserve(&self->timestamp, sizeof timestamp) < 0 || binary_reserve(&self->key, key) < 0 ||
        binary_reserve(&self->value, value) < 0)
        goto done;
    buffer_append(&self->topic, &number, sizeof number);
    buffer_append(&self->partition, &partition, sizeof partition);
    buffer_append(&self->timestamp, &timestamp, sizeof timestamp);
    binary_append(&self->key, key);
    binary_append(&self->value, value);
    self->rows++;
    failed = 0;
done:
    if (failed && has_headers) remove_item(of_rows, row);
    if (failed && is_new) remove_item(topics, topic);
    Py_XDECREF(row);
    Py_DECREF(topics);
    Py_DECREF(of_rows);
    return failed ? -1 : 0;
}

static PyObject *columns_create(PyTypeObject *type) {
    Columns *self = PyObject_GC_New(Columns, type);
    if (self == NULL) return NULL;
    memset((char *)self + offsetof(Columns, topics), 0, sizeof(Columns) - offsetof(Columns, topics));
    self->topics = PyDict_New();
    self->headers = PyDict_New();
    if (self->topics == NULL || self->headers == NULL) Py_CLEAR(self);
    else PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyObject *columns_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {NULL};
    return PyArg_ParseTupleAndKeywords(args, kwargs, ":OutputColumns", names) ? columns_create(type) : NULL;
}

/* Gets the data of a key or value; returns -1 on error. The address is NULL for None. */
static int view_optional_bytes(PyObject *object, const char *name, Slice *data) {
    data->at = NULL;
    data->size = 0;
    return object == Py_None ? 0 : view_bytes(object, name, "bytes or None", data);
}

static PyObject *columns_append(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"topic", "partition", "timestamp", "key", "value", "headers", NULL};
    PyObject *topic, *partition, *key, *value, *headers;
    long long timestamp;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "UOLOOO!:append", names, &topic, &partition, &timestamp, &key, &value, &PyTuple_Type, &headers))
        return NULL;
    int overflow = 0;
    long number = -1;
    if (partition != Py_None) {
        if (PyLong_Check(partition)) number = PyLong_AsLongAndOverflow(partition, &overflow);
        if (overflow || number < 0 || number > INT32_MAX)
            return PyErr_Format(PyExc_ValueError, "a partition must be an integer between 0 and %d, got %R", INT32_MAX, partition);
    }
    Slice of_key, of_value;
    if (view_optional_bytes(key, "key", &of_key) < 0 || view_optional_bytes(value, "value", &of_value) < 0) return NULL;
    if ((topic = PyUnicode_FromObject(topic)) == NULL) return NULL; /* exactly str, so that using it as a dict key runs no other code */
    int failed = columns_add(
        (Columns *)object, topic, (int32_t)number, timestamp, of_key, of_value, PyTuple_Size(headers) > 0 ? headers : NULL);
    Py_DECREF(topic);
    if (failed) return NULL;
    return Py_NewRef(Py_None);
}

static PyObject *columns_take(PyObject *object, PyObject *Py_UNUSED(unused)) {
    Columns *self = (Columns *)object, *taken = (Columns *)columns_create(Py_TYPE(object));
    if (taken == NULL) return NULL;
    size_t start = offsetof(Columns, topics), size = sizeof(Columns) - start;
    char swapped[sizeof(Columns)];
    memcpy(swapped, (char *)self + start, size);
    memcpy((char *)self + start, (char *)taken + start, size);
    memcpy((char *)taken + start, swapped, size);
    return (PyObject *)taken;
}

/* Returns the data of a row, or None. */
static PyObject *binary_get(const Binary *column, Py_ssize_t row) {
    if (!column->valid.data[row]) return Py_NewRef(Py_None);
    int32_t bounds[2] = {0, 0};
    if (row)
        memcpy(bounds, column->ends.data + (row - 1) * 4, sizeof bounds);
    else
        memcpy(bounds + 1, column->ends.data, 4);
    return PyBytes_FromStringAndSize(column->bytes.data == NULL ? "" : column->bytes.data + bounds[0], bounds[1] - bounds[0]);
}

static PyObject *columns_row(Columns *self, PyObject *topics, Py_ssize_t row) {
    int32_t topic, partition;
    int64_t timestamp;
    memcpy(&topic, self->topic.data + row * 4, 4);
    memcpy(&partition, self->partition.data + row * 4, 4);
    memcpy(&timestamp, self->timestamp.data + row * 8, 8);
    PyObject *name = PyList_GetItem(topics, topic), *number = PyLong_FromSsize_t(row), *headers = NULL;
    if (name == NULL || number == NULL) goto failed;
    headers = PyDict_GetItemWithError(self->headers, number);
    if (headers == NULL && PyErr_Occurred()) goto failed;
    Py_DECREF(number);
    number = NULL;
    if (headers == NULL) headers = PyTuple_New(0);
    else Py_INCREF(headers);
    PyObject *where = partition < 0 ? Py_None : NULL;
    if (where != NULL) Py_INCREF(where);
    else where = PyLong_FromLong(partition);
    return Py_BuildValue("(ONLNNN)", name, where, (long long)timestamp, binary_get(&self->key, row), binary_get(&self->value, row), headers);
failed:
    Py_XDECREF(number);
    return NULL;
}

/* Returns the records as tuples of topic, partition, timestamp, key, value and headers. */
static PyObject *columns_rows(PyObject *object, PyObject *Py_UNUSED(unused)) {
    Columns *self = (Columns *)object;
    /* An allocation can run finalizers, which can take the rows and the dictionary. */
    PyObject *by_name = self->topics;
    Py_INCREF(by_name);
    PyObject *topics = PyDict_Keys(by_name), *result = topics == NULL ? NULL : PyList_New(0);
    Py_DECREF(by_name);
    for (Py_ssize_t row = 0; result != NULL && row < self->rows; row++) {
        PyObject *item = columns_row(self, topics, row);
        if (item == NULL || PyList_Append(result, item) < 0) Py_CLEAR(result);
        Py_XDECREF(item);
    }
    Py_XDECREF(topics);
    return result;
}

static PyObject *buffer_to_bytes(const Buffer *buffer) {
    return PyBytes_FromStringAndSize(buffer->data, (Py_ssize_t)buffer->size);
}

/* Returns the columns as bytes: topic numbers, partitions and timestamps; then, for keys and for values: row data, row end
 * offsets and validity bytes. */
static PyObject *columns_buffers(PyObject *object, PyObject *Py_UNUSED(unused)) {
    Columns *self = (Columns *)object;
    const Buffer *buffers[] = {&self->topic,      &self->partition,  &self->timestamp,   &self->key.bytes,  &self->key.ends,
                               &self->key.valid, &self->value.bytes, &self->value.ends, &self->value.valid};
    enum { COUNT = sizeof buffers / sizeof buffers[0] };
    PyObject *result = PyTuple_New(COUNT);
    for (Py_ssize_t i = 0; result != NULL && i < COUNT; i++) {
        PyObject *bytes = buffer_to_bytes(buffers[i]);
        if (bytes == NULL || PyTuple_SetItem(result, i, bytes) < 0) Py_CLEAR(result);
    }
    return result;
}

static Py_ssize_t columns_length(PyObject *self) { return ((Columns *)self)->rows; }

static int columns_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Columns *)object)->topics);
    Py_VISIT(((Columns *)object)->headers);
    return 0;
}

static void columns_dealloc(PyObject *object) {
    Columns *self = (Columns *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->topics);
    Py_XDECREF(self->headers);
    Buffer *buffers[] = {&self->topic,      &self->partition,  &self->timestamp,   &self->key.bytes,  &self->key.ends,
                         &self->key.valid, &self->value.bytes, &self->value.ends, &self->value.valid};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) PyMem_Free(buffers[i]->data);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyMethodDef columns_methods[] = {
    {"append", (PyCFunction)(void (*)(void))columns_append, METH_VARARGS | METH_KEYWORDS, "Append a record: topic, partition, timestamp, key, value and headers."},
    {"take", columns_take, METH_NOARGS, "Remove and return all records."},
    {"rows", columns_rows, METH_NOARGS, "Return the records as tuples."},
    {"buffers", columns_buffers, METH_NOARGS, "Return the columns as bytes."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef columns_members[] = {
    {"topics", T_OBJECT_EX, offsetof(Columns, topics), READONLY, NULL},
    {"headers", T_OBJECT_EX, offsetof(Columns, headers), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot columns_slots[] = {
    {Py_tp_new, columns_new},           {Py_tp_methods, columns_methods}, {Py_tp_members, columns_members},
    {Py_sq_length, columns_length},     {Py_tp_traverse, columns_traverse}, {Py_tp_dealloc, columns_dealloc},
    {0, NULL},
};
static PyType_Spec columns_spec = {
    "zkconsumer.topology.loop._loop.OutputColumns", sizeof(Columns), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, columns_slots};

/* ---- sinks ---------------------------------------------------------------------------------- */

struct Writer {
    PyObject_HEAD Columns *columns;
    PyObject *topic, *otherwise, *count_partitions; /* count_partitions: NULL if the producer selects all partitions */
    PyTypeObject *windowed; /* NULL if the keys are not windowed */
    int key_codec, value_codec;
};

/* Encodes an object like encode_object(), or None, for which the address of the result is NULL. */
static int encode_optional(PyObject *object, int codec, uint8_t *number, Slice *bytes) {
    if (object != Py_None) return encode_object(object, codec, number, bytes);
    bytes->at = NULL;
    bytes->size = 0;
    return codec != 0;
}

/* An encoded key: it points to `number`, `inline_bytes` or `allocated`, or into the key. */
typedef struct {
    Slice bytes;
    int32_t partition; /* -1 if the producer selects it */
    uint8_t number[8], inline_bytes[128], *allocated;
} EncodedKey;

/* Returns the murmur2 hash of the Java producer. Source: Kafka 3.9 Utils.murmur2. */
static uint32_t murmur2(Slice data) {
    const uint32_t m = 0x5BD1E995;
    uint32_t hash = 0x9747B28C ^ (uint32_t)data.size, word;
    size_t at = 0;
    for (; at + 4 <= data.size; at += 4) {
        word = (uint32_t)data.at[at] | (uint32_t)data.at[at + 1] << 8 | (uint32_t)data.at[at + 2] << 16 | (uint32_t)data.at[at + 3] << 24;
        word *= m;
        word = (word ^ word >> 24) * m;
        hash = hash * m ^ word;
    }
    if (at < data.size) {
        for (size_t shift = 0; at < data.size; at++, shift += 8) hash ^= (uint32_t)data.at[at] << shift;
        hash *= m;
    }
    hash = (hash ^ hash >> 13) * m;
    return hash ^ hash >> 15;
}

/* Sets the partition of an inner key. Returns 1; 0 if the Python function must be called; or -1 on error. */
static int select_partition(Writer *self, Slice inner, int32_t *partition) {
    if (self->count_partitions == NULL) return 1;
    uint32_t hash = murmur2(inner) & INT32_MAX; /* before the call, which can free the inner key */
    int64_t count;
    PyObject *result = PyObject_CallFunctionObjArgs(self->count_partitions, self->topic, NULL);
    if (result == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
        PyErr_Clear();
        return 0;
    }
    int is_valid = parse_integer(result, 1, INT32_MAX, &count);
    Py_DECREF(result);
    if (is_valid) *partition = (int32_t)(hash % (uint32_t)count);
    return is_valid;
}

/* Encodes a key and selects its partition; see select_partition() for the result. */
static int encode_key(Writer *self, PyObject *key, EncodedKey *encoded) {
    encoded->partition = -1;
    encoded->allocated = NULL;
    if (self->windowed == NULL) return encode_optional(key, self->key_codec, encoded->number, &encoded->bytes);
    int64_t start, end = 0;
    Slice inner;
    if (Py_TYPE(key) != self->windowed || PyTuple_Size(key) != 3) return 0;
    if (!parse_integer(PyTuple_GetItem(key, 1), INT64_MIN, INT64_MAX, &start)) return 0;
    int is_session = (self->key_codec & SESSION_WINDOWED) != 0;
    if (is_session ? !parse_integer(PyTuple_GetItem(key, 2), INT64_MIN, INT64_MAX, &end) : !PyLong_CheckExact(PyTuple_GetItem(key, 2)))
        return 0;
    if (!encode_object(PyTuple_GetItem(key, 0), self->key_codec & (TIMESTAMPED - 1), encoded->number, &inner)) return 0;
    size_t size = inner.size + (is_session ? 16 : 8);
    uint8_t *at = encoded->inline_bytes;
    if (size > sizeof encoded->inline_bytes && (at = encoded->allocated = PyMem_Malloc(size)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(at, inner.at, inner.size);
    if (is_session) store_big64(at + inner.size, (uint64_t)end);
    store_big64(at + size - 8, (uint64_t)start);
    encoded->bytes.at = at;
    encoded->bytes.size = size;
    return select_partition(self, inner, &encoded->partition);
}

/* Writes a record; see select_partition() for the result. */
static int writer_add(Writer *self, Record *record, PyObject *key, PyObject *value) {
    uint8_t number[8];
    Slice bytes;
    EncodedKey encoded;
    int result = encode_key(self, key, &encoded);
    if (result > 0) result = encode_optional(value, self->value_codec, number, &bytes);
    if (result > 0 &&
        columns_add(self->columns, self->topic, encoded.partition, record->timestamp, encoded.bytes, bytes, NULL) < 0)
        result = -1;
    PyMem_Free(encoded.allocated);
    return result;
}

/* Writes a record to the columns; returns -1 on error. */
static int writer_process(Writer *self, PyObject *object) {
    if (Py_TYPE(object) == module_of(self)->record_type) {
        Record *record = (Record *)object;
        int has_headers = 0;
        if (record->headers != NULL) {
            PyObject *headers = record->headers;
            Py_INCREF(headers);
            has_headers = PyObject_IsTrue(headers);
            Py_DECREF(headers);
        }
        if (has_headers < 0 || !record_is_whole(record)) return -1;
        if (!has_headers) {
            PyObject *key = record->key, *value = record->value;
            Py_INCREF(key);
            Py_INCREF(value);
            int result = writer_add(self, record, key, value);
            Py_DECREF(key);
            Py_DECREF(value);
            if (result != 0) return result < 0 ? -1 : 0;
        }
    }
    PyObject *result = PyObject_CallFunctionObjArgs(self->otherwise, object, NULL);
    if (result == NULL) return -1;
    Py_DECREF(result);
    return 0;
}

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"columns", "topic", "key_codec", "value_codec", "otherwise", "count_partitions", NULL};
    Module *module = PyType_GetModuleState(type);
    PyObject *columns, *topic, *otherwise, *count_partitions = Py_None;
    PyTypeObject *windowed = NULL;
    int key_codec, value_codec;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!UiiO|O:SinkWriter", names, module->columns_type, &columns, &topic, &key_codec, &value_codec, &otherwise,
            &count_partitions))
        return NULL;
    if ((key_codec & (TIME_WINDOWED | SESSION_WINDOWED)) &&
        import_tuple_type("zkconsumer.topology.stores.time_map", "Windowed", &windowed) < 0)
        return NULL;
    topic = PyUnicode_FromObject(topic);
    Writer *self = topic == NULL ? NULL : PyObject_GC_New(Writer, type);
    if (self == NULL) {
        Py_XDECREF(topic);
        Py_XDECREF((PyObject *)windowed);
        return NULL;
    }
    Py_INCREF(columns);
    Py_INCREF(otherwise);
    self->columns = (Columns *)columns;
    self->topic = topic;
    self->otherwise = otherwise;
    self->count_partitions = count_partitions == Py_None ? NULL : count_partitions;
    Py_XINCREF(self->count_partitions);
    self->windowed = windowed;
    self->key_codec = key_codec;
    self->value_codec = value_codec;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyObject *writer_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"record", NULL};
    PyObject *record;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:send", names, &record)) return NULL;
    if (writer_process((Writer *)self, record) < 0) return NULL;
    return Py_NewRef(Py_None);
}

static int writer_traverse(PyObject *object, visitproc visit, void *arg) {
    Writer *self = (Writer *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)self->columns);
    Py_VISIT(self->otherwise);
    Py_VISIT(self->count_partitions);
    Py_VISIT((PyObject *)self->windowed);
    return 0;
}

static void writer_dealloc(PyObject *object) {
    Writer *self = (Writer *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_DECREF((PyObject *)self->columns);
    Py_DECREF(self->topic);
    Py_DECREF(self->otherwise);
    Py_XDECREF(self->count_partitions);
    Py_XDECREF((PyObject *)self->windowed);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyType_Slot writer_slots[] = {
    {Py_tp_new, writer_new},
    {Py_tp_call, writer_call},
    {Py_tp_traverse, writer_traverse},
    {Py_tp_dealloc, writer_dealloc},
    {0, NULL},
};
static PyType_Spec writer_spec = {
    "zkconsumer.topology.loop._loop.SinkWriter", sizeof(Writer), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, writer_slots};

/* ---- serializers ---------------------------------------------------------------------------- */

/* A codec. `pair` is the class ValueAndTimestamp for codecs with TIMESTAMPED, else NULL. */
typedef struct {
    int number;
    PyTypeObject *pair;
} Codec;

static int codec_open(Codec *self, int number) {
    self->number = number;
    self->pair = NULL;
    return number < TIMESTAMPED ? 0 : import_value_and_timestamp(&self->pair);
}

/* Serializes a ValueAndTimestamp; returns NULL without an error if the codec cannot encode the object. */
static PyObject *serialize_timestamped(Codec codec, PyObject *object) {
    uint8_t number[8];
    Slice bytes;
    PyObject *value, *data;
    int64_t timestamp;
    int found = split_timestamped(codec.pair, object, &value, &timestamp);
    if (found == 2) return Py_NewRef(Py_None);
    if (found == 0 || !encode_object(value, codec.number - TIMESTAMPED, number, &bytes)) return NULL;
    data = PyBytes_FromStringAndSize(NULL, 8 + (Py_ssize_t)bytes.size);
    if (data == NULL) return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AsString(data);
    store_big64(at, (uint64_t)timestamp);
    memcpy(at + 8, bytes.at, bytes.size);
    return data;
}

/* Serializes an object with the codec, or else with the fallback function. */
static PyObject *serialize_object(Codec codec, PyObject *function, PyObject *object) {
    uint8_t number[8];
    Slice bytes;
    if (codec.number == BYTES && PyBytes_CheckExact(object)) {
        Py_INCREF(object);
        return object;
    }
    if (codec.number >= TIMESTAMPED) {
        PyObject *data = serialize_timestamped(codec, object);
        if (data != NULL || PyErr_Occurred()) return data;
    } else if (encode_object(object, codec.number, number, &bytes)) {
        return to_bytes(bytes);
    }
    return PyObject_CallFunctionObjArgs(function, object, NULL);
}

/* Deserializes bytes with the codec, or else with the fallback function. */
static PyObject *deserialize_object(Codec codec, PyObject *function, PyObject *data) {
    if (PyBytes_CheckExact(data)) {
        if (codec.number == BYTES) {
            Py_INCREF(data);
            return data;
        }
        Slice bytes = {(const uint8_t *)PyBytes_AsString(data), (size_t)PyBytes_Size(data)};
        PyObject *value = codec.number < TIMESTAMPED
                              ? decode_object(codec.number, bytes)
                              : decode_timestamped(codec.pair, codec.number - TIMESTAMPED, bytes);
        if (value != NULL || PyErr_Occurred()) return value;
    }
    return PyObject_CallFunctionObjArgs(function, data, NULL);
}

typedef struct {
    PyObject_HEAD PyObject *otherwise;
    Codec codec;
} Conversion;

static PyObject *conversion_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"codec", "otherwise", NULL};
    PyObject *otherwise;
    int number;
    Codec codec;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iO", names, &number, &otherwise)) return NULL;
    if (codec_open(&codec, number) < 0) return NULL;
    Conversion *self = PyObject_GC_New(Conversion, type);
    if (self == NULL) {
        Py_XDECREF((PyObject *)codec.pair);
        return NULL;
    }
    Py_INCREF(otherwise);
    self->otherwise = otherwise;
    self->codec = codec;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* Returns the single argument of a call, or NULL with an error set. */
static PyObject *only_argument(PyObject *args, PyObject *kwargs, char *name) {
    if (kwargs == NULL && PyTuple_Size(args) == 1) return PyTuple_GetItem(args, 0);
    char *names[] = {name, NULL};
    PyObject *argument = NULL;
    return PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &argument) ? argument : NULL;
}

static PyObject *serializer_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    Conversion *self = (Conversion *)object;
    PyObject *value = only_argument(args, kwargs, "value");
    if (value == NULL) return NULL;
    return serialize_object(self->codec, self->otherwise, value);
}

static PyObject *deserializer_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    Conversion *self = (Conversion *)object;
    PyObject *data = only_argument(args, kwargs, "data");
    if (data == NULL) return NULL;
    return deserialize_object(self->codec, self->otherwise, data);
}

static int conversion_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Conversion *)object)->otherwise);
    Py_VISIT(((Conversion *)object)->codec.pair);
    return 0;
}

static void conversion_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_DECREF(((Conversion *)object)->otherwise);
    Py_XDECREF((PyObject *)((Conversion *)object)->codec.pair);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyType_Slot serializer_slots[] = {
    {Py_tp_new, conversion_new},
    {Py_tp_call, serializer_call},
    {Py_tp_traverse, conversion_traverse},
    {Py_tp_dealloc, conversion_dealloc},
    {0, NULL},
};
static PyType_Spec serializer_spec = {
    "zkconsumer.topology.loop._loop.Serialize", sizeof(Conversion), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, serializer_slots};
static PyType_Slot deserializer_slots[] = {
    {Py_tp_new, conversion_new},
    {Py_tp_call, deserializer_call},
    {Py_tp_traverse, conversion_traverse},
    {Py_tp_dealloc, conversion_dealloc},
    {0, NULL},
};
static PyType_Spec deserializer_spec = {
    "zkconsumer.topology.loop._loop.Deserialize", sizeof(Conversion), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, deserializer_slots};

/* ---- rows of Arrow arrays ------------------------------------------------------------------- */

static PyObject *read_column(PyObject *Py_UNUSED(module), PyObject *args) {
    int codec;
    Py_ssize_t first, count;
    PyObject *objects[3]; /* validity or None, ends, bytes or None */
    if (!PyArg_ParseTuple(args, "iOOOnn:read_column", &codec, &objects[0], &objects[1], &objects[2], &first, &count)) return NULL;
    if (codec < BYTES || codec > DOUBLE) return PyErr_Format(PyExc_ValueError, "unsupported codec: %d", codec);
    Py_buffer views[3];
    int held = 0;
    PyObject *result = NULL;
    for (; held < 3; held++) {
        views[held].buf = NULL;
        views[held].len = 0;
        views[held].obj = NULL;
        if (objects[held] != Py_None && PyObject_GetBuffer(objects[held], &views[held], PyBUF_SIMPLE) < 0) goto release;
    }
    if (first == 0 && count == 0) { /* an empty array may have no buffers */
        result = PyList_New(0);
        goto release;
    }
    if (first < 0 || count < 0 || first > PY_SSIZE_T_MAX - count - 1 || (first + count + 1) > views[1].len / 4 ||
        (objects[0] != Py_None && (first + count + 7) / 8 > views[0].len)) {
        PyErr_SetString(PyExc_ValueError, "the buffers are shorter than the column");
        goto release;
    }
    const unsigned char *valid = objects[0] == Py_None ? NULL : views[0].buf;
    const char *bytes = views[2].buf == NULL ? "" : views[2].buf;
    const char *ends = (const char *)views[1].buf + first * 4;
    if ((result = PyList_New(count)) == NULL) goto release;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item;
        int32_t start, end;
        memcpy(&start, ends + i * 4, 4);
        memcpy(&end, ends + i * 4 + 4, 4);
        if (valid != NULL && !(valid[(first + i) / 8] >> ((first + i) % 8) & 1)) {
            item = Py_None;
            Py_INCREF(item);
        } else if (start < 0 || end < start || end > views[2].len) {
            PyErr_Format(PyExc_ValueError, "the data of row %zd exceeds the buffer (%zd bytes)", first + i, views[2].len);
            item = NULL;
        } else {
            Slice row = {(const uint8_t *)bytes + start, (size_t)(end - start)};
            item = decode_object(codec, row);
            if (item == NULL && !PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "a row cannot be deserialized with codec %d", codec);
        }
        if (item == NULL || PyList_SetItem(result, i, item) < 0) {
            Py_CLEAR(result);
            break;
        }
    }
release:
    for (int i = 0; i < held; i++)
        if (views[i].obj != NULL) PyBuffer_Release(&views[i]);
    return result;
}

/* ---- record caches -------------------------------------------------------------------------- */

/* Overhead of each entry in addition to key, value, topic and headers, in bytes; see cache_py.py. */
enum { ENTRY_BYTES = 3 * 8 + 1 + 8 + 8 + 4 };

typedef struct {
    PyObject_HEAD long long max_bytes, size_bytes;
} Budget;

static PyObject *budget_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"max_bytes", NULL};
    long long max_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "L:RecordCache", names, &max_bytes)) return NULL;
    Budget *self = PyObject_New(Budget, type);
    if (self == NULL) return NULL;
    self->max_bytes = max_bytes;
    self->size_bytes = 0;
    return (PyObject *)self;
}

static void budget_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMemberDef budget_members[] = {
    {"max_bytes", T_LONGLONG, offsetof(Budget, max_bytes), 0, NULL},
    {"size_bytes", T_LONGLONG, offsetof(Budget, size_bytes), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot budget_slots[] = {
    {Py_tp_new, budget_new}, {Py_tp_members, budget_members}, {Py_tp_dealloc, budget_dealloc}, {0, NULL}};
static PyType_Spec budget_spec = {
    "zkconsumer.topology.loop._loop.RecordCache", sizeof(Budget), 0, Py_TPFLAGS_DEFAULT, budget_slots};

/* A cache entry, owned by the dictionary. It is linked in the LRU list and, while it is dirty, in the list of dirty entries.
 *
 * The type does not support garbage collection, because an entry is never part of a reference cycle. Keys and data are bytes,
 * sources are input columns, and headers consist of str and bytes. None of them refers to a cache or to an entry. */
typedef struct Node Node;
struct Node {
    PyObject_HEAD PyObject *key, *data, *source, *headers; /* data, source and headers are NULL for None */
    Node *older, *newer, *before, *after;
    int64_t timestamp;
    long long row, size;
    char is_dirty;
};

static void node_dealloc(PyObject *object) {
    Node *self = (Node *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->key);
    Py_XDECREF(self->data);
    Py_XDECREF(self->source);
    Py_XDECREF(self->headers);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyMemberDef node_members[] = {
    {"key", T_OBJECT, offsetof(Node, key), READONLY, NULL},
    {"data", T_OBJECT, offsetof(Node, data), READONLY, NULL},
    {"source", T_OBJECT, offsetof(Node, source), READONLY, NULL},
    {"row", T_LONGLONG, offsetof(Node, row), READONLY, NULL},
    {"timestamp", T_LONGLONG, offsetof(Node, timestamp), READONLY, NULL},
    {"headers", T_OBJECT, offsetof(Node, headers), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot node_slots[] = {{Py_tp_members, node_members}, {Py_tp_dealloc, node_dealloc}, {0, NULL}};
static PyType_Spec node_spec = {
    "zkconsumer.topology.loop._loop.CachedChange", sizeof(Node), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, node_slots};

typedef struct {
    PyObject_HEAD PyObject *budget, *state, *miss, *evict, *serialize_key, *serialize_value, *deserialize_value;
    PyObject *nodes, *added, *last_source;
    Node *oldest, *newest, *first_dirty, *last_dirty;
    Py_ssize_t topic_chars;
    Codec key_codec, value_codec, read_codec;
} Entries;

static void unlink_use(Entries *self, Node *node) {
    *(node->older != NULL ? &node->older->newer : &self->oldest) = node->newer;
    *(node->newer != NULL ? &node->newer->older : &self->newest) = node->older;
}

static void link_newest(Entries *self, Node *node) {
    node->older = self->newest;
    node->newer = NULL;
    *(self->newest != NULL ? &self->newest->newer : &self->oldest) = node;
    self->newest = node;
}

static void unlink_dirty(Entries *self, Node *node) {
    *(node->before != NULL ? &node->before->after : &self->first_dirty) = node->after;
    *(node->after != NULL ? &node->after->before : &self->last_dirty) = node->before;
    node->is_dirty = 0;
}

static void link_dirty(Entries *self, Node *node) {
    node->before = self->last_dirty;
    node->after = NULL;
    *(self->last_dirty != NULL ? &self->last_dirty->after : &self->first_dirty) = node;
    self->last_dirty = node;
    node->is_dirty = 1;
}

static PyObject *entries_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"shared", "state", "conversions", "miss", "evict", NULL};
    Module *module = PyType_GetModuleState(type);
    PyObject *budget, *state, *conversions[3], *miss, *evict;
    int codecs[3];
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!O!(OOO(iii))OO:CacheEntries", names, module->budget_type, &budget, module->state_type, &state,
            &conversions[0], &conversions[1], &conversions[2], &codecs[0], &codecs[1], &codecs[2], &miss, &evict))
        return NULL;
    Codec opened[3] = {{0, NULL}, {0, NULL}, {0, NULL}};
    int failed = 0;
    for (int i = 0; i < 3; i++) failed = failed || codec_open(&opened[i], codecs[i]) < 0;
    PyObject *nodes = failed ? NULL : PyDict_New();
    Entries *self = nodes == NULL ? NULL : PyObject_GC_New(Entries, type);
    if (self == NULL) {
        for (int i = 0; i < 3; i++) Py_XDECREF((PyObject *)opened[i].pair);
        Py_XDECREF(nodes);
        return NULL;
    }
    PyObject *owned[] = {budget, state, miss, evict, conversions[0], conversions[1], conversions[2]};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) Py_INCREF(owned[i]);
    self->budget = budget;
    self->state = state;
    self->miss = miss;
    self->evict = evict;
    self->serialize_key = conversions[0];
    self->serialize_value = conversions[1];
    self->deserialize_value = conversions[2];
    self->nodes = nodes;
    self->added = self->last_source = NULL;
    self->oldest = self->newest = self->first_dirty = self->last_dirty = NULL;
    self->topic_chars = 0;
    self->key_codec = opened[0];
    self->value_codec = opened[1];
    self->read_codec = opened[2];
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static int entries_traverse(PyObject *object, visitproc visit, void *arg) {
    Entries *self = (Entries *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->budget);
    Py_VISIT(self->state);
    Py_VISIT(self->miss);
    Py_VISIT(self->evict);
    Py_VISIT(self->serialize_key);
    Py_VISIT(self->serialize_value);
    Py_VISIT(self->deserialize_value);
    Py_VISIT(self->nodes);
    Py_VISIT(self->added);
    Py_VISIT(self->last_source);
    Py_VISIT(self->key_codec.pair);
    Py_VISIT(self->value_codec.pair);
    Py_VISIT(self->read_codec.pair);
    return 0;
}

/* No tp_clear: clearing the dictionary of the StoreCache breaks the reference cycles, and the fields stay valid for calls. */
static void entries_dealloc(PyObject *object) {
    Entries *self = (Entries *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_DECREF(self->budget);
    Py_DECREF(self->state);
    Py_DECREF(self->miss);
    Py_DECREF(self->evict);
    Py_DECREF(self->serialize_key);
    Py_DECREF(self->serialize_value);
    Py_DECREF(self->deserialize_value);
    Py_DECREF(self->nodes);
    Py_XDECREF(self->added);
    Py_XDECREF(self->last_source);
    Py_XDECREF((PyObject *)self->key_codec.pair);
    Py_XDECREF((PyObject *)self->value_codec.pair);
    Py_XDECREF((PyObject *)self->read_codec.pair);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

/* Returns the node of a key (borrowed), or NULL if there is none; NULL with an error set if the lookup failed. */
static Node *entries_node(Entries *self, PyObject *key) {
    if (!PyBytes_CheckExact(key)) {
        reject_type(key, "key", "bytes");
        return NULL;
    }
    return (Node *)PyDict_GetItemWithError(self->nodes, key);
}

/* Adds an entry as most recently used; returns the node (borrowed), or NULL with an error set. */
static Node *entries_add(Entries *self, PyObject *key, PyObject *data, long long size) {
    Node *node = PyObject_New(Node, module_of(self)->node_type);
    if (node == NULL) return NULL;
    Py_INCREF(key);
    Py_XINCREF(data);
    node->key = key;
    node->data = data;
    node->source = node->headers = NULL;
    node->timestamp = node->row = 0;
    node->size = size;
    node->is_dirty = 0;
    int failed = self->added != NULL && self->added != Py_None && PyList_Append(self->added, key) < 0;
    failed = failed || PyDict_SetItem(self->nodes, key, (PyObject *)node) < 0;
    Py_DECREF(node);
    if (failed) return NULL;
    link_newest(self, node);
    ((Budget *)self->budget)->size_bytes += size;
    return node;
}

static int entries_limit(Entries *self) {
    Budget *budget = (Budget *)self->budget;
    if (budget->size_bytes <= budget->max_bytes) return 0;
    PyObject *result = PyObject_CallFunctionObjArgs(self->evict, NULL);
    if (result == NULL) return -1;
    Py_DECREF(result);
    return 0;
}

/* Returns the value for a key, or NULL without an error if there is none. */
static PyObject *entries_read(Entries *self, PyObject *key) {
    Node *node = entries_node(self, key);
    if (node != NULL) {
        if (node != self->newest) {
            unlink_use(self, node);
            link_newest(self, node);
        }
        Py_XINCREF(node->data);
        return node->data;
    }
    if (PyErr_Occurred()) return NULL;
    PyObject *data = PyObject_CallFunctionObjArgs(self->miss, key, NULL);
    if (data == NULL) return NULL;
    if (data == Py_None) {
        Py_DECREF(data);
        return NULL;
    }
    int failed = !PyBytes_CheckExact(data);
    if (failed) reject_type(data, "value", "bytes or None");
    if (!failed && entries_node(self, key) == NULL)
        failed = PyErr_Occurred() || entries_add(self, key, data, PyBytes_Size(key) + PyBytes_Size(data) + ENTRY_BYTES) == NULL;
    if (failed || entries_limit(self) < 0) {
        Py_DECREF(data);
        return NULL;
    }
    return data;
}

/* Returns the length of the topic name of a source, or -1 on error. */
static Py_ssize_t topic_chars(Entries *self, PyObject *source) {
    if (source == self->last_source) return self->topic_chars;
    PyObject *topic = PyObject_GetAttrString(source, "topic");
    Py_ssize_t size = topic == NULL ? -1 : PyObject_Size(topic);
    Py_XDECREF(topic);
    if (size < 0) return -1;
    PyObject *old = self->last_source;
    Py_INCREF(source);
    self->last_source = source;
    self->topic_chars = size;
    Py_XDECREF(old);
    return size;
}

/* Copies the headers of a record, and adds their size to `size`; returns NULL without an error if there are none. */
static PyObject *copy_cached_headers(Module *module, Record *record, long long *size) {
    PyObject *given = record->headers;
    if (given == NULL) return NULL;
    Py_INCREF(given); /* the calls below can run Python code, which can replace the headers of the record */
    PyObject *headers = PyObject_Size(given) <= 0 ? NULL : PySequence_Tuple(given);
    Py_DECREF(given);
    PyObject *count = headers == NULL ? NULL : PyObject_CallFunctionObjArgs(module->count_header_bytes, headers, NULL);
    long long bytes = count == NULL ? -1 : PyLong_AsLongLong(count);
    Py_XDECREF(count);
    if (bytes < 0) {
        Py_XDECREF(headers);
        return NULL;
    }
    *size += bytes;
    return headers;
}

/* Sets the value for a key in the context of a record; returns -1 on error. data, source and record are NULL for None. */
static int write_in_context(Entries *self, PyObject *key, PyObject *data, PyObject *source, PyObject *record) {
    Module *module = module_of(self);
    State *state = (State *)self->state;
    PyObject *headers = NULL;
    long long size = PyBytes_Size(key) + ENTRY_BYTES + (data == NULL ? 0 : PyBytes_Size(data));
    if (source != NULL) {
        Py_ssize_t chars = topic_chars(self, source);
        if (chars < 0) return -1;
        size += chars;
    }
    int has_record = record != NULL && Py_TYPE(record) == module->record_type;
    if (has_record) {
        headers = copy_cached_headers(module, (Record *)record, &size);
        if (PyErr_Occurred()) return -1;
    }
    Node *node = entries_node(self, key);
    if (node == NULL) {
        node = entries_add(self, key, data, size);
        if (node == NULL) {
            Py_XDECREF(headers);
            return -1;
        }
    } else {
        ((Budget *)self->budget)->size_bytes += size - node->size;
        node->size = size;
        if (node != self->newest) {
            unlink_use(self, node);
            link_newest(self, node);
        }
    }
    if (node->is_dirty) unlink_dirty(self, node);
    link_dirty(self, node);
    node->timestamp = has_record ? ((Record *)record)->timestamp : 0;
    node->row = has_record ? state->row : 0;
    PyObject *old_data = node->data, *old_source = node->source, *old_headers = node->headers;
    Py_XINCREF(data);
    Py_XINCREF(source);
    node->data = data;
    node->source = source;
    node->headers = headers;
    Py_XDECREF(old_data);
    Py_XDECREF(old_source);
    Py_XDECREF(old_headers);
    return entries_limit(self);
}

/* Sets the value for a key in the context of the current record; returns -1 on error. data is NULL for None. */
static int entries_write(Entries *self, PyObject *key, PyObject *data) {
    State *state = (State *)self->state;
    if (!PyBytes_CheckExact(key)) return reject_type(key, "key", "bytes");
    /* Headers and sources are Python objects, and their methods can change the state. */
    PyObject *source = state->source == Py_None ? NULL : state->source, *record = state->record;
    Py_XINCREF(source);
    Py_XINCREF(record);
    int result = write_in_context(self, key, data, source, record);
    Py_XDECREF(source);
    Py_XDECREF(record);
    return result;
}

static PyObject *entries_get(PyObject *object, PyObject *key) {
    Entries *self = (Entries *)object;
    PyObject *raw = serialize_object(self->key_codec, self->serialize_key, key);
    if (raw == NULL) return NULL;
    PyObject *data = entries_read(self, raw);
    Py_DECREF(raw);
    if (data == NULL) {
        if (PyErr_Occurred()) return NULL;
        return Py_NewRef(Py_None);
    }
    PyObject *value = deserialize_object(self->read_codec, self->deserialize_value, data);
    Py_DECREF(data);
    return value;
}

/* Gets the two arguments of a call; returns -1 with an error set if there are not exactly two. */
static int two_arguments(PyObject *args, PyObject **first, PyObject **second) {
    if (PyTuple_Size(args) != 2) {
        PyErr_SetString(PyExc_TypeError, "expected two arguments");
        return -1;
    }
    *first = PyTuple_GetItem(args, 0);
    *second = PyTuple_GetItem(args, 1);
    return 0;
}

static PyObject *entries_put_raw(PyObject *object, PyObject *args) {
    PyObject *key, *data;
    if (two_arguments(args, &key, &data) < 0) return NULL;
    if (data != Py_None && !PyBytes_CheckExact(data)) {
        reject_type(data, "value", "bytes or None");
        return NULL;
    }
    if (entries_write((Entries *)object, key, data == Py_None ? NULL : data) < 0) return NULL;
    return Py_NewRef(Py_None);
}

static PyObject *entries_put(PyObject *object, PyObject *args) {
    Entries *self = (Entries *)object;
    PyObject *key, *value, *data = NULL;
    if (two_arguments(args, &key, &value) < 0) return NULL;
    PyObject *raw = serialize_object(self->key_codec, self->serialize_key, key);
    if (raw == NULL) return NULL;
    int failed = 0;
    if (value != Py_None) {
        data = serialize_object(self->value_codec, self->serialize_value, value);
        failed = data == NULL;
        if (data != NULL && data != Py_None && !PyBytes_CheckExact(data)) {
            reject_type(data, "value", "bytes or None");
            failed = 1;
        }
    }
    failed = failed || entries_write(self, raw, data == Py_None ? NULL : data) < 0;
    Py_DECREF(raw);
    Py_XDECREF(data);
    if (failed) return NULL;
    return Py_NewRef(Py_None);
}

static PyObject *entries_get_raw(PyObject *object, PyObject *key) {
    PyObject *data = entries_read((Entries *)object, key);
    if (data != NULL || PyErr_Occurred()) return data;
    return Py_NewRef(Py_None);
}

static PyObject *or_none(PyObject *object) { return object == NULL ? Py_None : object; }

static PyObject *entries_find(PyObject *object, PyObject *key) {
    Entries *self = (Entries *)object;
    Node *node = entries_node(self, key);
    if (node == NULL) {
        if (PyErr_Occurred()) return NULL;
        return Py_NewRef(Py_None);
    }
    unlink_use(self, node);
    link_newest(self, node);
    /* The allocation can run finalizers, which can remove the entry. */
    PyObject *found = node->key, *data = or_none(node->data);
    Py_INCREF(found);
    Py_INCREF(data);
    return Py_BuildValue("(NN)", found, data);
}

/* Returns a copy of a dirty entry, which is not affected by later calls. */
static PyObject *change_of(const Node *node) {
    Node *self = PyObject_New(Node, Py_TYPE((PyObject *)node));
    if (self == NULL) return NULL;
    Py_INCREF(node->key);
    Py_XINCREF(node->data);
    Py_XINCREF(node->source);
    Py_XINCREF(node->headers);
    self->key = node->key;
    self->data = node->data;
    self->source = node->source;
    self->headers = node->headers;
    self->timestamp = node->timestamp;
    self->row = node->row;
    self->size = node->size;
    self->is_dirty = 0;
    return (PyObject *)self;
}

/* Restores the changes that a failed take_dirty() took from the first dirty entries. */
static void restore_changes(Entries *self, PyObject *changes) {
    Node *node = self->first_dirty;
    for (Py_ssize_t i = 0; i < PyList_Size(changes); i++, node = node->after) {
        Node *change = (Node *)PyList_GetItem(changes, i);
        node->source = Py_XNewRef(change->source);
        node->headers = Py_XNewRef(change->headers);
        node->is_dirty = 1;
    }
}

/* Each entry is visited once, because most entries are not in the CPU's cache. The entries stay linked until all changes are
 * copied, so that a failed allocation loses none. The copies own the sources and headers, so no finalizer runs in the loop. */
static PyObject *entries_take_dirty(PyObject *object, PyObject *Py_UNUSED(unused)) {
    Entries *self = (Entries *)object;
    PyObject *found = PyList_New(0);
    if (found == NULL) return NULL;
    for (Node *node = self->first_dirty; node != NULL; node = node->after) {
        PyObject *change = change_of(node);
        int failed = change == NULL || PyList_Append(found, change) < 0;
        Py_XDECREF(change);
        if (failed) {
            restore_changes(self, found);
            Py_DECREF(found);
            return NULL;
        }
        Py_CLEAR(node->source);
        Py_CLEAR(node->headers);
        node->is_dirty = 0;
    }
    self->first_dirty = self->last_dirty = NULL;
    Py_CLEAR(self->last_source);
    return found;
}

/* Removes an entry from the lists and the dictionary; returns -1 on error. */
static int entries_remove(Entries *self, Node *node) {
    if (node->is_dirty) unlink_dirty(self, node);
    unlink_use(self, node);
    PyObject *key = node->key;
    Py_INCREF(key);
    int failed = PyDict_DelItem(self->nodes, key) < 0;
    Py_DECREF(key);
    return failed ? -1 : 0;
}

static PyObject *entries_pop_oldest(PyObject *object, PyObject *Py_UNUSED(unused)) {
    Entries *self = (Entries *)object;
    for (;;) {
        Node *node = self->oldest;
        if (node == NULL) return Py_NewRef(Py_None);
        PyObject *change = node->is_dirty ? change_of(node) : (Py_INCREF(Py_None), Py_None);
        if (change == NULL) return NULL;
        Py_INCREF((PyObject *)node); /* the allocation can run finalizers, which can remove the entry */
        PyObject *key = node->key;
        Py_INCREF(key);
        PyObject *result = Py_BuildValue("(OLN)", key, node->size, change);
        int is_oldest = node == self->oldest;
        Py_DECREF((PyObject *)node);
        Py_DECREF(key);
        if (result == NULL) return NULL;
        if (is_oldest) {
            if (entries_remove(self, node) < 0) Py_CLEAR(result);
            return result;
        }
        Py_DECREF(result);
    }
}

static PyObject *entries_drop_deleted(PyObject *object, PyObject *key) {
    Entries *self = (Entries *)object;
    Node *node = entries_node(self, key);
    if (node == NULL && PyErr_Occurred()) return NULL;
    if (node == NULL || node->data != NULL || node->is_dirty) return PyLong_FromLong(0);
    long long size = node->size;
    if (entries_remove(self, node) < 0) return NULL;
    return PyLong_FromLongLong(size);
}

static PyObject *entries_keys(PyObject *object, PyObject *Py_UNUSED(unused)) {
    PyObject *found = PyList_New(0);
    for (Node *node = ((Entries *)object)->oldest; found != NULL && node != NULL; node = node->newer)
        if (PyList_Append(found, node->key) < 0) Py_CLEAR(found);
    return found;
}

static PyObject *entries_clear_all(PyObject *object, PyObject *Py_UNUSED(unused)) {
    Entries *self = (Entries *)object;
    PyObject *nodes = PyDict_New(), *old = self->nodes, *source = self->last_source;
    if (nodes == NULL) return NULL;
    for (Node *node = self->oldest; node != NULL; node = node->newer) ((Budget *)self->budget)->size_bytes -= node->size;
    self->nodes = nodes;
    self->last_source = NULL;
    self->oldest = self->newest = self->first_dirty = self->last_dirty = NULL;
    Py_DECREF(old);
    Py_XDECREF(source);
    return Py_NewRef(Py_None);
}

static Py_ssize_t entries_length(PyObject *object) { return PyDict_Size(((Entries *)object)->nodes); }

static PyObject *entries_is_dirty(PyObject *object, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(((Entries *)object)->first_dirty != NULL);
}

static PyMethodDef entries_methods[] = {
    {"get", entries_get, METH_O, "Return the deserialized value for a key."},
    {"put", entries_put, METH_VARARGS, "Serialize and set the value for a key."},
    {"get_raw", entries_get_raw, METH_O, "Return the serialized value for a key."},
    {"put_raw", entries_put_raw, METH_VARARGS, "Set the serialized value for a key."},
    {"find", entries_find, METH_O, "Return a cached key and its serialized value."},
    {"take_dirty", entries_take_dirty, METH_NOARGS, "Return all unflushed changes."},
    {"pop_oldest", entries_pop_oldest, METH_NOARGS, "Remove the least recently used entry."},
    {"drop_deleted", entries_drop_deleted, METH_O, "Remove the entry of a deleted key."},
    {"keys", entries_keys, METH_NOARGS, "Return the keys, least recently used first."},
    {"clear", entries_clear_all, METH_NOARGS, "Remove all entries."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef entries_members[] = {
    {"added", T_OBJECT, offsetof(Entries, added), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef entries_properties[] = {
    {"is_dirty", entries_is_dirty, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot entries_slots[] = {
    {Py_tp_new, entries_new},
    {Py_tp_methods, entries_methods},
    {Py_tp_members, entries_members},
    {Py_tp_getset, entries_properties},
    {Py_tp_traverse, entries_traverse},
    {Py_tp_dealloc, entries_dealloc},
    {Py_sq_length, entries_length},
    {0, NULL},
};
static PyType_Spec entries_spec = {
    "zkconsumer.topology.loop._loop.CacheEntries", sizeof(Entries), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, entries_slots};

/* Callables and settings of a forward_changes() call. */
typedef struct {
    PyObject *read, *write, *decode_key, *decode_value, *listener;
    PyTypeObject *change;
    int sends_old_values;
} Flush;

static PyObject *deserialize_with(Module *module, PyObject *deserialize, PyObject *data) {
    if (Py_TYPE(deserialize) != module->deserializer_type)
        return PyObject_CallFunctionObjArgs(deserialize, data, NULL);
    return deserialize_object(((Conversion *)deserialize)->codec, ((Conversion *)deserialize)->otherwise, data);
}

static PyObject *value_or_none(Module *module, const Flush *flush, PyObject *data) {
    if (data != NULL && data != Py_None) return deserialize_with(module, flush->decode_value, data);
    Py_INCREF(Py_None);
    return Py_None;
}

/* Returns the record that the listener receives. */
static PyObject *change_record(Module *module, const Flush *flush, const Node *node, PyObject *old) {
    PyObject *old_value = value_or_none(module, flush, flush->sends_old_values ? old : NULL);
    PyObject *const items[] = {old_value == NULL ? NULL : value_or_none(module, flush, node->data), old_value};
    PyObject *pair = create_tuple(flush->change, items, 2);
    if (pair == NULL) return NULL;
    PyObject *record = NULL, *key = deserialize_with(module, flush->decode_key, node->key);
    if (key != NULL) record = record_create(module->record_type, key, pair, node->timestamp);
    Py_XDECREF(key);
    Py_DECREF(pair);
    if (record != NULL && record_set_headers((Record *)record, node->headers) < 0) Py_CLEAR(record);
    return record;
}

/* Writes and forwards one change; returns -1 on error. */
static int forward_change(Module *module, State *state, const Flush *flush, const Node *node) {
    PyObject *old = NULL, *written = NULL, *answer = NULL;
    if ((node->data == NULL || flush->sends_old_values) &&
        (old = PyObject_CallFunctionObjArgs(flush->read, node->key, NULL)) == NULL)
        return -1;
    if (node->data == NULL && old == Py_None) {
        Py_DECREF(old);
        return 0;
    }
    PyObject *source = state->source;
    Py_XINCREF(node->source);
    state->source = node->source;
    state->row = node->row;
    Py_XDECREF(source);
    PyObject *record = change_record(module, flush, node, old);
    Py_XDECREF(old);
    if (record == NULL) return -1;
    Py_XDECREF(state_swap_record(state, record));
    written = PyObject_CallFunctionObjArgs(flush->write, node->key, or_none(node->data), NULL);
    if (written != NULL) answer = PyObject_CallFunctionObjArgs(flush->listener, record, NULL);
    int failed = answer == NULL;
    Py_XDECREF(written);
    Py_XDECREF(answer);
    Py_DECREF(record);
    return failed ? -1 : 0;
}

static PyObject *forward_changes(PyObject *module_object, PyObject *args) {
    Module *module = PyModule_GetState(module_object);
    PyObject *state, *changes, *backing;
    Flush flush;
    /* Not a nested format, which would borrow the functions from a list that one of them can change. */
    if (!PyArg_ParseTuple(
            args, "O!O!O!OO!p:forward_changes", module->state_type, &state, &PyList_Type, &changes, &PyTuple_Type, &backing,
            &flush.listener, &PyType_Type, &flush.change, &flush.sends_old_values))
        return NULL;
    if (!PyArg_ParseTuple(backing, "OOOO", &flush.read, &flush.write, &flush.decode_key, &flush.decode_value)) return NULL;
    if (!PyType_IsSubtype(flush.change, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "change_type must be a subclass of tuple");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(changes); i++) {
        PyObject *node = PyList_GetItem(changes, i);
        if (Py_TYPE(node) != module->node_type) return PyErr_Format(PyExc_TypeError, "changes must contain only CachedChange objects, got %R", node);
        Py_INCREF(node); /* a listener can change the list */
        int failed = forward_change(module, (State *)state, &flush, (Node *)node) < 0;
        Py_DECREF(node);
        if (failed) return NULL;
    }
    return Py_NewRef(Py_None);
}

/* ---- aggregation ------------------------------------------------------------------------------ */

/* Aggregates the values of each key in a timestamped store. NULL stands for None. */
typedef struct {
    PyObject_HEAD PyObject *get, *put, *initializer, *aggregator, *forward, *drop;
    PyTypeObject *pair, *change;
    int sends_old;
} Aggregator;

static PyObject *null_if_none(PyObject *object) { return object == Py_None ? NULL : object; }

static PyObject *aggregator_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"store", "functions", "pair_type", "changes", "drop", NULL};
    PyObject *get, *put, *initializer, *aggregator, *forward, *drop;
    PyTypeObject *pair, *change;
    int sends_old;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "(OO)(OO)O!(OO!p)O:RecordAggregator", names, &get, &put, &initializer, &aggregator, &PyType_Type, &pair,
            &forward, &PyType_Type, &change, &sends_old, &drop))
        return NULL;
    if (!PyType_IsSubtype(pair, &PyTuple_Type) || !PyType_IsSubtype(change, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "pair_type and change_type must be subclasses of tuple");
        return NULL;
    }
    Aggregator *self = PyObject_GC_New(Aggregator, type);
    if (self == NULL) return NULL;
    self->get = get;
    self->put = put;
    self->initializer = null_if_none(initializer);
    self->aggregator = null_if_none(aggregator);
    self->forward = null_if_none(forward);
    self->drop = drop;
    self->pair = pair;
    self->change = change;
    self->sends_old = sends_old;
    PyObject *owned[] = {get, put, self->initializer, self->aggregator, self->forward, drop, (PyObject *)pair, (PyObject *)change};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) Py_XINCREF(owned[i]);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* Checks the result of a store, and returns the value (borrowed) of a ValueAndTimestamp, or None; NULL on error. */
static PyObject *aggregator_value(PyObject *found, const char *name) {
    if (found == Py_None) return found;
    if (PyTuple_Check(found) && PyTuple_Size(found) == 2) return PyTuple_GetItem(found, 0);
    PyErr_Format(PyExc_TypeError, "%s() must return a ValueAndTimestamp or None, got %R", name, (PyObject *)Py_TYPE(found));
    return NULL;
}

/* Returns the stored aggregate of a key, or None; sets `timestamp` if there is one. */
static PyObject *aggregator_find(Aggregator *self, PyObject *key, int64_t *timestamp) {
    PyObject *found = PyObject_CallFunctionObjArgs(self->get, key, NULL);
    PyObject *old = found == NULL ? NULL : aggregator_value(found, "get");
    Py_XINCREF(old);
    if (old != NULL && old != Py_None) {
        *timestamp = PyLong_AsLongLong(PyTuple_GetItem(found, 1));
        if (*timestamp == -1 && PyErr_Occurred()) Py_CLEAR(old);
    }
    Py_XDECREF(found);
    return old;
}

static PyObject *add_one(PyObject *number) {
    int64_t value;
    if (parse_integer(number, INT64_MIN, INT64_MAX - 1, &value)) return PyLong_FromLongLong(value + 1);
    PyObject *one = PyLong_FromLong(1);
    PyObject *sum = one == NULL ? NULL : PyNumber_Add(number, one);
    Py_XDECREF(one);
    return sum;
}

/* Returns the new aggregate. */
static PyObject *aggregator_combine(Aggregator *self, PyObject *key, PyObject *value, PyObject *old) {
    if (self->aggregator == NULL) return add_one(old);
    if (old != Py_None || self->initializer != NULL)
        return PyObject_CallFunctionObjArgs(self->aggregator, key, value, old, NULL);
    Py_INCREF(value);
    return value;
}

/* Stores the aggregate of a key, or of a key and window; `start` is NULL without a window. Returns -1 on error. */
static int aggregator_put(Aggregator *self, PyObject *key, PyObject *start, PyObject *new, int64_t timestamp) {
    PyObject *pair = new;
    Py_INCREF(new);
    if (new != Py_None) {
        PyObject *const items[] = {new, PyLong_FromLongLong(timestamp)};
        pair = create_tuple(self->pair, items, 2);
        if (pair == NULL) return -1;
    }
    PyObject *result = PyObject_CallFunctionObjArgs(self->put, key, pair, start, NULL);
    Py_DECREF(pair);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Forwards a change; returns -1 on error. */
static int aggregator_forward(Aggregator *self, PyObject *const fields[3], int64_t timestamp, PyObject *headers) {
    PyObject *const items[] = {fields[1], self->sends_old ? fields[2] : Py_None, Py_True};
    for (int i = 0; i < 3; i++) Py_INCREF(items[i]);
    PyObject *change = create_tuple(self->change, items, 3), *result = NULL;
    if (change == NULL) return -1;
    PyObject *record = record_create(module_of(self)->record_type, fields[0], change, timestamp);
    Py_DECREF(change);
    if (record != NULL && record_set_headers((Record *)record, headers) == 0)
        result = PyObject_CallFunctionObjArgs(self->forward, record, NULL);
    Py_XDECREF(record);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Aggregates a value; returns -1 on error. */
static int aggregator_update(Aggregator *self, PyObject *key, PyObject *value, int64_t timestamp, PyObject *headers) {
    int64_t latest = INT64_MIN;
    PyObject *old = aggregator_find(self, key, &latest);
    if (old == Py_None && self->initializer != NULL) {
        Py_DECREF(old);
        old = PyObject_CallFunctionObjArgs(self->initializer, NULL);
    }
    PyObject *new = old == NULL ? NULL : aggregator_combine(self, key, value, old);
    if (latest > timestamp) timestamp = latest;
    int failed = new == NULL || aggregator_put(self, key, NULL, new, timestamp) < 0;
    if (!failed && self->forward != NULL) {
        PyObject *const fields[] = {key, new, old};
        failed = aggregator_forward(self, fields, timestamp, headers) < 0;
    }
    Py_XDECREF(old);
    Py_XDECREF(new);
    return failed ? -1 : 0;
}

/* Checks the argument of a call; returns NULL on error. */
static Record *aggregator_record(Aggregator *self, PyObject *argument) {
    if (Py_TYPE(argument) != module_of(self)->record_type) {
        PyErr_Format(PyExc_TypeError, "record must be a Record, got %R", (PyObject *)Py_TYPE(argument));
        return NULL;
    }
    return record_is_whole((Record *)argument) ? (Record *)argument : NULL;
}

static PyObject *aggregator_drop(Aggregator *self, PyObject *record) {
    PyObject *result = PyObject_CallFunctionObjArgs(self->drop, record, NULL);
    if (result == NULL) return NULL;
    Py_DECREF(result);
    return Py_NewRef(Py_None);
}

static PyObject *aggregator_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    Aggregator *self = (Aggregator *)object;
    PyObject *argument = only_argument(args, kwargs, "record");
    Record *record = argument == NULL ? NULL : aggregator_record(self, argument);
    if (record == NULL) return NULL;
    if (record->key == Py_None || record->value == Py_None) return aggregator_drop(self, argument);
    /* The functions called below can change the record. */
    PyObject *key = record->key, *value = record->value, *headers = record->headers;
    Py_INCREF(key);
    Py_INCREF(value);
    Py_XINCREF(headers);
    int failed = aggregator_update(self, key, value, record->timestamp, headers);
    Py_DECREF(key);
    Py_DECREF(value);
    Py_XDECREF(headers);
    if (failed) return NULL;
    return Py_NewRef(Py_None);
}

static int aggregator_traverse(PyObject *object, visitproc visit, void *arg) {
    Aggregator *self = (Aggregator *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->get);
    Py_VISIT(self->put);
    Py_VISIT(self->initializer);
    Py_VISIT(self->aggregator);
    Py_VISIT(self->forward);
    Py_VISIT(self->drop);
    Py_VISIT(self->pair);
    Py_VISIT(self->change);
    return 0;
}

/* No tp_clear: clearing the dictionary of the processor breaks the reference cycles, and the fields stay valid for calls. */
static void aggregator_free(PyObject *object) {
    Aggregator *self = (Aggregator *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_DECREF(self->get);
    Py_DECREF(self->put);
    Py_XDECREF(self->initializer);
    Py_XDECREF(self->aggregator);
    Py_XDECREF(self->forward);
    Py_DECREF(self->drop);
    Py_DECREF((PyObject *)self->pair);
    Py_DECREF((PyObject *)self->change);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static void aggregator_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    aggregator_free(object);
}

static PyType_Slot aggregator_slots[] = {
    {Py_tp_new, aggregator_new},
    {Py_tp_call, aggregator_call},
    {Py_tp_traverse, aggregator_traverse},
    {Py_tp_dealloc, aggregator_dealloc},
    {0, NULL},
};
static PyType_Spec aggregator_spec = {
    "zkconsumer.topology.loop._loop.RecordAggregator", sizeof(Aggregator), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, aggregator_slots};

/* ---- aggregation by window ---------------------------------------------------------------------- */

/* Aggregates the values of each key and window in a timestamped window store. `get` and `put` also take the window start. */
typedef struct {
    Aggregator base;
    PyTypeObject *windowed;
    PyObject *observed, *drop_closed;
    int64_t size, advance, grace;
} WindowAggregator;

static PyObject *windows_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"store", "functions", "types", "changes", "drop", "windows", NULL};
    PyObject *get, *put, *initializer, *aggregator, *forward, *drop, *drop_closed, *observed;
    PyTypeObject *pair, *windowed, *change;
    int sends_old;
    long long size, advance, grace;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "(OO)(OO)(O!O!O!)(Op)(OO)(OLLL):WindowAggregator", names, &get, &put, &initializer, &aggregator,
            &PyType_Type, &pair, &PyType_Type, &change, &PyType_Type, &windowed, &forward, &sends_old, &drop, &drop_closed,
            &observed, &size, &advance, &grace))
        return NULL;
    if (!PyType_IsSubtype(pair, &PyTuple_Type) || !PyType_IsSubtype(change, &PyTuple_Type) || !PyType_IsSubtype(windowed, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "types must be subclasses of tuple");
        return NULL;
    }
    if (advance < 1 || size < advance || grace < 0) {
        PyErr_SetString(PyExc_ValueError, "windows must have a positive size, an advance of at most the size, and no negative grace period");
        return NULL;
    }
    WindowAggregator *self = PyObject_GC_New(WindowAggregator, type);
    if (self == NULL) return NULL;
    self->base.get = get;
    self->base.put = put;
    self->base.initializer = initializer;
    self->base.aggregator = null_if_none(aggregator);
    self->base.forward = null_if_none(forward);
    self->base.drop = drop;
    self->base.pair = pair;
    self->base.change = change;
    self->base.sends_old = sends_old;
    self->windowed = windowed;
    self->observed = observed;
    self->drop_closed = drop_closed;
    self->size = size;
    self->advance = advance;
    self->grace = grace;
    PyObject *owned[] = {get, put, initializer, self->base.aggregator, self->base.forward, drop, (PyObject *)pair,
                         (PyObject *)change, (PyObject *)windowed, observed, drop_closed};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) Py_XINCREF(owned[i]);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* Returns the stored aggregate of a window, or the initial one; increases `timestamp` to that of the stored aggregate. */
static PyObject *windows_find(WindowAggregator *self, PyObject *key, PyObject *start, int64_t *timestamp) {
    PyObject *found = PyObject_CallFunctionObjArgs(self->base.get, key, start, NULL);
    PyObject *old = found == NULL ? NULL : aggregator_value(found, "fetch");
    if (old != NULL && found == Py_None) {
        old = PyObject_CallFunctionObjArgs(self->base.initializer, NULL);
    } else if (old != NULL) {
        Py_INCREF(old);
        int64_t latest = PyLong_AsLongLong(PyTuple_GetItem(found, 1));
        if (latest == -1 && PyErr_Occurred()) Py_CLEAR(old);
        if (latest > *timestamp) *timestamp = latest;
    }
    Py_XDECREF(found);
    return old;
}

/* A record, with owned references, because the functions that are called can change the record. */
typedef struct {
    PyObject *key, *value, *headers;
    int64_t timestamp;
} Input;

/* Adds a value to the window with this start; returns -1 on error. */
static int windows_add(WindowAggregator *self, const Input *input, PyObject *start, uint64_t end) {
    int64_t timestamp = input->timestamp;
    PyObject *old = windows_find(self, input->key, start, &timestamp);
    PyObject *new = old == NULL ? NULL : aggregator_combine(&self->base, input->key, input->value, old);
    int failed = new == NULL || aggregator_put(&self->base, input->key, start, new, timestamp) < 0;
    if (!failed && self->base.forward != NULL) {
        Py_INCREF(input->key);
        Py_INCREF(start);
        PyObject *const items[] = {input->key, start, PyLong_FromUnsignedLongLong(end)};
        PyObject *key = create_tuple(self->windowed, items, 3);
        PyObject *const fields[] = {key, new, old};
        failed = key == NULL || aggregator_forward(&self->base, fields, timestamp, input->headers) < 0;
        Py_XDECREF(key);
    }
    Py_XDECREF(old);
    Py_XDECREF(new);
    return failed ? -1 : 0;
}

/* Adds a value to the windows of a record that end after `close`; returns -1 on error. */
static int windows_update(WindowAggregator *self, const Input *input, int64_t close) {
    int64_t overlap = self->size - self->advance;
    uint64_t first = input->timestamp > overlap ? (uint64_t)(input->timestamp - overlap) : 0;
    first -= first % (uint64_t)self->advance;
    for (uint64_t start = first; start <= (uint64_t)input->timestamp; start += (uint64_t)self->advance) {
        uint64_t end = start + (uint64_t)self->size;
        if (close >= 0 && end <= (uint64_t)close) {
            PyObject *result = PyObject_CallFunctionObjArgs(self->drop_closed, NULL);
            if (result == NULL) return -1;
            Py_DECREF(result);
            continue;
        }
        PyObject *number = PyLong_FromUnsignedLongLong(start);
        int failed = number == NULL || windows_add(self, input, number, end) < 0;
        Py_XDECREF(number);
        if (failed) return -1;
    }
    return 0;
}

/* Advances the observed stream time, and sets the time at which windows are closed; returns -1 on error. */
static int windows_observe(WindowAggregator *self, int64_t timestamp, int64_t *close) {
    PyObject *value = PyObject_GetAttrString(self->observed, "value");
    if (value == NULL) return -1;
    int64_t observed = PyLong_AsLongLong(value);
    Py_DECREF(value);
    if (observed == -1 && PyErr_Occurred()) return -1;
    if (timestamp > observed) {
        observed = timestamp;
        if ((value = PyLong_FromLongLong(observed)) == NULL) return -1;
        int failed = PyObject_SetAttrString(self->observed, "value", value) < 0;
        Py_DECREF(value);
        if (failed) return -1;
    }
    *close = observed < 0 ? -1 : observed - self->grace;
    return 0;
}

/* Adds the value of a record to its windows; `close` is NULL if it follows from the observed stream time. */
static PyObject *windows_run(WindowAggregator *self, Record *record, const int64_t *close) {
    /* The functions called below can change the record. */
    Input input = {record->key, record->value, record->headers, record->timestamp};
    Py_INCREF(input.key);
    Py_INCREF(input.value);
    Py_XINCREF(input.headers);
    int64_t observed = close == NULL ? 0 : *close;
    int failed = (close == NULL && windows_observe(self, input.timestamp, &observed) < 0) || windows_update(self, &input, observed) < 0;
    Py_DECREF(input.key);
    Py_DECREF(input.value);
    Py_XDECREF(input.headers);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *windows_update_method(PyObject *object, PyObject *args) {
    WindowAggregator *self = (WindowAggregator *)object;
    PyObject *argument;
    long long close;
    if (!PyArg_ParseTuple(args, "OL:update", &argument, &close)) return NULL;
    Record *record = aggregator_record(&self->base, argument);
    int64_t close_ms = close;
    return record == NULL ? NULL : windows_run(self, record, &close_ms);
}

static PyObject *windows_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    WindowAggregator *self = (WindowAggregator *)object;
    PyObject *argument = only_argument(args, kwargs, "record");
    Record *record = argument == NULL ? NULL : aggregator_record(&self->base, argument);
    if (record == NULL) return NULL;
    return record->key == Py_None ? aggregator_drop(&self->base, argument) : windows_run(self, record, NULL);
}

static int windows_traverse(PyObject *object, visitproc visit, void *arg) {
    WindowAggregator *self = (WindowAggregator *)object;
    Py_VISIT((PyObject *)self->windowed);
    Py_VISIT(self->observed);
    Py_VISIT(self->drop_closed);
    return aggregator_traverse(object, visit, arg);
}

static void windows_dealloc(PyObject *object) {
    WindowAggregator *self = (WindowAggregator *)object;
    PyObject_GC_UnTrack(object);
    Py_DECREF((PyObject *)self->windowed);
    Py_DECREF(self->observed);
    Py_DECREF(self->drop_closed);
    aggregator_free(object);
}

static PyMethodDef windows_methods[] = {
    {"update", windows_update_method, METH_VARARGS, "Add a value to the windows of a record that end after a time."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot windows_slots[] = {
    {Py_tp_new, windows_new},
    {Py_tp_call, windows_call},
    {Py_tp_methods, windows_methods},
    {Py_tp_traverse, windows_traverse},
    {Py_tp_dealloc, windows_dealloc},
    {0, NULL},
};
static PyType_Spec windows_spec = {
    "zkconsumer.topology.loop._loop.WindowAggregator", sizeof(WindowAggregator), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    windows_slots};

/* ---- the loop ------------------------------------------------------------------------------- */

/* A timestamp column: a buffer of int64 values, or a sequence of ints. */
typedef struct {
    Py_buffer view;
    const char *numbers; /* NULL if the column is a sequence */
    PyObject *sequence;
    Py_ssize_t rows;
} Timestamps;

static int timestamps_open(Timestamps *self, PyObject *object) {
    self->numbers = NULL;
    self->sequence = object;
    self->view.obj = NULL;
    if (!PyList_Check(object) && !PyTuple_Check(object) && PyObject_CheckBuffer(object)) {
        if (PyObject_GetBuffer(object, &self->view, PyBUF_ND | PyBUF_FORMAT) < 0) return -1;
        const char *format = self->view.format;
        if (self->view.itemsize == 8 && self->view.ndim == 1 && format != NULL && (!strcmp(format, "q") || !strcmp(format, "l"))) {
            self->numbers = self->view.buf;
            self->rows = self->view.len / 8;
            return 0;
        }
        PyBuffer_Release(&self->view);
        self->view.obj = NULL;
    }
    return (self->rows = PySequence_Size(object)) < 0 ? -1 : 0;
}

static void timestamps_close(Timestamps *self) {
    if (self->view.obj != NULL) PyBuffer_Release(&self->view);
}

/* Returns the timestamp of a row, or -1 on error. */
static int64_t timestamps_get(const Timestamps *self, Module *module, Py_ssize_t row) {
    if (self->numbers != NULL) {
        int64_t number;
        memcpy(&number, self->numbers + row * 8, 8);
        if (number >= 0) return number;
    }
    PyObject *item = PySequence_GetItem(self->sequence, row);
    if (item == NULL) return -1;
    int64_t number = to_timestamp(module, item);
    Py_DECREF(item);
    return number;
}

/* Returns whether the timestamp of a row is negative, or -1 on error. */
static int timestamps_is_negative(const Timestamps *self, Py_ssize_t row) {
    if (self->numbers != NULL) {
        int64_t number;
        memcpy(&number, self->numbers + row * 8, 8);
        return number < 0;
    }
    PyObject *item = PySequence_GetItem(self->sequence, row);
    if (item == NULL) return -1;
    int overflow = 0, result = -1;
    if (PyLong_Check(item)) {
        long long number = PyLong_AsLongLongAndOverflow(item, &overflow);
        result = overflow < 0 || (overflow == 0 && number < 0);
    } else {
        PyErr_Format(PyExc_TypeError, "a timestamp must be an integer, got %R", item);
    }
    Py_DECREF(item);
    return result;
}

static PyObject *has_negative(PyObject *Py_UNUSED(module), PyObject *object) {
    Timestamps times;
    if (timestamps_open(&times, object) < 0) return NULL;
    int found = 0;
    for (Py_ssize_t row = 0; row < times.rows && !found; row++) found = timestamps_is_negative(&times, row);
    timestamps_close(&times);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

/* Returns the row count of a column, or -1 on error. */
static Py_ssize_t column_size(PyObject *column) {
    if (PyList_Check(column)) return PyList_Size(column);
    PyErr_SetString(PyExc_TypeError, "keys and values must be lists");
    return -1;
}

/* Processes a row; returns -1 on error. */
static int run_row(
    Module *module, State *state, PyObject *keys, PyObject *values, int64_t timestamp, PyObject *headers, PyObject *children) {
    Py_ssize_t row = (Py_ssize_t)state->row;
    /* A processor can change the lists. */
    PyObject *key = PyList_GetItem(keys, row), *value = key == NULL ? NULL : PyList_GetItem(values, row);
    if (value == NULL) return -1;
    PyObject *record = record_create(module->record_type, key, value, timestamp);
    if (record == NULL) return -1;
    int failed = 0;
    if (headers != Py_None) {
        PyObject *of_row = PySequence_GetItem(headers, row);
        failed = of_row == NULL || record_set_headers((Record *)record, of_row) < 0;
        Py_XDECREF(of_row);
    }
    Py_XDECREF(state_swap_record(state, record));
    failed = failed || call_nodes(module, children, record) < 0;
    Py_DECREF(record);
    return failed ? -1 : 0;
}

static PyObject *run_rows(PyObject *module_object, PyObject *args) {
    Module *module = PyModule_GetState(module_object);
    State *state;
    PyObject *columns, *children;
    Py_ssize_t stop;
    long long before_ms;
    /* Not a nested format, which would borrow the items of a list that a processor can change. */
    if (!PyArg_ParseTuple(
            args, "O!O!nLO!:run_rows", module->state_type, &state, &PyTuple_Type, &columns, &stop, &before_ms, &PyList_Type,
            &children))
        return NULL;
    if (PyTuple_Size(columns) != 4)
        return PyErr_Format(PyExc_ValueError, "expected 4 columns, got %zd", PyTuple_Size(columns));
    PyObject *keys = PyTuple_GetItem(columns, 0), *values = PyTuple_GetItem(columns, 1), *headers = PyTuple_GetItem(columns, 3);
    Py_ssize_t n_keys = column_size(keys), n_values = n_keys < 0 ? -1 : column_size(values);
    Timestamps times;
    if (n_values < 0 || timestamps_open(&times, PyTuple_GetItem(columns, 2)) < 0) return NULL;
    PyObject *result = NULL;
    long long first = state->row;
    if (first < 0 || first >= stop || stop > times.rows || stop > n_keys || stop > n_values) {
        PyErr_Format(PyExc_IndexError, "row range [%lld, %zd) is out of bounds", first, stop);
        goto done;
    }
    for (Py_ssize_t row = (Py_ssize_t)first;;) {
        state->row = row;
        int64_t timestamp = timestamps_get(&times, module, row);
        if (timestamp < 0) goto done;
        if (row > first && timestamp >= before_ms) {
            result = PyLong_FromSsize_t(row);
            goto done;
        }
        if (timestamp > state->partition_time_ms) {
            state->partition_time_ms = timestamp;
            if (timestamp > state->stream_time_ms) state->stream_time_ms = timestamp;
        }
        if (run_row(module, state, keys, values, timestamp, headers, children) < 0) goto done;
        row++;
        if (row >= stop || state->stream_time_ms >= state->due_ms) {
            result = PyLong_FromSsize_t(row);
            goto done;
        }
    }
done:
    timestamps_close(&times);
    return result;
}

/* ---- the module ----------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"run_rows", run_rows, METH_VARARGS, "Process consecutive records; see loop_py.py."},
    {"read_column", read_column, METH_VARARGS, "Deserialize rows of an Arrow binary array; see loop_py.py."},
    {"forward_changes", forward_changes, METH_VARARGS, "Write and forward changes; see cache_py.py."},
    {"has_negative", has_negative, METH_O, "Return whether a column contains a negative timestamp."},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *object) {
    Module *module = PyModule_GetState(object);
    if (add_type(object, &record_spec, &module->record_type) < 0 || add_type(object, &state_spec, &module->state_type) < 0 ||
        add_type(object, &guarded_spec, &module->guarded_type) < 0 ||
        add_type(object, &forwarder_spec, &module->forwarder_type) < 0 ||
        add_type(object, &columns_spec, &module->columns_type) < 0 || add_type(object, &writer_spec, &module->writer_type) < 0 ||
        add_type(object, &serializer_spec, &module->serializer_type) < 0 ||
        add_type(object, &deserializer_spec, &module->deserializer_type) < 0 ||
        add_type(object, &budget_spec, &module->budget_type) < 0 || add_type(object, &entries_spec, &module->entries_type) < 0 ||
        add_type(object, &aggregator_spec, &module->aggregator_type) < 0 ||
        add_type(object, &windows_spec, &module->windows_type) < 0)
        return -1;
    module->node_type = (PyTypeObject *)PyType_FromModuleAndSpec(object, &node_spec, NULL);
    if (module->node_type == NULL) return -1;
    PyObject *names = Py_BuildValue("(ssss)", "key", "value", "timestamp", "headers");
    if (names == NULL) return -1;
    int failed = PyObject_SetAttrString((PyObject *)module->record_type, "__match_args__", names);
    Py_DECREF(names);
    if (failed) return -1;
    static const char *headers = "zkconsumer.topology.loop.headers";
    if (import_name(headers, "copy_headers", &module->copy_headers) < 0 ||
        import_name(headers, "reject_timestamp", &module->reject_timestamp) < 0)
        return -1;
    return import_name(headers, "count_header_bytes", &module->count_header_bytes);
}

static int module_traverse(PyObject *object, visitproc visit, void *arg) {
    Module *module = PyModule_GetState(object);
    Py_VISIT(module->record_type);
    Py_VISIT(module->state_type);
    Py_VISIT(module->guarded_type);
    Py_VISIT(module->forwarder_type);
    Py_VISIT(module->columns_type);
    Py_VISIT(module->writer_type);
    Py_VISIT(module->serializer_type);
    Py_VISIT(module->deserializer_type);
    Py_VISIT(module->budget_type);
    Py_VISIT(module->node_type);
    Py_VISIT(module->entries_type);
    Py_VISIT(module->aggregator_type);
    Py_VISIT(module->windows_type);
    Py_VISIT(module->copy_headers);
    Py_VISIT(module->count_header_bytes);
    Py_VISIT(module->reject_timestamp);
    return 0;
}

static int module_clear(PyObject *object) {
    Module *module = PyModule_GetState(object);
    Py_CLEAR(module->record_type);
    Py_CLEAR(module->state_type);
    Py_CLEAR(module->guarded_type);
    Py_CLEAR(module->forwarder_type);
    Py_CLEAR(module->columns_type);
    Py_CLEAR(module->writer_type);
    Py_CLEAR(module->serializer_type);
    Py_CLEAR(module->deserializer_type);
    Py_CLEAR(module->budget_type);
    Py_CLEAR(module->node_type);
    Py_CLEAR(module->entries_type);
    Py_CLEAR(module->aggregator_type);
    Py_CLEAR(module->windows_type);
    Py_CLEAR(module->copy_headers);
    Py_CLEAR(module->count_header_bytes);
    Py_CLEAR(module->reject_timestamp);
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_loop", "Compiled parts of a task; see loop_py.py, cache_py.py and aggregator_py.py.", sizeof(Module), functions, slots,
    module_traverse, module_clear, NULL,
};

PyMODINIT_FUNC PyInit__loop(void) { return PyModuleDef_Init(&definition); }
