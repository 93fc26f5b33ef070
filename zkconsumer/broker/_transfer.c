/* Sends a request and receives the start of its response in one call, which releases the GIL once.
 *
 * transfer.py documents the function, and contains its version for TLS.
 *
 * See docs/decisions/37-receive-without-the-gil.rst.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* Python ignores SIGPIPE */
#endif

/* Maximum seconds without a check for signals, in case another thread received a signal. See threads.WAKE_INTERVAL_S. */
static const double CHECK_INTERVAL_S = 0.5;

typedef struct {
    int fd;
    const char *request; /* bytes that have not been sent */
    Py_ssize_t unsent;
    char *target;
    Py_ssize_t room, minimum, received;
    double deadline, next_check;
} Transfer;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Waits for an event of the socket. Returns 0 or an error number. */
static int wait_for(const Transfer *t, short events) {
    double time = now(), end = t->deadline < t->next_check ? t->deadline : t->next_check;
    if (t->deadline <= time) return ETIMEDOUT;
    struct pollfd polled = {t->fd, events, 0};
    int wait_ms = end > time ? (int)((end - time) * 1000) + 1 : 0;
    return poll(&polled, 1, wait_ms) < 0 ? errno : 0;
}

/* Continues the transfer without the GIL. Returns 0 at its end or at the end of the stream, or an error number, which is
 * EINTR if signals are to be checked. */
static int proceed(Transfer *t) {
    t->next_check = now() + CHECK_INTERVAL_S;
    while (t->unsent) {
        if (now() >= t->next_check) return EINTR;
        ssize_t sent = send(t->fd, t->request, (size_t)t->unsent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            int error = errno == EAGAIN || errno == EWOULDBLOCK ? wait_for(t, POLLOUT) : errno;
            if (error) return error;
            continue;
        }
        t->request += sent;
        t->unsent -= sent;
    }
    while (t->received < t->minimum) {
        if (now() >= t->next_check) return EINTR;
        ssize_t count = recv(t->fd, t->target + t->received, (size_t)(t->room - t->received), MSG_DONTWAIT);
        if (count == 0) return 0;
        if (count < 0) {
            int error = errno == EAGAIN || errno == EWOULDBLOCK ? wait_for(t, POLLIN) : errno;
            if (error) return error;
            continue;
        }
        t->received += count;
    }
    return 0;
}

PyDoc_STRVAR(transfer_doc,
"transfer(fd, request, target, minimum, timeout_s, /)\n--\n\n"
"Send the request and receive bytes into the target. See transfer.transfer.");

static PyObject *transfer(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer request, target;
    Transfer t = {0};
    double timeout_s;
    if (!PyArg_ParseTuple(args, "iy*w*nd", &t.fd, &request, &target, &t.minimum, &timeout_s)) return NULL;
    t.request = request.buf;
    t.unsent = request.len;
    t.target = target.buf;
    t.room = target.len;
    t.deadline = now() + timeout_s;
    int error, failed = 0;
    do {
        PyThreadState *released = PyEval_SaveThread();
        error = proceed(&t);
        PyEval_RestoreThread(released);
        failed = error == EINTR && PyErr_CheckSignals() < 0;
    } while (error == EINTR && !failed);
    PyBuffer_Release(&request);
    PyBuffer_Release(&target);
    if (failed) return NULL;
    if (!error || t.received) return PyLong_FromSsize_t(t.received);
    if (error == ETIMEDOUT) {
        PyErr_SetString(PyExc_TimeoutError, "timed out");
        return NULL;
    }
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

static PyMethodDef functions[] = {
    {"transfer", transfer, METH_VARARGS, transfer_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_transfer", "Compiled transfer; see transfer.py.", 0, functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__transfer(void) { return PyModuleDef_Init(&definition); }
