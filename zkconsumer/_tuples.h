/* Instances of named tuples. The including file must include Python.h first. */
#ifndef ZKCONSUMER_TUPLES_H
#define ZKCONSUMER_TUPLES_H

/* Creates an instance of a subclass of tuple from new references, which are released. Returns NULL on error, or if an item
 * is NULL. */
static inline PyObject *create_tuple(PyTypeObject *type, PyObject *const *items, Py_ssize_t count) {
    PyObject *result = NULL, *target = NULL;
    int is_complete = 1;
    for (Py_ssize_t i = 0; i < count; i++) is_complete &= items[i] != NULL;
    /* Since Python 3.14, a tuple contains its hash, which PyType_GenericAlloc() sets to 0 instead of -1. */
    if (is_complete) target = Py_Version < 0x030E0000 ? PyType_GenericAlloc(type, count) : PyTuple_New(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (target != NULL) PyTuple_SetItem(target, i, items[i]);
        else Py_XDECREF(items[i]);
    }
    if (target == NULL || Py_Version < 0x030E0000) return target;
    newfunc create = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    PyObject *args = PyTuple_Pack(1, target);
    Py_DECREF(target);
    if (args != NULL) result = create(type, args, NULL);
    Py_XDECREF(args);
    return result;
}

#endif
