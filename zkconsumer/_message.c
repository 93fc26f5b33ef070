/* Messages that are created one by one from the rows of a decoded block: compiled versions of the types in message_py.py,
 * which documents them.
 *
 * The application usually reads a few fields of a message, and then requests the next one. So the fields are created when
 * they are read, and the last two messages belong to the block: if nothing else refers to the older one, its object becomes
 * the next message. Otherwise, its fields are copied from the block first. The last two are needed, because a loop variable
 * still refers to the last message while the next one is requested. Since all other messages are independent of the block, no
 * message keeps its buffers in memory.
 *
 * Creating and releasing objects can run any Python code, which can call the methods of the same block, release it, or find
 * its messages with the garbage collector. So a function that continues after this owns what it uses, and reads the state
 * again.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "_columns.h"
#include "_objects.h"

enum { TOPIC, PARTITION, OFFSET, KEY, VALUE, TIMESTAMP, TIMESTAMP_TYPE, HEADERS, N_FIELDS };
static const char *const field_names[N_FIELDS] = {"topic", "partition", "offset", "key", "value", "timestamp",
                                                  "timestamp_type", "headers"};

/* The interned names, with which most lookups need to compare only pointers. A lookup with another string is correct, too. */
static PyObject *names[N_FIELDS];

/* NULL after the module was cleared. Messages and blocks can be in use longer than that. */
typedef struct {
    PyTypeObject *fields_type, *rows_type, *iterator_type;
} Module;

static struct PyModuleDef definition;

/* Returns the state of the module that defines a base class of a type; NULL on error. */
static Module *find_module(PyTypeObject *type) {
    for (; type != NULL; type = PyType_GetSlot(type, Py_tp_base)) {
        PyObject *module = PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE ? PyType_GetModule(type) : NULL;
        if (module != NULL && PyModule_GetDef(module) == &definition) return PyModule_GetState(module);
        PyErr_Clear();
    }
    PyErr_SetString(PyExc_SystemError, "the type is not a subclass of a type of this module");
    return NULL;
}

/* ---- blocks: columns and rows ----------------------------------------------------------------- */

typedef struct Message Message;

typedef struct {
    PyObject_HEAD
    PyTypeObject *type; /* class of the messages */
    PyObject *topic, *partition, *decoders[2]; /* decoders: NULL for bytes */
    Py_ssize_t next, end, size; /* rows that were not taken: next to end */
    size_t headers_room;
    int views, header_views; /* number of valid buffer views */
    int has_front; /* whether `last` is the message of row `next`, which was not taken */
    Message *last, *spare; /* the last two messages */
    Py_buffer columns[N_COLUMNS], headers[N_HEADERS];
} Rows;

struct Message {
    PyObject_HEAD
    Rows *rows; /* borrowed; NULL unless the message belongs to a block */
    Py_ssize_t row;
    int64_t offset, timestamp;
    int32_t timestamp_type;
    int is_from_rows;
    PyObject *fields[N_FIELDS]; /* NULL if they were not read yet */
    PyObject *decoders[2];      /* decoders of the key and the value, while these are not decoded */
};

static PyObject *bytes_at(const Py_buffer *offsets, const Py_buffer *validity, const Py_buffer *data, size_t row) {
    if (validity != NULL && !(((const uint8_t *)validity->buf)[row >> 3] >> (row & 7) & 1)) return Py_NewRef(Py_None);
    const int32_t *o = offsets->buf;
    if (o[row] < 0 || o[row + 1] < o[row] || o[row + 1] > data->len) {
        PyErr_SetString(PyExc_ValueError, "column offsets are outside the data");
        return NULL;
    }
    return PyBytes_FromStringAndSize((const char *)data->buf + o[row], o[row + 1] - o[row]);
}

static PyObject *header_at(const Py_buffer *h, size_t at) {
    PyObject *raw = bytes_at(&h[2], NULL, &h[4], at), *pair = NULL, *value = NULL;
    PyObject *name = raw != NULL ? PyUnicode_FromEncodedObject(raw, "utf-8", "surrogateescape") : NULL;
    if (name != NULL) value = bytes_at(&h[5], &h[6], &h[7], at);
    if (value != NULL) pair = PyTuple_Pack(2, name, value);
    Py_XDECREF(raw);
    Py_XDECREF(name);
    Py_XDECREF(value);
    return pair;
}

static PyObject *headers_at(const Rows *rows, size_t row) {
    const Py_buffer *h = rows->headers;
    if (!rows->header_views) return PyTuple_New(0);
    const int32_t *list = h[0].buf;
    if (list[row] < 0 || list[row + 1] < list[row] || (size_t)list[row + 1] > rows->headers_room) {
        PyErr_SetString(PyExc_ValueError, "header list offsets are outside the header columns");
        return NULL;
    }
    size_t from = (size_t)list[row], to = (size_t)list[row + 1];
    PyObject *result = PyTuple_New((Py_ssize_t)(to - from));
    for (size_t i = from; result != NULL && i < to; i++) {
        PyObject *pair = header_at(h, i);
        if (pair == NULL || PyTuple_SetItem(result, (Py_ssize_t)(i - from), pair) < 0) Py_CLEAR(result);
    }
    return result;
}

/* ---- messages --------------------------------------------------------------------------------- */

/* Creates the value of a field, without decoding it. `rows` is the block of the message, or NULL. */
static PyObject *create_field(const Message *self, const Rows *rows, int field) {
    size_t row = (size_t)self->row;
    if (field == OFFSET) return PyLong_FromLongLong(self->offset);
    if (field == TIMESTAMP) return PyLong_FromLongLong(self->timestamp);
    if (field == TIMESTAMP_TYPE) return PyLong_FromLong(self->timestamp_type < 0 ? -1 : self->timestamp_type > 0);
    if (rows == NULL) return PyErr_NoMemory(); /* the field could not be copied when the block was released */
    const Py_buffer *c = rows->columns;
    if (field == KEY) return bytes_at(&c[3], &c[4], &c[5], row);
    if (field == VALUE) return bytes_at(&c[6], &c[7], &c[8], row);
    return field == HEADERS ? headers_at(rows, row) : Py_NewRef(field == TOPIC ? rows->topic : rows->partition);
}

/* Makes sure that a field is set, without decoding it; returns -1 on error. The caller must own a reference to `rows`. */
static int ensure_field(Message *self, const Rows *rows, int field) {
    if (self->fields[field] != NULL) return 0;
    PyObject *value = create_field(self, rows, field);
    if (value == NULL) return -1;
    if (self->fields[field] == NULL) self->fields[field] = value;
    else Py_DECREF(value);
    return 0;
}

/* Returns a new reference to the decoded key or value; NULL on error. */
static PyObject *decode_field(Message *self, int field) {
    PyObject **place = &self->decoders[field - KEY], *decoder = Py_NewRef(*place), *data = Py_NewRef(self->fields[field]);
    PyObject *decoded = data == Py_None ? Py_NewRef(data) : PyObject_CallFunctionObjArgs(decoder, data, NULL);
    if (decoded != NULL && *place == decoder && self->fields[field] == data) {
        self->fields[field] = Py_NewRef(decoded);
        *place = NULL;
        Py_DECREF(decoder);
        Py_DECREF(data);
    } else if (decoded != NULL && *place == NULL && self->fields[field] != NULL) { /* the decoder itself has read the field */
        Py_DECREF(decoded);
        decoded = Py_NewRef(self->fields[field]);
    }
    Py_DECREF(decoder);
    Py_DECREF(data);
    return decoded;
}

static PyObject *get_field(Message *self, int field) {
    if (self->fields[field] == NULL) {
        Rows *rows = self->rows;
        Py_XINCREF((PyObject *)rows);
        int failed = ensure_field(self, rows, field) < 0;
        Py_XDECREF((PyObject *)rows);
        if (failed) return NULL;
    }
    if ((field == KEY || field == VALUE) && self->decoders[field - KEY] != NULL) return decode_field(self, field);
    return Py_NewRef(self->fields[field]);
}

static PyObject *message_getattro(PyObject *object, PyObject *name) {
    Message *self = (Message *)object;
    if (self->is_from_rows) /* other messages can be of a subclass with properties of the same names */
        for (int field = 0; field < N_FIELDS; field++)
            if (name == names[field]) return get_field(self, field);
    return PyObject_GenericGetAttr(object, name);
}

static PyObject *message_get(PyObject *self, void *field) { return get_field((Message *)self, (int)(intptr_t)field); }

static PyObject *message_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *keywords[N_FIELDS + 1] = {"topic", "partition", "offset", "key", "value", "timestamp", "timestamp_type", "headers", NULL};
    PyObject *v[N_FIELDS];
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOOOOO:MessageAndMetadata", keywords, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]))
        return NULL;
    Message *self = (Message *)PyType_GenericAlloc(type, 0);
    for (int field = 0; self != NULL && field < N_FIELDS; field++) self->fields[field] = Py_NewRef(v[field]);
    return (PyObject *)self;
}

static int message_traverse(PyObject *object, visitproc visit, void *arg) {
    Message *self = (Message *)object;
    Py_VISIT(Py_TYPE(object));
    for (int field = 0; field < N_FIELDS; field++) Py_VISIT(self->fields[field]);
    Py_VISIT(self->decoders[0]);
    Py_VISIT(self->decoders[1]);
    return 0;
}

static int message_clear(PyObject *object) {
    Message *self = (Message *)object;
    for (int field = 0; field < N_FIELDS; field++) Py_CLEAR(self->fields[field]);
    Py_CLEAR(self->decoders[0]);
    Py_CLEAR(self->decoders[1]);
    return 0;
}

static void message_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    message_clear(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* ---- messages as sequences -------------------------------------------------------------------- */

static PyObject *message_values(Message *self) {
    PyObject *values = PyTuple_New(N_FIELDS);
    for (int field = 0; values != NULL && field < N_FIELDS; field++) {
        PyObject *value = get_field(self, field);
        if (value == NULL || PyTuple_SetItem(values, field, value) < 0) Py_CLEAR(values);
    }
    return values;
}

static Py_ssize_t message_length(PyObject *Py_UNUSED(self)) { return N_FIELDS; }

static PyObject *message_item(PyObject *self, Py_ssize_t index) {
    if (0 <= index && index < N_FIELDS) return get_field((Message *)self, (int)index);
    PyErr_SetString(PyExc_IndexError, "message index out of range");
    return NULL;
}

static PyObject *message_subscript(PyObject *self, PyObject *key) {
    if (PyIndex_Check(key)) {
        Py_ssize_t index = PyNumber_AsSsize_t(key, NULL);
        if (index == -1 && PyErr_Occurred()) return NULL;
        return message_item(self, index < 0 ? index + N_FIELDS : index);
    }
    PyObject *values = message_values((Message *)self), *found = values == NULL ? NULL : PyObject_GetItem(values, key);
    Py_XDECREF(values);
    return found;
}

static PyObject *message_iter(PyObject *self) {
    PyObject *values = message_values((Message *)self), *iterator = values == NULL ? NULL : PyObject_GetIter(values);
    Py_XDECREF(values);
    return iterator;
}

static Py_hash_t message_hash(PyObject *self) {
    PyObject *values = message_values((Message *)self);
    Py_hash_t hash = values == NULL ? -1 : PyObject_Hash(values);
    Py_XDECREF(values);
    return hash;
}

static PyObject *message_compare(PyObject *self, PyObject *other, int operation) {
    Module *module = find_module(Py_TYPE(self));
    if (module == NULL) return NULL;
    int is_message = module->fields_type != NULL && PyObject_TypeCheck(other, module->fields_type);
    if (!is_message && !PyTuple_Check(other)) return Py_NewRef(Py_NotImplemented);
    PyObject *ours = message_values((Message *)self), *theirs = NULL, *result = NULL;
    if (ours != NULL) theirs = is_message ? message_values((Message *)other) : Py_NewRef(other);
    if (theirs != NULL) result = PyObject_RichCompare(ours, theirs, operation);
    Py_XDECREF(ours);
    Py_XDECREF(theirs);
    return result;
}

static PyGetSetDef message_properties[] = {
    {"topic", message_get, NULL, NULL, (void *)TOPIC},
    {"partition", message_get, NULL, NULL, (void *)PARTITION},
    {"offset", message_get, NULL, NULL, (void *)OFFSET},
    {"key", message_get, NULL, NULL, (void *)KEY},
    {"value", message_get, NULL, NULL, (void *)VALUE},
    {"timestamp", message_get, NULL, NULL, (void *)TIMESTAMP},
    {"timestamp_type", message_get, NULL, NULL, (void *)TIMESTAMP_TYPE},
    {"headers", message_get, NULL, NULL, (void *)HEADERS},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot message_slots[] = {
    {Py_tp_doc, "The fields of a message; see ``zkconsumer.message_py.MessageFields``."},
    {Py_tp_new, message_new},
    {Py_tp_getattro, message_getattro},
    {Py_tp_getset, message_properties},
    {Py_tp_traverse, message_traverse},
    {Py_tp_clear, message_clear},
    {Py_tp_dealloc, message_dealloc},
    {Py_tp_iter, message_iter},
    {Py_tp_hash, message_hash},
    {Py_tp_richcompare, message_compare},
    {Py_sq_length, message_length},
    {Py_sq_item, message_item},
    {Py_mp_length, message_length},
    {Py_mp_subscript, message_subscript},
    {0, NULL},
};
static PyType_Spec message_spec = {
    "zkconsumer._message.MessageFields", sizeof(Message), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, message_slots};

/* ---- blocks: taking messages ------------------------------------------------------------------ */

/* Copies the fields of a message from the buffers of its block; returns -1 on error. */
static int copy_fields(Message *message, const Rows *rows) {
    static const int copied[] = {TOPIC, PARTITION, KEY, VALUE, HEADERS};
    for (size_t i = 0; i < sizeof copied / sizeof copied[0]; i++)
        if (ensure_field(message, rows, copied[i]) < 0) return -1;
    return 0;
}

/* Releases a message that no longer belongs to a block. */
static void release_message(Message *message) {
    message->rows = NULL;
    Py_DECREF(message);
}

/* Releases a message of a block that the application may have kept. */
static void release_kept(Message *message, const Rows *rows) {
    message->rows = NULL; /* the block may be about to be freed, so that no other code may refer to it */
    if (Py_REFCNT((PyObject *)message) > 1 && copy_fields(message, rows) < 0) PyErr_Clear(); /* reading the fields raises MemoryError */
    Py_DECREF((PyObject *)message);
}

/* Empties a message that nothing else refers to. Returns whether its object can be used again. */
static int empty_message(Message *message) {
    PyObject *old[N_FIELDS + 2];
    memcpy(old, message->fields, sizeof message->fields);
    memcpy(old + N_FIELDS, message->decoders, sizeof message->decoders);
    memset(message->fields, 0, sizeof message->fields);
    memset(message->decoders, 0, sizeof message->decoders);
    message->rows = NULL;
    for (int i = 0; i < N_FIELDS + 2; i++) Py_XDECREF(old[i]);
    /* Code that ran in the meantime may have found the message with the garbage collector, and read it. */
    int is_unused = Py_REFCNT((PyObject *)message) == 1;
    for (int field = 0; field < N_FIELDS; field++) is_unused &= message->fields[field] == NULL;
    return is_unused;
}

/* Takes the older of the last two messages if the application did not keep it. Returns -1 on error. */
static int take_unused(Rows *self, Message **unused) {
    *unused = NULL;
    Message *message = self->spare;
    if (message == NULL) return 0;
    if (Py_REFCNT((PyObject *)message) > 1) {
        Py_INCREF((PyObject *)message);
        int failed = copy_fields(message, self) < 0;
        if (!failed && self->spare == message) {
            self->spare = NULL;
            release_message(message);
        }
        Py_DECREF((PyObject *)message);
        return failed ? -1 : 0;
    }
    self->spare = NULL;
    if (empty_message(message)) *unused = message;
    else release_message(message);
    return 0;
}

/* Makes the message of the first row available in `last`. Does nothing if code that runs in the meantime does the same, or
 * takes all messages. Returns -1 on error. */
static int create_front(Rows *self) {
    Message *message, *old;
    if (take_unused(self, &message) < 0) return -1;
    if (message == NULL) {
        if ((message = (Message *)PyType_GenericAlloc(self->type, 0)) == NULL) return -1;
        message->is_from_rows = 1;
        /* Without decoders, a message cannot be part of a reference cycle, so the garbage collector need not visit it. */
        if (self->decoders[0] == NULL && self->decoders[1] == NULL) PyObject_GC_UnTrack(message);
    }
    if (self->has_front || self->next >= self->end) {
        Py_DECREF((PyObject *)message);
        return 0;
    }
    for (int i = 0; i < 2; i++) message->decoders[i] = Py_XNewRef(self->decoders[i]);
    message->rows = self;
    message->row = self->next;
    message->offset = ((const int64_t *)self->columns[0].buf)[self->next];
    message->timestamp = ((const int64_t *)self->columns[1].buf)[self->next];
    message->timestamp_type = ((const int32_t *)self->columns[2].buf)[self->next];
    old = self->spare; /* not NULL only if code that ran in the meantime has taken messages */
    self->spare = self->last;
    self->last = message;
    self->has_front = 1;
    if (old != NULL) release_kept(old, self);
    return 0;
}

/* Returns a new reference to the first message; NULL without an error if there is none. */
static PyObject *peek(Rows *self) {
    while (self->next < self->end && !self->has_front)
        if (create_front(self) < 0) return NULL;
    return self->next < self->end ? Py_NewRef((PyObject *)self->last) : NULL;
}

static PyObject *take(Rows *self) {
    PyObject *message = peek(self);
    if (message != NULL) {
        self->next++;
        self->has_front = 0;
    }
    return message;
}

static PyObject *or_index_error(PyObject *message) {
    if (message == NULL && !PyErr_Occurred()) PyErr_SetString(PyExc_IndexError, "there are no more messages");
    return message;
}

static PyObject *rows_peek(PyObject *self, PyObject *Py_UNUSED(unused)) { return or_index_error(peek((Rows *)self)); }
static PyObject *rows_popleft(PyObject *self, PyObject *Py_UNUSED(unused)) { return or_index_error(take((Rows *)self)); }
static PyObject *rows_next(PyObject *self) { return take((Rows *)self); }
static Py_ssize_t rows_length(PyObject *self) { return ((Rows *)self)->end - ((Rows *)self)->next; }

static PyObject *rows_pop(PyObject *object, PyObject *Py_UNUSED(unused)) {
    Rows *self = (Rows *)object;
    if (self->next >= self->end) return or_index_error(NULL);
    self->end--;
    return Py_NewRef(Py_None);
}

static PyObject *rows_discard_all(PyObject *object, PyObject *Py_UNUSED(unused)) {
    Rows *self = (Rows *)object;
    self->end = self->next;
    return Py_NewRef(Py_None);
}

static PyObject *rows_offset_at(PyObject *object, PyObject *argument) {
    Rows *self = (Rows *)object;
    Py_ssize_t row = PyNumber_AsSsize_t(argument, NULL);
    if (row == -1 && PyErr_Occurred()) return NULL;
    if (0 <= row && row < self->size) return PyLong_FromLongLong(((const int64_t *)self->columns[0].buf)[row]);
    PyErr_SetString(PyExc_IndexError, "there is no such row");
    return NULL;
}

static int get_buffers(PyObject *tuple, Py_buffer *views, int count, int *valid) {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count) {
        PyErr_SetString(PyExc_TypeError, "columns and headers must be tuples of buffers");
        return -1;
    }
    for (; *valid < count; ++*valid)
        if (PyObject_GetBuffer(PyTuple_GetItem(tuple, *valid), &views[*valid], PyBUF_SIMPLE) < 0) return -1;
    return 0;
}

static int rows_fill(Rows *self, PyObject *partition, Py_ssize_t rows, PyObject *columns, PyObject *headers, PyObject *decoders) {
    if (PyTuple_Size(partition) != 2 || (decoders != NULL && PyTuple_Size(decoders) != 2)) {
        PyErr_SetString(PyExc_TypeError, "partition and decoders must be pairs");
        return -1;
    }
    self->topic = Py_NewRef(PyTuple_GetItem(partition, 0));
    self->partition = Py_NewRef(PyTuple_GetItem(partition, 1));
    for (int i = 0; decoders != NULL && i < 2; i++) {
        PyObject *decoder = PyTuple_GetItem(decoders, i);
        self->decoders[i] = decoder == Py_None ? NULL : Py_NewRef(decoder);
    }
    if (get_buffers(columns, self->columns, N_COLUMNS, &self->views) < 0) return -1;
    size_t room = columns_rows(self->columns);
    if (headers != Py_None) {
        if (get_buffers(headers, self->headers, N_HEADERS, &self->header_views) < 0) return -1;
        room = least(room, bytes_rows(&self->headers[0], &self->headers[1]));
        self->headers_room = columns_headers(self->headers);
    }
    if (rows < 0 || (size_t)rows > room) {
        PyErr_SetString(PyExc_IndexError, "the number of rows exceeds the column capacity");
        return -1;
    }
    self->end = self->size = rows;
    return 0;
}

/* Returns whether instances of a subclass have no other fields, which would stay in an object that is used again; otherwise
 * sets an error. */
static int has_size_of(PyObject *cls, PyObject *base) {
    static const char *const sizes[] = {"__basicsize__", "__dictoffset__", "__weakrefoffset__"};
    for (int i = 0; i < 3; i++) {
        PyObject *ours = PyObject_GetAttrString(cls, sizes[i]), *theirs = PyObject_GetAttrString(base, sizes[i]);
        int is_equal = ours == NULL || theirs == NULL ? -1 : PyObject_RichCompareBool(ours, theirs, Py_EQ);
        Py_XDECREF(ours);
        Py_XDECREF(theirs);
        if (!is_equal) PyErr_Format(PyExc_TypeError, "cls must have __slots__ = (), got %R", cls);
        if (is_equal <= 0) return 0;
    }
    return 1;
}

static PyObject *rows_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *cls, *partition, *columns, *headers, *decoders = NULL;
    Py_ssize_t rows;
    if (kwargs != NULL && PyDict_Size(kwargs)) return PyErr_Format(PyExc_TypeError, "MessageRows() takes no keyword arguments");
    if (!PyArg_ParseTuple(args, "OO!nOO|O!:MessageRows", &cls, &PyTuple_Type, &partition, &rows, &columns, &headers, &PyTuple_Type, &decoders))
        return NULL;
    Module *module = PyType_GetModuleState(type);
    if (!PyType_Check(cls) || !PyType_IsSubtype((PyTypeObject *)cls, module->fields_type))
        return PyErr_Format(PyExc_TypeError, "cls must be a subclass of MessageFields, got %R", cls);
    if (!has_size_of(cls, (PyObject *)module->fields_type)) return NULL;
    Rows *self = (Rows *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    self->type = (PyTypeObject *)Py_NewRef(cls);
    if (rows_fill(self, partition, rows, columns, headers, decoders) < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static int rows_traverse(PyObject *object, visitproc visit, void *arg) {
    Rows *self = (Rows *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->type);
    Py_VISIT(self->topic);
    Py_VISIT(self->partition);
    Py_VISIT(self->decoders[0]);
    Py_VISIT(self->decoders[1]);
    Py_VISIT(self->last);
    Py_VISIT(self->spare);
    return 0;
}

/* Releases the last two messages. */
static int rows_clear(PyObject *object) {
    Rows *self = (Rows *)object;
    Message *messages[2] = {self->last, self->spare};
    PyObject *type, *value, *traceback;
    self->last = self->spare = NULL;
    self->next = self->end;
    self->has_front = 0;
    PyErr_Fetch(&type, &value, &traceback);
    for (int i = 0; i < 2; i++)
        if (messages[i] != NULL) messages[i]->rows = NULL;
    for (int i = 0; i < 2; i++)
        if (messages[i] != NULL) release_kept(messages[i], self);
    PyErr_Restore(type, value, traceback);
    Py_CLEAR(self->decoders[0]);
    Py_CLEAR(self->decoders[1]);
    return 0;
}

static void rows_dealloc(PyObject *object) {
    Rows *self = (Rows *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    rows_clear(object);
    while (self->views) PyBuffer_Release(&self->columns[--self->views]);
    while (self->header_views) PyBuffer_Release(&self->headers[--self->header_views]);
    Py_XDECREF(self->topic);
    Py_XDECREF(self->partition);
    Py_XDECREF((PyObject *)self->type);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyMethodDef rows_methods[] = {
    {"peek", rows_peek, METH_NOARGS, NULL},
    {"popleft", rows_popleft, METH_NOARGS, NULL},
    {"pop", rows_pop, METH_NOARGS, NULL},
    {"clear", rows_discard_all, METH_NOARGS, NULL},
    {"offset_at", rows_offset_at, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot rows_slots[] = {
    {Py_tp_doc, "The messages of a block that were not taken yet; see ``zkconsumer.message_py.MessageRows``."},
    {Py_tp_new, rows_new},
    {Py_tp_methods, rows_methods},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, rows_next},
    {Py_tp_traverse, rows_traverse},
    {Py_tp_clear, rows_clear},
    {Py_tp_dealloc, rows_dealloc},
    {Py_sq_length, rows_length},
    {0, NULL},
};
static PyType_Spec rows_spec = {
    "zkconsumer._message.MessageRows", sizeof(Rows), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, rows_slots};

/* ---- iteration -------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Rows *rows; /* NULL for None */
} Iterator;

static PyObject *iterator_next(PyObject *object) {
    Rows *rows = ((Iterator *)object)->rows;
    if (rows != NULL && rows->next < rows->end) {
        Py_INCREF((PyObject *)rows);
        PyObject *message = take(rows);
        Py_DECREF((PyObject *)rows);
        if (message != NULL || PyErr_Occurred()) return message;
    }
    return PyObject_CallMethod(object, "_next_message", NULL);
}

static PyObject *iterator_get_rows(PyObject *self, void *Py_UNUSED(closure)) {
    PyObject *rows = (PyObject *)((Iterator *)self)->rows;
    return Py_NewRef(rows == NULL ? Py_None : rows);
}

static int iterator_set_rows(PyObject *object, PyObject *rows, void *Py_UNUSED(closure)) {
    Iterator *self = (Iterator *)object;
    Module *module = find_module(Py_TYPE(object));
    if (module == NULL) return -1;
    int is_rows = rows != NULL && module->rows_type != NULL && PyObject_TypeCheck(rows, module->rows_type);
    if (rows != Py_None && !is_rows) {
        PyErr_SetString(PyExc_TypeError, "_rows must be MessageRows or None");
        return -1;
    }
    PyObject *old = (PyObject *)self->rows;
    self->rows = rows == Py_None ? NULL : (Rows *)Py_NewRef(rows);
    Py_XDECREF(old);
    return 0;
}

static int iterator_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Iterator *)self)->rows);
    return 0;
}

static int iterator_clear(PyObject *self) {
    Py_CLEAR(((Iterator *)self)->rows);
    return 0;
}

static void iterator_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    iterator_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyGetSetDef iterator_properties[] = {
    {"_rows", iterator_get_rows, iterator_set_rows, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot iterator_slots[] = {
    {Py_tp_doc, "Iterator over messages; see ``zkconsumer.message_py.MessageIterator``."},
    {Py_tp_getset, iterator_properties},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, iterator_next},
    {Py_tp_traverse, iterator_traverse},
    {Py_tp_clear, iterator_clear},
    {Py_tp_dealloc, iterator_dealloc},
    {0, NULL},
};
static PyType_Spec iterator_spec = {
    "zkconsumer._message.MessageIterator", sizeof(Iterator), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    iterator_slots};

/* ---- the module ------------------------------------------------------------------------------- */

static int execute(PyObject *object) {
    Module *module = PyModule_GetState(object);
    for (int field = 0; field < N_FIELDS; field++)
        if (names[field] == NULL && (names[field] = PyUnicode_InternFromString(field_names[field])) == NULL) return -1;
    if (add_type(object, &message_spec, &module->fields_type) < 0 || add_type(object, &rows_spec, &module->rows_type) < 0) return -1;
    return add_type(object, &iterator_spec, &module->iterator_type);
}

static int module_traverse(PyObject *object, visitproc visit, void *arg) {
    Module *module = PyModule_GetState(object);
    Py_VISIT(module->fields_type);
    Py_VISIT(module->rows_type);
    Py_VISIT(module->iterator_type);
    return 0;
}

static int module_clear(PyObject *object) {
    Module *module = PyModule_GetState(object);
    Py_CLEAR(module->fields_type);
    Py_CLEAR(module->rows_type);
    Py_CLEAR(module->iterator_type);
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_message", "Compiled messages; see message_py.", sizeof(Module), NULL, slots, module_traverse,
    module_clear, NULL,
};

PyMODINIT_FUNC PyInit__message(void) { return PyModuleDef_Init(&definition); }
