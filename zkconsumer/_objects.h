/* Functions of C modules that check arguments, import names and add types. The including file must include Python.h first. */
#ifndef ZKCONSUMER_OBJECTS_H
#define ZKCONSUMER_OBJECTS_H

#include "_bytes.h"

static inline PyObject *to_bytes(Slice data) {
    return PyBytes_FromStringAndSize((const char *)data.at, (Py_ssize_t)data.size);
}

/* Raises TypeError for an argument; returns -1. */
static inline int reject_type(PyObject *object, const char *name, const char *expected) {
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    if (type != NULL) PyErr_Format(PyExc_TypeError, "%s must be %s, got %U", name, expected, type);
    Py_XDECREF(type);
    return -1;
}

/* Gets the data of a bytes argument; returns -1 on error. `expected` describes the valid types in the error message. */
static inline int view_bytes(PyObject *object, const char *name, const char *expected, Slice *data) {
    char *at;
    Py_ssize_t size;
    if (!PyBytes_Check(object)) return reject_type(object, name, expected);
    if (PyBytes_AsStringAndSize(object, &at, &size) < 0) return -1;
    data->at = (const uint8_t *)at;
    data->size = (size_t)size;
    return 0;
}

/* Imports an attribute of a module; returns -1 on error. */
static inline int import_name(const char *module_name, const char *name, PyObject **target) {
    PyObject *module = PyImport_ImportModule(module_name);
    if (module == NULL) return -1;
    *target = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return *target == NULL ? -1 : 0;
}

/* Imports a subclass of tuple; returns -1 on error. `target` must be NULL or own a reference. */
static inline int import_tuple_type(const char *module_name, const char *name, PyTypeObject **target) {
    PyObject *found;
    if (import_name(module_name, name, &found) < 0) return -1;
    if (!PyType_Check(found) || !PyType_IsSubtype((PyTypeObject *)found, &PyTuple_Type)) {
        PyErr_Format(PyExc_TypeError, "%s must be a tuple type", name);
        Py_DECREF(found);
        return -1;
    }
    PyObject *old = (PyObject *)*target; /* the import runs Python code, which can set the target */
    *target = (PyTypeObject *)found;
    Py_XDECREF(old);
    return 0;
}

/* Creates a type, and adds it to a module; returns -1 on error. */
static inline int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **target) {
    *target = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *target == NULL ? -1 : PyModule_AddType(module, *target);
}

#endif
