/* Byte maps and object maps: compiled versions of pages.PagedMap, serde_map.SerdeMap and time_map.TimeMap.
 *
 * The classes have the same methods, results and errors as the Python classes, which document them. PagedMap writes
 * the same pages. The functions in page_reads.py create the errors for corrupt pages. Headers and directories are
 * also encoded and decoded in Python.
 *
 * The directory is an array of pages, sorted by first key. A page in memory keeps its entries in one unsorted block,
 * the arena; its index contains the entry offsets, sorted by key. Directory and index also contain a numeric prefix
 * of each key, so that a binary search reads few keys:
 *   arena   key size u32 | value size u32 | key | value, for each entry
 *   index   key prefix in the upper 32 bits, entry offset in the lower 32 bits
 * All keys of a page start with the same `skip` bytes. The prefix consists of the bytes that follow, padded with zeros.
 * An entry has the same size in the arena as in an encoded page.
 *
 * Page stores, serializers and finalizers that the garbage collector calls are Python code, which can use the same
 * map. During such a call, either no pointer to a page is in use, or `busy` is set and all methods of the map raise an
 * error.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../loop/_codecs.h"

enum {
    FORMAT = 1,        /* first byte of a page */
    HEAD_BYTES = 5,    /* size of format version and entry count */
    LENGTHS_BYTES = 8, /* size of key length and value length */
    SCAN_PAGES = 16,   /* maximum pages that a scan reads per call */
    HINT_BYTES = 32,   /* maximum size of a key whose position is cached */
};

/* Arena offsets have 32 bits, so a larger page is split even if the configured limit is higher. */
#define MAX_PAGE_BYTES ((int64_t)1 << 30)

#define STORES "zkconsumer.topology.stores."

#define OFFSET_BITS 0xFFFFFFFFu

/* An encoded value, in up to two parts: fixed-size numbers, and the bytes of an object. */
typedef struct {
    uint8_t head[16];
    size_t head_size;
    Slice tail;
    PyObject *owner; /* bytes object to release, or NULL */
} Encoded;

/* ---- bytes ------------------------------------------------------------------------------------ */

static int equal(Slice a, Slice b) {
    if (a.size != b.size) return 0;
    if (a.size != 8) return a.size == 0 || memcmp(a.at, b.at, a.size) == 0;
    return load64(a.at) == load64(b.at);
}

static int compare(Slice a, Slice b) {
    size_t n = least(a.size, b.size);
    int order = n ? memcmp(a.at, b.at, n) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

/* Returns the length of the common prefix of two keys. */
static size_t common(Slice a, Slice b) {
    size_t n = least(a.size, b.size), i = 0;
    while (i < n && a.at[i] == b.at[i]) i++;
    return i;
}

/* Returns the four bytes after the first `skip` bytes as a number, padded with zeros. */
static uint32_t prefix32(Slice key, size_t skip) {
    if (key.size >= skip + 4) return load_big32(key.at + skip);
    uint32_t v = 0;
    for (size_t i = skip; i < skip + 4; i++) v = v << 8 | (i < key.size ? key.at[i] : 0u);
    return v;
}

static uint64_t prefix64(Slice key, size_t skip) {
    if (key.size >= skip + 8) return load_big64(key.at + skip);
    return (uint64_t)prefix32(key, skip) << 32 | prefix32(key, skip + 4);
}

/* Compares the start of a key with the first `skip` bytes of `other`. */
static int compare_start(Slice key, Slice other, size_t skip) {
    size_t n = least(key.size, skip);
    int order = n ? memcmp(key.at, other.at, n) : 0;
    return order ? order : -(key.size < skip);
}

/* Returns the number of elements of a sorted array that are less than x. */
static size_t count_less(const uint64_t *numbers, size_t n, uint64_t x) {
    const uint64_t *base = numbers;
    if (!n) return 0;
    while (n > 1) {
        size_t half = n / 2;
        __builtin_prefetch(base + half / 2); /* one of the two is compared next */
        __builtin_prefetch(base + half + half / 2);
        base += base[half - 1] < x ? half : 0;
        n -= half;
    }
    return (size_t)(base - numbers) + (*base < x);
}

/* ---- pages ------------------------------------------------------------------------------------ */

typedef enum { NOT_IN_MEMORY, UNCHANGED, CHANGED } PageState;

typedef struct Page {
    struct Page *previous, *next; /* neighbors in the list of unchanged or changed pages */
    int64_t id;
    uint8_t *first_key;
    size_t first_key_size;
    PageState state;
    int is_pending; /* whether join_small_pages() still has to check this page */
    uint64_t *index;
    uint8_t *arena;
    size_t count, index_room;      /* in entries */
    size_t used, live, arena_room; /* in bytes; `used` includes replaced entries */
    size_t skip;
} Page;

static const uint8_t *entry_at(const Page *page, size_t position) {
    return page->arena + (page->index[position] & OFFSET_BITS);
}

static size_t entry_size(const uint8_t *entry) {
    return LENGTHS_BYTES + (size_t)load32(entry) + (size_t)load32(entry + 4);
}

static Slice key_of(const uint8_t *entry) {
    Slice key = {entry + LENGTHS_BYTES, load32(entry)};
    return key;
}

static Slice value_of(const uint8_t *entry) {
    Slice value = {entry + LENGTHS_BYTES + load32(entry), load32(entry + 4)};
    return value;
}

static Slice key_at(const Page *page, size_t position) { return key_of(entry_at(page, position)); }

static Slice first_key_of(const Page *page) {
    Slice key = {page->first_key, page->first_key_size};
    return key;
}

/* Returns the size of the encoded page, in bytes. */
static int64_t page_size(const Page *page) { return HEAD_BYTES + (int64_t)page->live; }

static void set_prefix(Page *page, size_t position) {
    uint64_t prefix = prefix32(key_at(page, position), page->skip);
    page->index[position] = prefix << 32 | (page->index[position] & OFFSET_BITS);
}

/* Sets `skip` to the length of the common prefix of all keys, and sets the key prefixes. */
static void set_prefixes(Page *page) {
    page->skip = page->count ? common(key_at(page, 0), key_at(page, page->count - 1)) : 0;
    for (size_t i = 0; i < page->count; i++) set_prefix(page, i);
}

/* Returns the position of a key, or of the first greater key if the key is not found. */
static size_t find_in_page(const Page *page, Slice key, int *is_found) {
    *is_found = 0;
    if (!page->count) return 0;
    uint32_t prefix = prefix32(key, page->skip);
    size_t low = count_less(page->index, page->count, (uint64_t)prefix << 32);
    if (low < page->count && page->index[low] >> 32 == prefix) {
        int order = compare(key, key_at(page, low));
        if (order > 0) { /* the key is among the following keys with the same prefix, or does not exist */
            low++;
            size_t high = page->count;
            if (prefix != UINT32_MAX)
                high = low + count_less(page->index + low, page->count - low, (uint64_t)(prefix + 1) << 32);
            while (low < high) {
                size_t middle = low + (high - low) / 2;
                order = compare(key, key_at(page, middle));
                if (order == 0) low = high = middle;
                else if (order < 0) high = middle;
                else low = middle + 1;
            }
        }
        if (order == 0) {
            *is_found = 1;
            return low;
        }
    }
    int order = page->skip ? compare_start(key, key_at(page, 0), page->skip) : 0;
    return order < 0 ? 0 : order > 0 ? page->count : low;
}

/* Returns the position of the first key that is not less than `key`. */
static size_t find_not_less(const Page *page, Slice key) {
    int is_found;
    return find_in_page(page, key, &is_found);
}

static void free_entries(Page *page) {
    PyMem_Free(page->index);
    PyMem_Free(page->arena);
    page->index = NULL;
    page->arena = NULL;
    page->count = page->index_room = page->used = page->live = page->arena_room = page->skip = 0;
}

static void free_page(Page *page) {
    free_entries(page);
    PyMem_Free(page->first_key);
    PyMem_Free(page);
}

/* Sets the first key of a page; returns -1 on error. */
static int set_first_key(Page *page, Slice key) {
    uint8_t *copy = NULL;
    if (key.size) {
        copy = PyMem_Malloc(key.size);
        if (copy == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(copy, key.at, key.size);
    }
    PyMem_Free(page->first_key);
    page->first_key = copy;
    page->first_key_size = key.size;
    return 0;
}

static Page *new_page(int64_t id, Slice first_key) {
    Page *page = PyMem_Calloc(1, sizeof(Page));
    if (page == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    page->id = id;
    if (set_first_key(page, first_key) < 0) {
        free_page(page);
        return NULL;
    }
    return page;
}

/* Appends entries `from` to `to` (exclusive) to the arena of a page that has room for them. Prefixes are not set. */
static void copy_entries(Page *page, const Page *source, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        const uint8_t *entry = entry_at(source, i);
        size_t size = entry_size(entry);
        memcpy(page->arena + page->used, entry, size);
        page->index[page->count++] = page->used;
        page->used += size;
    }
    page->live = page->used;
}

/* Allocates an empty arena and index; returns -1 on error. */
static int allocate(Page *page, size_t bytes, size_t entries) {
    memset(page, 0, sizeof(*page));
    if (bytes > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "the entries of a page must be smaller than 4 GiB in total");
        return -1;
    }
    if (!entries) return 0;
    page->arena = PyMem_Malloc(bytes);
    page->index = PyMem_Malloc(entries * sizeof(uint64_t));
    if (page->arena == NULL || page->index == NULL) {
        free_entries(page);
        PyErr_NoMemory();
        return -1;
    }
    page->arena_room = bytes;
    page->index_room = entries;
    return 0;
}

/* Replaces the arena and index with the arena and index of another page. */
static void take_entries(Page *page, const Page *other) {
    PyMem_Free(page->arena);
    PyMem_Free(page->index);
    page->arena = other->arena;
    page->index = other->index;
    page->arena_room = other->arena_room;
    page->index_room = other->index_room;
    page->count = other->count;
    page->used = other->used;
    page->live = other->live;
    set_prefixes(page);
}

/* Copies the entries to an arena and index of the given sizes, without replaced entries. */
static int resize(Page *page, size_t bytes, size_t entries) {
    Page copy;
    if (allocate(&copy, bytes, entries) < 0) return -1;
    copy_entries(&copy, page, 0, page->count);
    take_entries(page, &copy);
    return 0;
}

/* Grows a size by a quarter, to amortize the cost of copying. */
static size_t enlarge(size_t n) { return n + n / 4 + 4; }

/* Makes room for an entry in the arena, and in the index if the entry is new. */
static int reserve(Page *page, size_t bytes, int is_new) {
    if (page->arena_room - page->used < bytes) {
        size_t needed = page->live + bytes, room = enlarge(needed);
        return resize(page, room > UINT32_MAX ? needed : room, enlarge(page->count + (size_t)is_new));
    }
    if (page->index_room - page->count < (size_t)is_new) {
        size_t room = enlarge(page->count + 1);
        uint64_t *index = PyMem_Realloc(page->index, room * sizeof(uint64_t));
        if (index == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        page->index = index;
        page->index_room = room;
    }
    return 0;
}

/* Frees memory if more than a third of it is unused; called after entries were removed or became smaller. */
static void trim(Page *page) {
    size_t needed = page->live + page->count * sizeof(uint64_t);
    if (page->arena_room + page->index_room * sizeof(uint64_t) <= needed + needed / 2 + 256) return;
    if (!page->count) free_entries(page);
    else if (resize(page, page->live + page->live / 8, page->count + page->count / 8) < 0)
        PyErr_Clear(); /* the page remains unchanged */
}

static void write_value(uint8_t *at, const Encoded *value) {
    memcpy(at, value->head, value->head_size);
    if (value->tail.size) memcpy(at + value->head_size, value->tail.at, value->tail.size);
}

static size_t value_size(const Encoded *value) { return value->head_size + value->tail.size; }

/* Appends an entry to the arena, which must have room for it, and returns its offset. */
static size_t append_entry(Page *page, Slice key, const Encoded *value) {
    uint8_t *entry = page->arena + page->used;
    size_t offset = page->used;
    store32(entry, (uint32_t)key.size);
    store32(entry + 4, (uint32_t)value_size(value));
    if (key.size) memcpy(entry + LENGTHS_BYTES, key.at, key.size);
    write_value(entry + LENGTHS_BYTES + key.size, value);
    page->used += LENGTHS_BYTES + key.size + value_size(value);
    return offset;
}

/* Sets the value of the entry at a position. The arena must have room if the value is longer than the old value. */
static void replace_value(Page *page, size_t position, Slice key, const Encoded *value) {
    uint8_t *entry = page->arena + (page->index[position] & OFFSET_BITS);
    Slice old = value_of(entry);
    page->live = page->live - old.size + value_size(value);
    if (value_size(value) <= old.size) {
        store32(entry + 4, (uint32_t)value_size(value));
        write_value(entry + LENGTHS_BYTES + key.size, value);
        return;
    }
    uint64_t offset = append_entry(page, key, value);
    page->index[position] = (page->index[position] & ~(uint64_t)OFFSET_BITS) | offset;
}

/* Inserts an entry at a position. Arena and index must have room for it. */
static void insert_entry(Page *page, size_t position, Slice key, const Encoded *value) {
    memmove(page->index + position + 1, page->index + position, (page->count - position) * sizeof(uint64_t));
    page->index[position] = append_entry(page, key, value);
    page->count++;
    page->live += LENGTHS_BYTES + key.size + value_size(value);
    Slice other = key_at(page, position ? 0 : page->count - 1);
    if (page->count == 1 || common(key, other) < page->skip) set_prefixes(page);
    else set_prefix(page, position);
}

/* Removes entries `from` to `to` (exclusive). */
static void remove_entries(Page *page, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) page->live -= entry_size(entry_at(page, i));
    memmove(page->index + from, page->index + to, (page->count - to) * sizeof(uint64_t));
    page->count -= to - from;
    trim(page);
}

/* Returns the position of the first entry in the second half of the data. */
static size_t find_middle(const Page *page) {
    size_t bytes = 0, position = 0;
    while (position < page->count) {
        bytes += entry_size(entry_at(page, position));
        if ((int64_t)bytes >= page_size(page) / 2) break;
        position++;
    }
    return position < 1 ? 1 : least(position, page->count - 1);
}

static PyObject *encode_page(const Page *page) {
    PyObject *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)page_size(page));
    if (data == NULL) return NULL;
    uint8_t *head = (uint8_t *)PyBytes_AsString(data), *sizes = head + HEAD_BYTES;
    uint8_t *at = sizes + LENGTHS_BYTES * page->count;
    head[0] = FORMAT;
    store_little32(head + 1, (uint32_t)page->count);
    for (size_t i = 0; i < page->count; i++) {
        Slice key = key_at(page, i);
        store_little32(sizes, (uint32_t)key.size);
        memcpy(at, key.at, key.size);
        sizes += 4;
        at += key.size;
    }
    for (size_t i = 0; i < page->count; i++) {
        Slice value = value_of(entry_at(page, i));
        store_little32(sizes, (uint32_t)value.size);
        memcpy(at, value.at, value.size);
        sizes += 4;
        at += value.size;
    }
    return data;
}

/* Returns whether the lengths in an encoded page add up to its size. */
static int sizes_match(Slice data, size_t count) {
    uint64_t bytes = HEAD_BYTES + LENGTHS_BYTES * (uint64_t)count; /* cannot overflow: lengths have 32 bits */
    for (size_t i = 0; i < 2 * count; i++) bytes += load_little32(data.at + HEAD_BYTES + 4 * i);
    return bytes == data.size;
}

/* Decodes a page whose keys must be less than `stop`, unless `stop` is NULL. Returns 1 if the page is valid, 0 if it is
 * corrupt, and -1 on error. */
static int decode_page(Page *page, Slice data, const Slice *stop) {
    if (data.size < HEAD_BYTES || data.at[0] != FORMAT) return 0;
    size_t count = load_little32(data.at + 1);
    if (count > (data.size - HEAD_BYTES) / LENGTHS_BYTES || !sizes_match(data, count)) return 0;
    Page decoded;
    if (allocate(&decoded, data.size - HEAD_BYTES, count) < 0) return -1;
    const uint8_t *key_sizes = data.at + HEAD_BYTES, *value_sizes = key_sizes + 4 * count;
    const uint8_t *key = value_sizes + 4 * count, *value = key;
    for (size_t i = 0; i < count; i++) value += load_little32(key_sizes + 4 * i);
    Slice before = first_key_of(page);
    int is_valid = 1;
    for (size_t i = 0; i < count && is_valid; i++) {
        Slice slice = {key, load_little32(key_sizes + 4 * i)};
        Encoded content = {{0}, 0, {value, load_little32(value_sizes + 4 * i)}, NULL};
        int order = compare(slice, before);
        is_valid = order > 0 || (order == 0 && i == 0);
        decoded.index[i] = append_entry(&decoded, slice, &content);
        before = slice;
        key += slice.size;
        value += content.tail.size;
    }
    if (!is_valid || (stop != NULL && count && compare(before, *stop) >= 0)) {
        free_entries(&decoded);
        return 0;
    }
    decoded.count = count;
    decoded.live = decoded.used;
    take_entries(page, &decoded);
    return 1;
}

/* ---- module state ----------------------------------------------------------------------------- */

/* Attribute names. They are interned, because Python's attribute cache keeps each new string. */
enum { ENCODE, ENCODED, FINISH_COMMIT, FIRST_KEYS, IDS, MEMORY_BYTES, NEXT_ID, PAGE_BYTES, UPDATE, WRITE, N_NAMES };

static const char *const name_texts[N_NAMES] = {
    "encode", "encoded", "finish_commit", "first_keys", "ids", "memory_bytes", "next_id", "page_bytes", "update",
    "write",
};

typedef struct {
    PyObject *names[N_NAMES];
    PyTypeObject *paged_map, *serde_map, *time_map;
    PyTypeObject *windowed;                   /* time_map.Windowed */
    PyObject *read_entry_pages, *decode_page, *load_directory, *read_only_error, *reentrant_error; /* page_reads.py */
    PyObject *header;                         /* page_format.MapHeader */
    PyObject *encoded_directory;              /* directory.EncodedDirectory */
    PyObject *closed_pages, *default_limits;  /* in pages.py */
    PyTypeObject *value_and_timestamp;        /* key_value_store.ValueAndTimestamp; NULL before its first use */
} Module;

/* Raises the error that `function` returns for a store name; returns -1. */
static int raise_error(PyObject *function, PyObject *store) {
    PyObject *error = PyObject_CallFunctionObjArgs(function, store, NULL);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return -1;
}

/* ---- PagedMap: directory ---------------------------------------------------------------------- */

typedef struct {
    Page *first, *last;
} List;

typedef struct {
    PyObject_HEAD
    Module *module;
    PyObject *pages; /* page store; NULL if the entries are only in memory */
    PyObject *store, *layout;
    PyObject *undo;    /* committed values of changed keys; NULL if there is a page store */
    PyObject *encoded; /* directory.EncodedDirectory */
    Page **directory;
    uint64_t *prefixes; /* prefixes of the first keys, except for the first page */
    size_t count, room, skip;
    List unchanged, changed; /* pages in memory, oldest first */
    Page *next_to_join;
    int64_t *deleted;
    size_t n_deleted, deleted_room;
    int64_t next_id, entries, memory_bytes, page_bytes, memory_limit;
    int64_t gets, puts, pages_read, pages_written;
    int is_directory_changed, is_read_only, busy;
    Page *hint_page; /* page of the cached position; NULL if none is cached */
    size_t hint_index, hint_position, hint_size;
    int hint_is_found;
    uint8_t hint_key[HINT_BYTES];
} PagedMap;

/* The page that contains a key, the page's index, and the position of the key in the page. */
typedef struct {
    size_t index, position;
    Page *page;
    int is_found, was_read;
} Place;

static void unlink_page(List *list, Page *page) {
    if (page->previous != NULL) page->previous->next = page->next;
    else list->first = page->next;
    if (page->next != NULL) page->next->previous = page->previous;
    else list->last = page->previous;
    page->previous = page->next = NULL;
}

static void append_page(List *list, Page *page, PageState state) {
    page->previous = list->last;
    page->next = NULL;
    if (list->last != NULL) list->last->next = page;
    else list->first = page;
    list->last = page;
    page->state = state;
    page->is_pending = 0;
}

static void remove_from_list(PagedMap *self, Page *page) {
    if (self->next_to_join == page) self->next_to_join = page->next;
    if (page->state == UNCHANGED) unlink_page(&self->unchanged, page);
    else if (page->state == CHANGED) unlink_page(&self->changed, page);
}

static void mark_changed(PagedMap *self, Page *page) {
    if (page->state == CHANGED) return;
    remove_from_list(self, page);
    append_page(&self->changed, page, CHANGED);
}

static void add_unchanged(PagedMap *self, Page *page) {
    append_page(&self->unchanged, page, UNCHANGED);
    self->memory_bytes += page_size(page);
}

/* Removes a page from memory, if it is in memory. */
static void unload(PagedMap *self, Page *page) {
    if (page->state == NOT_IN_MEMORY) return;
    remove_from_list(self, page);
    self->memory_bytes -= page_size(page);
    page->state = NOT_IN_MEMORY;
    free_entries(page);
    if (self->hint_page == page) self->hint_page = NULL;
}

/* Evicts unchanged pages, oldest first, until memory use is within the limit. */
static void evict(PagedMap *self) {
    while (self->memory_bytes > self->memory_limit && self->unchanged.first != NULL && self->pages != NULL)
        unload(self, self->unchanged.first);
}

static Slice first_key_at(const PagedMap *self, size_t index) { return first_key_of(self->directory[index]); }

/* Sets `skip` to the length of the common prefix of the first keys, and sets the prefixes. */
static void set_directory_prefixes(PagedMap *self) {
    self->skip = self->count > 1 ? common(first_key_at(self, 1), first_key_at(self, self->count - 1)) : 0;
    self->prefixes[0] = 0;
    for (size_t i = 1; i < self->count; i++) self->prefixes[i] = prefix64(first_key_at(self, i), self->skip);
}

/* Returns the index of the page that contains a key. */
static size_t find_page(const PagedMap *self, Slice key) {
    size_t others = self->count - 1; /* all pages except the first, whose first key is empty */
    if (!others) return 0;
    int order = self->skip ? compare_start(key, first_key_at(self, 1), self->skip) : 0;
    if (order) return order < 0 ? 0 : others;
    uint64_t prefix = prefix64(key, self->skip);
    size_t high = prefix == UINT64_MAX ? others : count_less(self->prefixes + 1, others, prefix + 1);
    if (!high || self->prefixes[high] != prefix) return high;
    size_t low = count_less(self->prefixes + 1, others, prefix); /* last page with a lower prefix */
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        if (compare(first_key_at(self, middle), key) <= 0) low = middle;
        else high = middle - 1;
    }
    return low;
}

/* Returns the index of the first page whose first key is not less than `key`. */
static size_t find_first_key(const PagedMap *self, Slice key) {
    size_t index = find_page(self, key);
    return equal(first_key_at(self, index), key) ? index : index + 1;
}

static int reserve_directory(PagedMap *self, size_t room) {
    if (room <= self->room) return 0;
    room = enlarge(room);
    Page **directory = PyMem_Realloc(self->directory, room * sizeof(Page *));
    if (directory != NULL) self->directory = directory;
    uint64_t *prefixes = directory != NULL ? PyMem_Realloc(self->prefixes, room * sizeof(uint64_t)) : NULL;
    if (prefixes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->prefixes = prefixes;
    self->room = room;
    return 0;
}

/* Inserts a page after the first page. The directory must have room for it. */
static void insert_page(PagedMap *self, size_t index, Page *page) {
    memmove(self->directory + index + 1, self->directory + index, (self->count - index) * sizeof(Page *));
    memmove(self->prefixes + index + 1, self->prefixes + index, (self->count - index) * sizeof(uint64_t));
    self->directory[index] = page;
    self->count++;
    self->next_id++;
    self->is_directory_changed = 1;
    if (self->count == 2 || common(first_key_at(self, 1), first_key_at(self, self->count - 1)) < self->skip)
        set_directory_prefixes(self);
    else self->prefixes[index] = prefix64(first_key_of(page), self->skip);
}

/* Makes room for the ids of `pages` pages to be removed. */
static int reserve_deleted(PagedMap *self, size_t pages) {
    if (self->deleted_room - self->n_deleted >= pages) return 0;
    size_t room = enlarge(self->n_deleted + pages);
    int64_t *deleted = PyMem_Realloc(self->deleted, room * sizeof(int64_t));
    if (deleted == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->deleted = deleted;
    self->deleted_room = room;
    return 0;
}

/* Removes pages `from` to `to` (exclusive). One page must remain, and there must be room for the removed ids. */
static void remove_pages(PagedMap *self, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        Page *page = self->directory[i];
        self->deleted[self->n_deleted++] = page->id;
        unload(self, page);
        free_page(page);
    }
    memmove(self->directory + from, self->directory + to, (self->count - to) * sizeof(Page *));
    memmove(self->prefixes + from, self->prefixes + to, (self->count - to) * sizeof(uint64_t));
    self->count -= to - from;
    self->is_directory_changed = 1;
    self->hint_page = NULL;
    Slice empty = {NULL, 0};
    if (!from) set_first_key(self->directory[0], empty); /* cannot fail */
}

/* Removes all pages except the first, which becomes the only page of a new directory. */
static void reset_directory(PagedMap *self) {
    for (size_t i = 0; i < self->count; i++) unload(self, self->directory[i]);
    for (size_t i = 1; i < self->count; i++) free_page(self->directory[i]);
    Slice empty = {NULL, 0};
    set_first_key(self->directory[0], empty); /* cannot fail */
    self->directory[0]->id = 1;
    self->count = 1;
    self->skip = self->n_deleted = 0;
    self->next_id = 2;
    self->entries = self->memory_bytes = 0;
    self->is_directory_changed = 0;
    self->hint_page = NULL;
}

/* ---- PagedMap: reading pages ------------------------------------------------------------------ */

/* Decodes a page that was read; `data` is None if the page does not exist. */
static int add_page(PagedMap *self, size_t index, PyObject *data) {
    Page *page = self->directory[index];
    Slice first_key = first_key_of(page), stop = {NULL, 0};
    int has_stop = index + 1 < self->count;
    if (has_stop) stop = first_key_at(self, index + 1);
    if (data != Py_None) {
        Slice slice = {(const uint8_t *)PyBytes_AsString(data), (size_t)PyBytes_Size(data)};
        int done = decode_page(page, slice, has_stop ? &stop : NULL);
        if (done > 0) add_unchanged(self, page);
        if (done) return done < 0 ? -1 : 0;
    }
    /* Decode the page in Python, which raises an error that describes the problem. */
    PyObject *found = PyObject_CallFunction(
        self->module->decode_page, "OOLOy#y#", self->pages, self->store, (long long)page->id, data,
        first_key.size ? (const char *)first_key.at : "", (Py_ssize_t)first_key.size, (const char *)stop.at,
        (Py_ssize_t)stop.size);
    if (found != NULL) {
        Py_DECREF(found);
        PyErr_SetString(PyExc_SystemError, "a valid page was rejected");
    }
    return -1;
}

/* Reads the pages between `from` and `to` (exclusive) that are not in memory, with one call. */
static int read_missing(PagedMap *self, size_t from, size_t to) {
    int result = -1;
    PyObject *ids = NULL, *found = NULL;
    self->busy = 1;
    if (self->pages == NULL) {
        PyErr_SetString(PyExc_SystemError, "a page of an in-memory map is missing");
        goto done;
    }
    ids = PyList_New(0);
    for (size_t i = from; ids != NULL && i < to; i++) {
        if (self->directory[i]->state != NOT_IN_MEMORY) continue;
        PyObject *id = PyLong_FromLongLong(self->directory[i]->id);
        int failed = id == NULL || PyList_Append(ids, id) < 0;
        Py_XDECREF(id);
        if (failed) goto done;
    }
    if (ids == NULL) goto done;
    found = PyObject_CallFunctionObjArgs(self->module->read_entry_pages, self->pages, self->store, ids, NULL);
    if (found == NULL) goto done;
    self->pages_read += PyList_Size(ids);
    Py_ssize_t next = 0;
    for (size_t i = from; i < to; i++) {
        if (self->directory[i]->state != NOT_IN_MEMORY) continue;
        PyObject *data = PyList_GetItem(found, next++); /* NULL if `found` is not a list or is too short */
        if (data == NULL || add_page(self, i, data) < 0) goto done;
    }
    result = 0;
done:
    self->busy = 0;
    Py_XDECREF(ids);
    Py_XDECREF(found);
    return result;
}

static int ensure_loaded(PagedMap *self, size_t index) {
    return self->directory[index]->state == NOT_IN_MEMORY ? read_missing(self, index, index + 1) : 0;
}

/* Finds the page and position of a key. The page is read if it is not in memory. */
static int find_place(PagedMap *self, Slice key, Place *place) {
    Slice hint = {self->hint_key, self->hint_size};
    if (self->hint_page != NULL && equal(key, hint)) {
        place->index = self->hint_index;
        place->position = self->hint_position;
        place->page = self->hint_page;
        place->is_found = self->hint_is_found;
        place->was_read = 0;
        return 0;
    }
    place->index = find_page(self, key);
    place->page = self->directory[place->index];
    place->was_read = place->page->state == NOT_IN_MEMORY;
    if (place->was_read && read_missing(self, place->index, place->index + 1) < 0) return -1;
    place->position = find_in_page(place->page, key, &place->is_found);
    self->hint_page = NULL;
    if (key.size <= HINT_BYTES) {
        self->hint_page = place->page;
        self->hint_index = place->index;
        self->hint_position = place->position;
        self->hint_is_found = place->is_found;
        self->hint_size = key.size;
        if (key.size) memcpy(self->hint_key, key.at, key.size);
    }
    return 0;
}

/* Sets the directory from a Directory object that load_directory() returned. */
static int set_directory(PagedMap *self, PyObject *directory) {
    int result = -1;
    PyObject *const *names = self->module->names, *ids = NULL, *next_id = NULL, *encoded = NULL;
    PyObject *first_keys = PyObject_GetAttr(directory, names[FIRST_KEYS]);
    if (first_keys == NULL) goto done;
    ids = PyObject_GetAttr(directory, names[IDS]);
    if (ids == NULL) goto done;
    next_id = PyObject_GetAttr(directory, names[NEXT_ID]);
    if (next_id == NULL) goto done;
    encoded = PyObject_GetAttr(directory, names[ENCODED]);
    if (encoded == NULL) goto done;
    self->next_id = PyLong_AsLongLong(next_id);
    Py_ssize_t count = PyList_Size(first_keys);
    if (PyErr_Occurred() || reserve_directory(self, (size_t)count) < 0) goto done;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *key = PyList_GetItem(first_keys, i), *id = PyList_GetItem(ids, i);
        char *at;
        Py_ssize_t size;
        if (key == NULL || id == NULL || PyBytes_AsStringAndSize(key, &at, &size) < 0) goto done;
        Slice slice = {(const uint8_t *)at, (size_t)size};
        long long number = PyLong_AsLongLong(id);
        if (PyErr_Occurred()) goto done;
        if (i) {
            Page *page = new_page(number, slice);
            if (page == NULL) goto done;
            self->directory[self->count++] = page;
        } else {
            self->directory[0]->id = number;
        }
    }
    PyObject *before = self->encoded;
    Py_INCREF(encoded);
    self->encoded = encoded;
    Py_XDECREF(before);
    result = 0;
done:
    set_directory_prefixes(self);
    Py_XDECREF(first_keys);
    Py_XDECREF(ids);
    Py_XDECREF(next_id);
    Py_XDECREF(encoded);
    return result;
}

/* Loads the directory of the last commit, or creates a new directory. */
static int load(PagedMap *self) {
    int result = -1;
    PyObject *found = NULL, *empty = NULL;
    self->busy = 1;
    reset_directory(self);
    if (self->pages != NULL) {
        found = PyObject_CallFunctionObjArgs(self->module->load_directory, self->pages, self->store, self->layout, NULL);
        if (found == NULL) goto done;
    }
    if (found != NULL && found != Py_None) {
        PyObject *directory;
        long long entries;
        if (!PyArg_ParseTuple(found, "OL", &directory, &entries) || set_directory(self, directory) < 0) goto done;
        self->entries = entries;
    } else {
        empty = PyList_New(0);
        if (empty == NULL) goto done;
        PyObject *encoded = PyObject_CallFunctionObjArgs(self->module->encoded_directory, empty, NULL);
        if (encoded == NULL) goto done;
        PyObject *before = self->encoded;
        self->encoded = encoded;
        Py_XDECREF(before);
        add_unchanged(self, self->directory[0]);
    }
    result = 0;
done:
    self->busy = 0;
    Py_XDECREF(found);
    Py_XDECREF(empty);
    return result;
}

/* ---- PagedMap: entries ------------------------------------------------------------------------ */

static int check_usable(PagedMap *self) {
    return self->busy ? raise_error(self->module->reentrant_error, self->store) : 0;
}

static int check_writable(PagedMap *self) {
    if (check_usable(self) < 0) return -1;
    return self->is_read_only ? raise_error(self->module->read_only_error, self->store) : 0;
}

/* Without a page store, keeps the committed value of a key (NULL if it had none) for a rollback. */
static int remember(PagedMap *self, Slice key, const Slice *value) {
    if (self->undo == NULL) return 0;
    PyObject *name = to_bytes(key), *old = NULL;
    int done = name != NULL ? PyDict_Contains(self->undo, name) : -1;
    if (done == 0) {
        old = value != NULL ? to_bytes(*value) : Py_None;
        done = old != NULL ? PyDict_SetItem(self->undo, name, old) : -1;
        if (value != NULL) Py_XDECREF(old);
    }
    Py_XDECREF(name);
    return done < 0 ? -1 : 0;
}

static int remember_entries(PagedMap *self, const Page *page, size_t from, size_t to) {
    for (size_t i = from; self->undo != NULL && i < to; i++) {
        const uint8_t *entry = entry_at(page, i);
        Slice value = value_of(entry);
        if (remember(self, key_of(entry), &value) < 0) return -1;
    }
    return 0;
}

/* Moves the second half of a changed page to a new page. */
static int split_page(PagedMap *self, size_t index) {
    Page *page = self->directory[index], moved;
    size_t middle = find_middle(page), bytes = 0;
    for (size_t i = middle; i < page->count; i++) bytes += entry_size(entry_at(page, i));
    if (reserve_directory(self, self->count + 1) < 0) return -1;
    Page *right = new_page(self->next_id, key_at(page, middle));
    if (right == NULL) return -1;
    if (allocate(&moved, enlarge(bytes), enlarge(page->count - middle)) < 0) {
        free_page(right);
        return -1;
    }
    copy_entries(&moved, page, middle, page->count);
    take_entries(right, &moved);
    page->count = middle;
    page->live -= bytes;
    set_prefixes(page);
    trim(page);
    insert_page(self, index + 1, right);
    append_page(&self->changed, right, CHANGED);
    self->memory_bytes += HEAD_BYTES;
    self->hint_page = NULL;
    return 0;
}

/* Sets the value of a key. */
static int put(PagedMap *self, Slice key, const Encoded *value) {
    Place place;
    size_t size = value_size(value), bytes = LENGTHS_BYTES + key.size + size;
    self->puts++;
    if (find_place(self, key, &place) < 0) return -1;
    Page *page = place.page;
    if (key.size > UINT32_MAX || size > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "keys and values must be smaller than 4 GiB");
        return -1;
    }
    int64_t before = page_size(page);
    if (place.is_found) {
        Slice old = value_of(entry_at(page, place.position));
        if (size > old.size && reserve(page, bytes, 0) < 0) return -1;
        old = value_of(entry_at(page, place.position));
        if (remember(self, key, &old) < 0) return -1;
        replace_value(page, place.position, key, value);
        if (size < old.size) trim(page);
    } else {
        if (reserve(page, bytes, 1) < 0 || remember(self, key, NULL) < 0) return -1;
        insert_entry(page, place.position, key, value);
        self->entries++;
        self->hint_is_found = 1;
    }
    mark_changed(self, page);
    self->memory_bytes += page_size(page) - before;
    if (page_size(page) > self->page_bytes && page->count > 1 && split_page(self, place.index) < 0) return -1;
    evict(self);
    return 0;
}

/* Deletes a key; sets *old to its value, or to NULL if there was none. */
static int delete(PagedMap *self, Slice key, PyObject **old) {
    Place place;
    *old = NULL;
    self->puts++;
    if (find_place(self, key, &place) < 0) return -1;
    if (!place.is_found) {
        evict(self);
        return 0;
    }
    Page *page = place.page;
    Slice value = value_of(entry_at(page, place.position));
    *old = to_bytes(value);
    if (*old == NULL || reserve_deleted(self, 1) < 0 || remember(self, key, &value) < 0) {
        Py_CLEAR(*old);
        return -1;
    }
    int64_t before = page_size(page);
    self->hint_page = NULL;
    mark_changed(self, page);
    remove_entries(page, place.position, place.position + 1);
    self->memory_bytes += page_size(page) - before;
    self->entries--;
    if (!page->count && self->count > 1) remove_pages(self, place.index, place.index + 1);
    evict(self);
    return 0;
}

/* Removes the entries of one page whose keys are between `start` and `stop` (exclusive). */
static int discard_entries(PagedMap *self, size_t index, Slice start, Slice stop) {
    if (ensure_loaded(self, index) < 0) return -1;
    Page *page = self->directory[index];
    size_t from = find_not_less(page, start), to = find_not_less(page, stop);
    if (to <= from) return 0;
    if (remember_entries(self, page, from, to) < 0) return -1;
    int64_t before = page_size(page);
    self->hint_page = NULL;
    mark_changed(self, page);
    remove_entries(page, from, to);
    self->memory_bytes += page_size(page) - before;
    self->entries -= (int64_t)(to - from);
    return 0;
}

/* Removes pages `from` to `to` (exclusive). The entry counts of pages that are not in memory are estimated. */
static int discard_pages(PagedMap *self, size_t from, size_t to) {
    int64_t pages = (int64_t)self->count, average = self->entries / pages;
    if (self->entries % pages < 0) average--; /* rounded down, as in Python */
    if (reserve_deleted(self, to - from) < 0) return -1;
    for (size_t i = from; i < to; i++)
        if (remember_entries(self, self->directory[i], 0, self->directory[i]->count) < 0) return -1;
    for (size_t i = from; i < to; i++) {
        const Page *page = self->directory[i];
        self->entries -= page->state == NOT_IN_MEMORY ? average : (int64_t)page->count;
    }
    remove_pages(self, from, to);
    return 0;
}

/* Removes a page if it has no entries, unless it is the only page. */
static int discard_empty(PagedMap *self, size_t index) {
    if (self->count == 1) return 0;
    if (ensure_loaded(self, index) < 0) return -1;
    if (self->directory[index]->count) return 0;
    if (reserve_deleted(self, 1) < 0) return -1;
    remove_pages(self, index, index + 1);
    return 0;
}

static int discard(PagedMap *self, Slice start, Slice stop) {
    size_t first = find_page(self, start), end = find_first_key(self, stop);
    if (end <= first) return 0;
    size_t last = end - 1;
    if (discard_entries(self, first, start, stop) < 0) return -1;
    if (last > first && discard_entries(self, last, start, stop) < 0) return -1;
    if (last - first > 1) {
        if (discard_pages(self, first + 1, last) < 0) return -1;
        last = first + 1;
    }
    if (last > first && discard_empty(self, last) < 0) return -1;
    if (discard_empty(self, first) < 0) return -1;
    evict(self);
    return 0;
}

/* Appends entries `from` to `to` (exclusive) of a page to a list of pairs. */
static int append_pairs(PyObject *found, const Page *page, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        const uint8_t *entry = entry_at(page, i);
        PyObject *key = to_bytes(key_of(entry)), *value = to_bytes(value_of(entry));
        PyObject *pair = key != NULL && value != NULL ? PyTuple_Pack(2, key, value) : NULL;
        Py_XDECREF(key);
        Py_XDECREF(value);
        if (pair == NULL) return -1;
        PyObject_GC_UnTrack(pair); /* it cannot be part of a reference cycle */
        int done = PyList_Append(found, pair);
        Py_DECREF(pair);
        if (done < 0) return -1;
    }
    return 0;
}

static int scan(PagedMap *self, PyObject *found, Slice start, const Slice *stop) {
    size_t first = find_page(self, start), end = stop != NULL ? find_first_key(self, *stop) : self->count;
    self->gets++;
    for (size_t low = first; low < end; low += SCAN_PAGES) {
        size_t high = least(low + SCAN_PAGES, end);
        int is_missing = 0;
        for (size_t i = low; i < high; i++) is_missing |= self->directory[i]->state == NOT_IN_MEMORY;
        if (is_missing && read_missing(self, low, high) < 0) return -1;
        self->busy = 1; /* the garbage collector may run when pairs are created */
        for (size_t i = low; i < high; i++) {
            const Page *page = self->directory[i];
            size_t from = find_not_less(page, start), to = stop != NULL ? find_not_less(page, *stop) : page->count;
            if (append_pairs(found, page, from, to) < 0) {
                self->busy = 0;
                return -1;
            }
        }
        self->busy = 0;
        evict(self);
    }
    return 0;
}

/* ---- PagedMap: commits ------------------------------------------------------------------------ */

/* Joins a page with the next page if both are in memory and fit in one page; returns whether they were joined. */
static int join(PagedMap *self, size_t index) {
    if (index + 1 >= self->count) return 0;
    Page *left = self->directory[index], *right = self->directory[index + 1], joined;
    if (left->state == NOT_IN_MEMORY || right->state == NOT_IN_MEMORY ||
        page_size(left) + page_size(right) > self->page_bytes - (self->page_bytes >> 2))
        return 0;
    size_t bytes = left->live + right->live, count = left->count + right->count;
    if (reserve_deleted(self, 1) < 0 || allocate(&joined, enlarge(bytes), enlarge(count)) < 0) return -1;
    copy_entries(&joined, left, 0, left->count);
    copy_entries(&joined, right, 0, right->count);
    mark_changed(self, left);
    remove_pages(self, index + 1, index + 2);
    int64_t before = page_size(left);
    take_entries(left, &joined);
    self->memory_bytes += page_size(left) - before;
    return 1;
}

/* Joins small changed pages with a neighbor that is in memory, in the order in which they changed. */
static int join_small_pages(PagedMap *self) {
    for (Page *page = self->changed.first; page != NULL; page = page->next) page->is_pending = 1;
    self->next_to_join = self->changed.first;
    while (self->next_to_join != NULL && self->next_to_join->is_pending) {
        Page *page = self->next_to_join;
        self->next_to_join = page->next;
        page->is_pending = 0;
        if (!page->count || page_size(page) >= self->page_bytes >> 2) continue;
        size_t index = find_page(self, key_at(page, 0));
        int done = join(self, index);
        if (done == 0 && index) done = join(self, index - 1);
        if (done < 0) {
            self->next_to_join = NULL;
            return -1;
        }
    }
    self->next_to_join = NULL;
    return 0;
}

/* Sets a page in a dictionary of changes. The reference to `data` is released. */
static int set_page(PyObject *changes, int64_t id, PyObject *data) {
    PyObject *key = data != NULL ? PyLong_FromLongLong(id) : NULL;
    int done = key != NULL ? PyDict_SetItem(changes, key, data) : -1;
    Py_XDECREF(key);
    Py_XDECREF(data);
    return done;
}

/* Adds the changed directory pages to `changes`; returns the number of directory pages, or -1 on error. */
static Py_ssize_t encode_directory(PagedMap *self, PyObject *changes) {
    Py_ssize_t pages = PyObject_Size(self->encoded);
    if (pages < 0 || (pages && !self->is_directory_changed)) return pages;
    pages = -1;
    PyObject *first_keys = PyList_New((Py_ssize_t)self->count), *ids = PyList_New((Py_ssize_t)self->count);
    PyObject *limit = PyLong_FromLongLong(self->page_bytes), *result = NULL, *changed;
    for (size_t i = 0; i < self->count; i++) {
        PyObject *key = first_keys != NULL && ids != NULL && limit != NULL ? to_bytes(first_key_at(self, i)) : NULL;
        PyObject *id = key != NULL ? PyLong_FromLongLong(self->directory[i]->id) : NULL;
        if (id == NULL) {
            Py_XDECREF(key);
            goto done;
        }
        PyList_SetItem(first_keys, (Py_ssize_t)i, key);
        PyList_SetItem(ids, (Py_ssize_t)i, id);
    }
    result = PyObject_CallMethodObjArgs(self->encoded, self->module->names[UPDATE], first_keys, ids, limit, NULL);
    if (result == NULL || !PyArg_ParseTuple(result, "nO", &pages, &changed)) goto done;
    if (PyDict_Update(changes, changed) < 0) pages = -1;
done:
    Py_XDECREF(first_keys);
    Py_XDECREF(ids);
    Py_XDECREF(limit);
    Py_XDECREF(result);
    return pages;
}

static PyObject *encode_changes(PagedMap *self) {
    if (join_small_pages(self) < 0) return NULL;
    PyObject *changes = PyDict_New(), *header = NULL;
    if (changes == NULL) return NULL;
    for (size_t i = 0; i < self->n_deleted; i++) {
        Py_INCREF(Py_None);
        if (set_page(changes, self->deleted[i], Py_None) < 0) goto failed;
    }
    for (const Page *page = self->changed.first; page != NULL; page = page->next)
        if (set_page(changes, page->id, encode_page(page)) < 0) goto failed;
    Py_ssize_t pages = encode_directory(self, changes);
    if (pages < 0) goto failed;
    header = PyObject_CallFunction(self->module->header, "LLnO", (long long)self->next_id, (long long)self->entries,
                                   pages, self->layout);
    if (header == NULL) goto failed;
    PyObject *data = PyObject_CallMethodObjArgs(header, self->module->names[ENCODE], NULL);
    if (set_page(changes, 0, data) < 0) goto failed;
    Py_DECREF(header);
    return changes;
failed:
    Py_XDECREF(header);
    Py_DECREF(changes);
    return NULL;
}

/* Discards all changes. Any later use raises an error. */
static int close_map(PagedMap *self) {
    self->busy = 1;
    PyObject *closed = PyObject_CallFunctionObjArgs(self->module->closed_pages, self->store, NULL);
    self->busy = 0;
    if (closed == NULL) return -1;
    for (size_t i = 0; i < self->count; i++) unload(self, self->directory[i]);
    self->memory_bytes = 0;
    PyObject *pages = self->pages, *undo = self->undo;
    self->pages = closed;
    self->undo = NULL;
    Py_XDECREF(pages);
    Py_XDECREF(undo);
    return 0;
}

/* Restores the committed values of all keys that changed since the last commit. */
static int undo_changes(PagedMap *self) {
    PyObject *fresh = PyDict_New(), *undo = self->undo, *key, *value, *old;
    if (fresh == NULL) return -1;
    Py_ssize_t at = 0;
    int failed = 0;
    self->undo = NULL; /* so that remember() ignores the following changes */
    while (!failed && PyDict_Next(undo, &at, &key, &value)) {
        Slice name = {(const uint8_t *)PyBytes_AsString(key), (size_t)PyBytes_Size(key)};
        if (value == Py_None) {
            failed = delete(self, name, &old) < 0;
            Py_XDECREF(old);
        } else {
            Encoded content = {{0}, 0, {(const uint8_t *)PyBytes_AsString(value), (size_t)PyBytes_Size(value)}, NULL};
            failed = put(self, name, &content) < 0;
        }
    }
    self->undo = failed ? undo : fresh;
    Py_DECREF(failed ? fresh : undo);
    return failed ? -1 : 0;
}

/* ---- PagedMap: methods ------------------------------------------------------------------------ */

static PyObject *none_or_error(int done) {
    if (done < 0) return NULL;
    return Py_NewRef(Py_None);
}

static PyObject *map_get(PyObject *object, PyObject *name) {
    PagedMap *self = (PagedMap *)object;
    Slice key;
    Place place;
    if (view_bytes(name, "key", "bytes", &key) < 0 || check_usable(self) < 0) return NULL;
    self->gets++;
    if (find_place(self, key, &place) < 0) return NULL;
    PyObject *value = Py_None;
    if (place.is_found) value = to_bytes(value_of(entry_at(place.page, place.position)));
    else Py_INCREF(value);
    if (place.was_read) evict(self);
    return value;
}

static int count_arguments(const char *name, Py_ssize_t expected, Py_ssize_t given) {
    if (given == expected) return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, got %zd", name, expected, given);
    return -1;
}

static PyObject *map_put(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
    PagedMap *self = (PagedMap *)object;
    Slice key;
    Encoded value = {{0}, 0, {NULL, 0}, NULL};
    if (count_arguments("put", 2, nargs) < 0 || view_bytes(args[0], "key", "bytes", &key) < 0 ||
        view_bytes(args[1], "value", "bytes", &value.tail) < 0 || check_writable(self) < 0)
        return NULL;
    return none_or_error(put(self, key, &value));
}

static PyObject *map_delete(PyObject *object, PyObject *name) {
    PagedMap *self = (PagedMap *)object;
    Slice key;
    PyObject *old;
    if (view_bytes(name, "key", "bytes", &key) < 0 || check_writable(self) < 0) return NULL;
    if (delete(self, key, &old) < 0) return NULL;
    if (old == NULL) return Py_NewRef(Py_None);
    return old;
}

static PyObject *map_scan(PyObject *object, PyObject *args, PyObject *kwargs) {
    PagedMap *self = (PagedMap *)object;
    static char *names[] = {"start", "stop", "reverse", NULL};
    PyObject *start = NULL, *stop = Py_None;
    int is_reverse = 0;
    Slice first = {(const uint8_t *)"", 0}, end;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOp:scan", names, &start, &stop, &is_reverse) ||
        (start != NULL && view_bytes(start, "start", "bytes", &first) < 0) ||
        (stop != Py_None && view_bytes(stop, "stop", "bytes", &end) < 0) || check_usable(self) < 0)
        return NULL;
    PyObject *found = PyList_New(0);
    if (found == NULL || (stop != Py_None && compare(end, first) <= 0)) return found;
    if (check_usable(self) < 0 || scan(self, found, first, stop == Py_None ? NULL : &end) < 0 ||
        (is_reverse && PyList_Reverse(found) < 0))
        Py_CLEAR(found);
    return found;
}

static PyObject *map_discard(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
    PagedMap *self = (PagedMap *)object;
    Slice start, stop;
    if (count_arguments("discard", 2, nargs) < 0 || view_bytes(args[0], "start", "bytes", &start) < 0 ||
        view_bytes(args[1], "stop", "bytes", &stop) < 0 || check_writable(self) < 0)
        return NULL;
    return none_or_error(discard(self, start, stop));
}

static PyObject *map_collect_changes(PyObject *object, PyObject *Py_UNUSED(unused)) {
    PagedMap *self = (PagedMap *)object;
    if (check_usable(self) < 0) return NULL;
    if (self->pages == NULL || (self->changed.first == NULL && !self->is_directory_changed)) return PyDict_New();
    self->busy = 1;
    PyObject *changes = encode_changes(self);
    self->busy = 0;
    return changes;
}

/* Calls a method of the page store with `changes`, unless it is empty. */
static int call_pages(PagedMap *self, int method, PyObject *changes) {
    if (self->pages == NULL) return 0;
    self->busy = 1;
    int is_needed = PyObject_IsTrue(changes);
    PyObject *name = self->module->names[method];
    PyObject *result = is_needed > 0 ? PyObject_CallMethodObjArgs(self->pages, name, changes, NULL) : NULL;
    self->busy = 0;
    Py_XDECREF(result);
    return is_needed < 0 || (is_needed && result == NULL) ? -1 : 0;
}

static PyObject *map_write(PyObject *object, PyObject *changes) {
    PagedMap *self = (PagedMap *)object;
    if (check_usable(self) < 0 || call_pages(self, WRITE, changes) < 0) return NULL;
    Py_ssize_t pages = self->pages != NULL ? PyObject_Size(changes) : 0;
    if (pages < 0) return NULL;
    self->pages_written += pages;
    return Py_NewRef(Py_None);
}

static PyObject *map_finish_commit(PyObject *object, PyObject *changes) {
    PagedMap *self = (PagedMap *)object;
    if (check_usable(self) < 0 || call_pages(self, FINISH_COMMIT, changes) < 0) return NULL;
    self->busy = 1;
    PyObject *name = self->module->names[FINISH_COMMIT];
    PyObject *result = self->undo != NULL ? PyDict_New() : PyObject_CallMethodObjArgs(self->encoded, name, NULL);
    self->busy = 0;
    if (result == NULL) return NULL;
    PyObject *before = self->undo;
    if (self->undo != NULL) self->undo = result;
    else before = result;
    Py_DECREF(before);
    while (self->changed.first != NULL) {
        Page *page = self->changed.first;
        unlink_page(&self->changed, page);
        append_page(&self->unchanged, page, UNCHANGED);
    }
    self->n_deleted = 0;
    self->is_directory_changed = 0;
    evict(self);
    return Py_NewRef(Py_None);
}

static PyObject *map_rollback(PyObject *object, PyObject *Py_UNUSED(unused)) {
    PagedMap *self = (PagedMap *)object;
    if (check_usable(self) < 0) return NULL;
    if (self->undo != NULL) return none_or_error(undo_changes(self));
    if (load(self) < 0) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        if (close_map(self) < 0) PyErr_Clear(); /* the map remains empty */
        PyErr_Restore(type, value, traceback);
        return NULL;
    }
    return Py_NewRef(Py_None);
}

static PyObject *map_close(PyObject *object, PyObject *Py_UNUSED(unused)) {
    PagedMap *self = (PagedMap *)object;
    if (check_usable(self) < 0) return NULL;
    return none_or_error(close_map(self));
}

static PyObject *map_require_writable(PyObject *object, PyObject *Py_UNUSED(unused)) {
    return none_or_error(check_writable((PagedMap *)object));
}

static Py_ssize_t map_length(PyObject *object) {
    PagedMap *self = (PagedMap *)object;
    return self->entries > 0 ? (Py_ssize_t)self->entries : 0;
}

static PyObject *map_sizeof(PyObject *object, PyObject *Py_UNUSED(unused)) {
    PagedMap *self = (PagedMap *)object;
    size_t bytes = sizeof(PagedMap) + self->room * (sizeof(Page *) + sizeof(uint64_t));
    bytes += self->deleted_room * sizeof(int64_t);
    for (size_t i = 0; i < self->count; i++) {
        const Page *page = self->directory[i];
        bytes += sizeof(Page) + page->first_key_size + page->arena_room + page->index_room * sizeof(uint64_t);
    }
    return PyLong_FromSize_t(bytes);
}

static PyObject *map_memory_bytes(PyObject *object, void *Py_UNUSED(unused)) {
    return PyLong_FromLongLong(((PagedMap *)object)->memory_bytes);
}

/* Returns the counter at the given offset in the PagedMap struct. */
static PyObject *map_counter(PyObject *object, void *offset) {
    int64_t number;
    memcpy(&number, (const char *)object + (uintptr_t)offset, sizeof number);
    return PyLong_FromLongLong(number);
}

static PyObject *map_is_read_only(PyObject *object, void *Py_UNUSED(unused)) {
    return PyBool_FromLong(((PagedMap *)object)->is_read_only);
}

static int map_set_read_only(PyObject *object, PyObject *value, void *Py_UNUSED(unused)) {
    int is_true = value != NULL ? PyObject_IsTrue(value) : -1;
    if (value == NULL) PyErr_SetString(PyExc_AttributeError, "is_read_only cannot be deleted");
    if (is_true >= 0) ((PagedMap *)object)->is_read_only = is_true;
    return is_true < 0 ? -1 : 0;
}

/* Gets an attribute of the limits. A value greater than `maximum` is reduced to it. */
static int parse_limit(PyObject *limits, PyObject *name, int64_t maximum, int64_t *limit) {
    int overflow;
    PyObject *number = PyObject_GetAttr(limits, name);
    if (number == NULL) return -1;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    if (value == -1 && PyErr_Occurred()) return -1;
    if (overflow) value = overflow > 0 ? maximum : 0;
    *limit = value > maximum ? maximum : value < -1 ? -1 : value;
    return 0;
}

static PyObject *map_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"pages", "store", "layout", "limits", NULL};
    PyObject *pages, *store = NULL, *layout = NULL, *limits = NULL;
    Module *module = PyType_GetModuleState(type);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|UUO:PagedMap", names, &pages, &store, &layout, &limits))
        return NULL;
    PagedMap *self = (PagedMap *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    Slice empty = {NULL, 0};
    self->busy = 1;
    self->module = module;
    if (store != NULL) Py_INCREF(store);
    if (layout != NULL) Py_INCREF(layout);
    self->store = store != NULL ? store : PyUnicode_FromString("");
    self->layout = layout != NULL ? layout : PyUnicode_FromString("");
    if (self->store == NULL || self->layout == NULL || reserve_directory(self, 1) < 0) goto failed;
    self->directory[0] = new_page(1, empty);
    if (self->directory[0] == NULL) goto failed;
    self->count = 1;
    set_directory_prefixes(self);
    if (limits == NULL) limits = module->default_limits;
    if (parse_limit(limits, module->names[PAGE_BYTES], MAX_PAGE_BYTES, &self->page_bytes) < 0 ||
        parse_limit(limits, module->names[MEMORY_BYTES], INT64_MAX, &self->memory_limit) < 0)
        goto failed;
    /* The empty page of a new map must fit in memory, because it cannot be read before it is written. */
    if (self->memory_limit < HEAD_BYTES) self->memory_limit = HEAD_BYTES;
    if (pages == Py_None) {
        self->undo = PyDict_New();
        if (self->undo == NULL) goto failed;
    } else {
        Py_INCREF(pages);
        self->pages = pages;
    }
    if (load(self) < 0) goto failed;
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static int map_traverse(PyObject *object, visitproc visit, void *arg) {
    PagedMap *self = (PagedMap *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->pages);
    Py_VISIT(self->undo);
    Py_VISIT(self->encoded);
    return 0;
}

/* Only the page store can be part of a reference cycle, and a finalizer may use the map after this call. */
static int map_clear(PyObject *object) {
    Py_CLEAR(((PagedMap *)object)->pages);
    return 0;
}

static void map_dealloc(PyObject *object) {
    PagedMap *self = (PagedMap *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    for (size_t i = 0; i < self->count; i++) free_page(self->directory[i]);
    PyMem_Free(self->directory);
    PyMem_Free(self->prefixes);
    PyMem_Free(self->deleted);
    Py_XDECREF(self->pages);
    Py_XDECREF(self->store);
    Py_XDECREF(self->layout);
    Py_XDECREF(self->undo);
    Py_XDECREF(self->encoded);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyMethodDef map_methods[] = {
    {"get", map_get, METH_O, "get($self, key, /)\n--\n\nSee pages.PagedMap.get."},
    {"put", (PyCFunction)(void (*)(void))map_put, METH_FASTCALL,
     "put($self, key, value, /)\n--\n\nSee pages.PagedMap.put."},
    {"delete", map_delete, METH_O, "delete($self, key, /)\n--\n\nSee pages.PagedMap.delete."},
    {"scan", (PyCFunction)(void (*)(void))map_scan, METH_VARARGS | METH_KEYWORDS,
     "scan($self, start=b'', stop=None, reverse=False)\n--\n\nSee pages.PagedMap.scan."},
    {"discard", (PyCFunction)(void (*)(void))map_discard, METH_FASTCALL,
     "discard($self, start, stop, /)\n--\n\nSee pages.PagedMap.discard."},
    {"collect_changes", map_collect_changes, METH_NOARGS,
     "collect_changes($self, /)\n--\n\nSee pages.PagedMap.collect_changes."},
    {"write", map_write, METH_O, "write($self, changes, /)\n--\n\nSee pages.PagedMap.write."},
    {"finish_commit", map_finish_commit, METH_O,
     "finish_commit($self, changes, /)\n--\n\nSee pages.PagedMap.finish_commit."},
    {"rollback", map_rollback, METH_NOARGS, "rollback($self, /)\n--\n\nSee pages.PagedMap.rollback."},
    {"close", map_close, METH_NOARGS, "close($self, /)\n--\n\nSee pages.PagedMap.close."},
    {"require_writable", map_require_writable, METH_NOARGS,
     "require_writable($self, /)\n--\n\nSee pages.PagedMap.require_writable."},
    {"__sizeof__", map_sizeof, METH_NOARGS,
     "__sizeof__($self, /)\n--\n\nReturn the size of this object and its pages in bytes."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef map_attributes[] = {
    {"is_read_only", map_is_read_only, map_set_read_only, "Whether writes raise an error.", NULL},
    {"memory_bytes", map_memory_bytes, NULL, "Encoded size of the pages in memory, in bytes.", NULL},
    {"gets", map_counter, NULL, "Number of gets and scans.", (void *)offsetof(PagedMap, gets)},
    {"puts", map_counter, NULL, "Number of puts and deletes.", (void *)offsetof(PagedMap, puts)},
    {"pages_read", map_counter, NULL, "Number of entry pages that were read.", (void *)offsetof(PagedMap, pages_read)},
    {"pages_written", map_counter, NULL, "Number of pages that were written or deleted.",
     (void *)offsetof(PagedMap, pages_written)},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot map_slots[] = {
    {Py_tp_doc, "PagedMap(pages, store='', layout='', limits=...)\n--\n\nSee pages.PagedMap."},
    {Py_tp_new, map_new},
    {Py_tp_dealloc, map_dealloc},
    {Py_tp_traverse, map_traverse},
    {Py_tp_clear, map_clear},
    {Py_tp_methods, map_methods},
    {Py_tp_getset, map_attributes},
    {Py_mp_length, map_length},
    {0, NULL},
};

static PyType_Spec map_spec = {
    STORES "_pages.PagedMap", sizeof(PagedMap), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    map_slots,
};

/* ---- SerdeMap --------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Module *module;
    PagedMap *entries; /* NULL after tp_clear */
    PyObject *serialize_key, *serialize_value, *deserialize_value;
    int key_codec, value_codec, result_codec;
} SerdeMap;

/* Encodes an object with encode_object(), after the numbers that `encoded` already contains. */
static int encode(PyObject *object, int codec, Encoded *encoded) {
    uint8_t *number = encoded->head + encoded->head_size;
    Slice bytes;
    if (!encode_object(object, codec, number, &bytes)) return 0;
    if (bytes.at == number) encoded->head_size += bytes.size;
    else encoded->tail = bytes;
    return 1;
}

/* Encodes a ValueAndTimestamp, like encode(). Returns 2 if its value is None. */
static int encode_timestamped(const Module *module, PyObject *object, int codec, Encoded *encoded) {
    PyObject *value;
    int64_t timestamp;
    int found = split_timestamped(module->value_and_timestamp, object, &value, &timestamp);
    if (found != 1) return found;
    store_big64(encoded->head, (uint64_t)timestamp);
    encoded->head_size = 8;
    return encode(value, codec, encoded);
}

/* Calls a serializer for an object that encode() does not handle. Returns 2 if it returned None. */
static int call_serializer(PyObject *function, PyObject *object, Encoded *encoded) {
    PyObject *data = PyObject_CallFunctionObjArgs(function, object, NULL);
    if (data == NULL) return -1;
    if (data == Py_None) {
        Py_DECREF(data);
        return 2;
    }
    memset(encoded, 0, sizeof(*encoded));
    if (view_bytes(data, "serialized data", "bytes", &encoded->tail) == 0 && !PyBytes_CheckExact(data)) {
        /* The finalizer of an instance of a subclass could change the map when the reference is released. */
        PyObject *copy = to_bytes(encoded->tail);
        Py_DECREF(data);
        data = copy;
    }
    if (data == NULL || view_bytes(data, "serialized data", "bytes", &encoded->tail) < 0) {
        Py_XDECREF(data);
        return -1;
    }
    encoded->owner = data;
    return 1;
}

/* Serializes a key into `encoded`, and sets `slice` to the serialized key. */
static int serialize_key(SerdeMap *self, PyObject *object, Encoded *encoded, Slice *slice) {
    int done = encode(object, self->key_codec, encoded);
    if (!done) done = call_serializer(self->serialize_key, object, encoded);
    if (done == 2) {
        PyErr_SetString(PyExc_TypeError, "serialize_key must return bytes, got None");
        done = -1;
    }
    if (done < 0) return -1;
    slice->at = encoded->head_size ? encoded->head : encoded->tail.at;
    slice->size = value_size(encoded);
    return 0;
}

/* Serializes a value. Returns 2 if it deletes the key. */
static int serialize_value(SerdeMap *self, PyObject *object, Encoded *encoded) {
    if (object == Py_None) return 2;
    int done = self->value_codec < TIMESTAMPED
                   ? encode(object, self->value_codec, encoded)
                   : encode_timestamped(self->module, object, self->value_codec - TIMESTAMPED, encoded);
    return done ? done : call_serializer(self->serialize_value, object, encoded);
}

static PyObject *decode_value(const SerdeMap *self, Slice data) {
    if (self->result_codec < TIMESTAMPED) return decode_object(self->result_codec, data);
    return decode_timestamped(self->module->value_and_timestamp, self->result_codec - TIMESTAMPED, data);
}

/* Returns the byte map, or NULL if the garbage collector cleared this object. */
static PagedMap *entries_of(SerdeMap *self) {
    if (self->entries == NULL) PyErr_SetString(PyExc_RuntimeError, "the map was cleared by the garbage collector");
    return self->entries;
}

/* Deserializes data that decode_value() does not handle. The reference to `data` is released. */
static PyObject *call_deserializer(SerdeMap *self, PyObject *data) {
    PyObject *value = PyObject_CallFunctionObjArgs(self->deserialize_value, data, NULL);
    Py_DECREF(data);
    return value;
}

/* Returns the object stored under a key. `owner` is NULL or owns the key data; the reference is released. */
static PyObject *get_object(SerdeMap *self, PagedMap *entries, Slice key, PyObject *owner) {
    Place place;
    int done = check_usable(entries) < 0 ? -1 : find_place(entries, key, &place);
    Py_XDECREF(owner);
    if (done < 0) return NULL;
    entries->gets++;
    PyObject *value = Py_None, *data = NULL;
    if (place.is_found) {
        Slice slice = value_of(entry_at(place.page, place.position));
        entries->busy = 1; /* the garbage collector may run when objects are created */
        value = decode_value(self, slice);
        if (value == NULL && !PyErr_Occurred()) data = to_bytes(slice);
        entries->busy = 0;
    } else {
        Py_INCREF(value);
    }
    if (place.was_read) evict(entries);
    return data != NULL ? call_deserializer(self, data) : value;
}

/* Stores an object under a key. */
static int put_object(SerdeMap *self, PagedMap *entries, Slice key, PyObject *object) {
    Encoded value = {{0}, 0, {NULL, 0}, NULL};
    int done = serialize_value(self, object, &value);
    if (done > 0 && check_writable(entries) < 0) done = -1;
    if (done == 2) {
        PyObject *old;
        done = delete(entries, key, &old);
        Py_XDECREF(old);
    } else if (done > 0) {
        done = put(entries, key, &value);
    }
    Py_XDECREF(value.owner);
    return done < 0 ? -1 : 0;
}

static PyObject *serde_get(PyObject *object, PyObject *key) {
    SerdeMap *self = (SerdeMap *)object;
    Encoded encoded = {{0}, 0, {NULL, 0}, NULL};
    Slice raw;
    PagedMap *entries = entries_of(self);
    if (entries == NULL || serialize_key(self, key, &encoded, &raw) < 0) return NULL;
    return get_object(self, entries, raw, encoded.owner);
}

static PyObject *serde_put(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
    SerdeMap *self = (SerdeMap *)object;
    Encoded encoded = {{0}, 0, {NULL, 0}, NULL};
    Slice key;
    PagedMap *entries = entries_of(self);
    if (entries == NULL || count_arguments("put", 2, nargs) < 0 || serialize_key(self, args[0], &encoded, &key) < 0)
        return NULL;
    int done = put_object(self, entries, key, args[1]);
    Py_XDECREF(encoded.owner);
    return none_or_error(done);
}

static PyObject *serde_delete(PyObject *object, PyObject *key) {
    SerdeMap *self = (SerdeMap *)object;
    Encoded encoded = {{0}, 0, {NULL, 0}, NULL};
    Slice raw;
    PyObject *old = NULL;
    PagedMap *entries = entries_of(self);
    if (entries == NULL || serialize_key(self, key, &encoded, &raw) < 0) return NULL;
    int done = check_writable(entries) < 0 ? -1 : delete(entries, raw, &old);
    Py_XDECREF(encoded.owner);
    if (done < 0) return NULL;
    if (old == NULL) return Py_NewRef(Py_None);
    Slice slice = {(const uint8_t *)PyBytes_AsString(old), (size_t)PyBytes_Size(old)};
    PyObject *value = decode_value(self, slice);
    if (value == NULL && !PyErr_Occurred()) return call_deserializer(self, old);
    Py_DECREF(old);
    return value;
}

/* Sets the fields of a SerdeMap; returns -1 on error. */
static int set_conversions(SerdeMap *self, Module *module, PyObject *entries, PyObject *conversions) {
    PyObject *serialize_key, *serialize_value, *deserialize_value;
    PyObject *fields = PySequence_Tuple(conversions);
    int done = -1;
    self->module = module;
    if (fields == NULL || !PyArg_ParseTuple(fields, "OOO(iii)", &serialize_key, &serialize_value, &deserialize_value,
                                     &self->key_codec, &self->value_codec, &self->result_codec))
        goto done;
    /* Imported late, because the module that defines the class imports this module. */
    if ((self->value_codec >= TIMESTAMPED || self->result_codec >= TIMESTAMPED) && module->value_and_timestamp == NULL &&
        import_value_and_timestamp(&module->value_and_timestamp) < 0)
        goto done;
    Py_INCREF(entries);
    Py_INCREF(serialize_key);
    Py_INCREF(serialize_value);
    Py_INCREF(deserialize_value);
    self->entries = (PagedMap *)entries;
    self->serialize_key = serialize_key;
    self->serialize_value = serialize_value;
    self->deserialize_value = deserialize_value;
    done = 0;
done:
    Py_XDECREF(fields);
    return done;
}

static PyObject *serde_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"entries", "conversions", NULL};
    PyObject *entries, *conversions;
    Module *module = PyType_GetModuleState(type);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:SerdeMap", names, module->paged_map, &entries, &conversions))
        return NULL;
    SerdeMap *self = (SerdeMap *)PyType_GenericAlloc(type, 0);
    if (self != NULL && set_conversions(self, module, entries, conversions) < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static int serde_traverse(PyObject *object, visitproc visit, void *arg) {
    SerdeMap *self = (SerdeMap *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->entries);
    Py_VISIT(self->serialize_key);
    Py_VISIT(self->serialize_value);
    Py_VISIT(self->deserialize_value);
    return 0;
}

static int serde_clear(PyObject *object) {
    SerdeMap *self = (SerdeMap *)object;
    Py_CLEAR(self->entries);
    Py_CLEAR(self->serialize_key);
    Py_CLEAR(self->serialize_value);
    Py_CLEAR(self->deserialize_value);
    return 0;
}

static void serde_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    serde_clear(object);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyMethodDef serde_methods[] = {
    {"get", serde_get, METH_O, "get($self, key, /)\n--\n\nSee serde_map.SerdeMap.get."},
    {"put", (PyCFunction)(void (*)(void))serde_put, METH_FASTCALL,
     "put($self, key, value, /)\n--\n\nSee serde_map.SerdeMap.put."},
    {"delete", serde_delete, METH_O, "delete($self, key, /)\n--\n\nSee serde_map.SerdeMap.delete."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot serde_slots[] = {
    {Py_tp_doc, "SerdeMap(entries, conversions)\n--\n\nSee serde_map.SerdeMap."},
    {Py_tp_new, serde_new},
    {Py_tp_dealloc, serde_dealloc},
    {Py_tp_traverse, serde_traverse},
    {Py_tp_clear, serde_clear},
    {Py_tp_methods, serde_methods},
    {0, NULL},
};

static PyType_Spec serde_spec = {
    STORES "_pages.SerdeMap", sizeof(SerdeMap), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    serde_slots,
};

/* ---- TimeMap ---------------------------------------------------------------------------------- */

enum { NUMBER_BYTES = 8, SHORT_KEY = 64 };

typedef struct {
    SerdeMap serdes;
    PyObject *deserialize_key;
    size_t second_bytes;
} TimeMap;

/* A byte map key: segment number, serialized key, time, and sequence number or session start. */
typedef struct {
    uint8_t *at; /* `room`, or a separately allocated block */
    size_t size;
    uint8_t room[SHORT_KEY];
} TimeKey;

static void free_key(TimeKey *key) {
    if (key->at != key->room) PyMem_Free(key->at);
}

/* Gets a non-negative number; returns -1 on error. */
static int parse_number(PyObject *object, uint64_t maximum, size_t bytes, uint64_t *number) {
    int overflow;
    long long parsed = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (parsed == -1 && PyErr_Occurred()) return -1;
    if (overflow || parsed < 0 || (uint64_t)parsed > maximum) {
        PyErr_Format(PyExc_OverflowError, "%S does not fit in %zu bytes", object, bytes);
        return -1;
    }
    *number = (uint64_t)parsed;
    return 0;
}

static uint64_t max_second(const TimeMap *self) { return self->second_bytes == 8 ? INT64_MAX : UINT32_MAX; }

/* Encodes a key, followed by `more` zero bytes; returns -1 on error. The caller must free the key. */
static int encode_time_key(TimeMap *self, PyObject *const *args, uint64_t second, size_t more, TimeKey *key) {
    Encoded encoded = {{0}, 0, {NULL, 0}, NULL};
    Slice raw;
    uint64_t segment, time;
    key->at = key->room;
    if (entries_of(&self->serdes) == NULL || serialize_key(&self->serdes, args[1], &encoded, &raw) < 0) return -1;
    int done = parse_number(args[0], INT64_MAX, NUMBER_BYTES, &segment) < 0 ||
                       parse_number(args[2], INT64_MAX, NUMBER_BYTES, &time) < 0
                   ? -1
                   : 0;
    key->size = 2 * NUMBER_BYTES + raw.size + self->second_bytes;
    if (done == 0 && key->size + more > SHORT_KEY && (key->at = PyMem_Malloc(key->size + more)) == NULL) {
        key->at = key->room;
        PyErr_NoMemory();
        done = -1;
    }
    if (done == 0) {
        uint8_t *at = key->at + NUMBER_BYTES;
        store_big64(key->at, segment);
        if (raw.size) memcpy(at, raw.at, raw.size);
        store_big64(at + raw.size, time);
        at += raw.size + NUMBER_BYTES;
        if (self->second_bytes == 8) store_big64(at, second);
        else store_big32(at, (uint32_t)second);
        if (more) memset(at + self->second_bytes, 0, more);
    }
    Py_XDECREF(encoded.owner);
    return done;
}

/* Encodes a key from the arguments: segment, key, time, and sequence number or session start. */
static int parse_time_key(TimeMap *self, PyObject *const *args, TimeKey *key) {
    uint64_t second;
    key->at = key->room;
    if (parse_number(args[3], max_second(self), self->second_bytes, &second) < 0) return -1;
    return encode_time_key(self, args, second, 0, key);
}

static PyObject *time_encode_key(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
    TimeMap *self = (TimeMap *)object;
    TimeKey key;
    if (count_arguments("encode_key", 4, nargs) < 0) return NULL;
    PyObject *bytes = NULL;
    if (parse_time_key(self, args, &key) == 0) bytes = PyBytes_FromStringAndSize((const char *)key.at, (Py_ssize_t)key.size);
    free_key(&key);
    return bytes;
}

static PyObject *time_get(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
    TimeMap *self = (TimeMap *)object;
    TimeKey key;
    if (count_arguments("get", 4, nargs) < 0) return NULL;
    PyObject *value = NULL;
    PagedMap *entries = NULL;
    if (parse_time_key(self, args, &key) == 0) entries = entries_of(&self->serdes);
    if (entries != NULL) {
        Slice slice = {key.at, key.size};
        value = get_object(&self->serdes, entries, slice, NULL);
    }
    free_key(&key);
    return value;
}

static PyObject *time_put(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
    TimeMap *self = (TimeMap *)object;
    TimeKey key;
    if (count_arguments("put", 5, nargs) < 0) return NULL;
    int done = parse_time_key(self, args, &key);
    PagedMap *entries = done == 0 ? entries_of(&self->serdes) : NULL;
    if (entries != NULL) {
        Slice slice = {key.at, key.size};
        done = put_object(&self->serdes, entries, slice, args[4]);
    }
    free_key(&key);
    return entries != NULL ? none_or_error(done) : NULL;
}

/* Returns a session and its object, as a tuple. */
static PyObject *create_session(TimeMap *self, Slice name, Slice data) {
    Slice raw = {name.at + NUMBER_BYTES, name.size - 3 * NUMBER_BYTES};
    PyObject *session = NULL, *value = decode_value(&self->serdes, data), *pair = NULL, *copy;
    if (value == NULL && !PyErr_Occurred() && (copy = to_bytes(data)) != NULL) value = call_deserializer(&self->serdes, copy);
    PyObject *key = value != NULL ? to_bytes(raw) : NULL;
    if (key != NULL) {
        copy = key;
        key = PyObject_CallFunctionObjArgs(self->deserialize_key, copy, NULL);
        Py_DECREF(copy);
    }
    PyObject *end = key != NULL ? PyLong_FromLongLong((int64_t)load_big64(name.at + name.size - 2 * NUMBER_BYTES)) : NULL;
    PyObject *start = end != NULL ? PyLong_FromLongLong((int64_t)load_big64(name.at + name.size - NUMBER_BYTES)) : NULL;
    PyObject *const items[] = {key, start, end};
    session = create_tuple(self->serdes.module->windowed, items, 3);
    if (session != NULL) pair = PyTuple_Pack(2, session, value);
    Py_XDECREF(session);
    Py_XDECREF(value);
    return pair;
}

/* Decodes the sessions of one key from a range scan, like time_map.select_sessions(). */
static PyObject *select_sessions(TimeMap *self, PyObject *found, size_t key_bytes, int64_t latest_start) {
    PyObject *sessions = PyList_New(0);
    for (Py_ssize_t i = 0; sessions != NULL && i < PyList_Size(found); i++) {
        PyObject *entry = PyList_GetItem(found, i);
        Slice name, data;
        if (view_bytes(PyTuple_GetItem(entry, 0), "key", "bytes", &name) < 0 ||
            view_bytes(PyTuple_GetItem(entry, 1), "value", "bytes", &data) < 0) {
            Py_CLEAR(sessions);
            break;
        }
        if (name.size != key_bytes || (int64_t)load_big64(name.at + name.size - NUMBER_BYTES) > latest_start) continue;
        PyObject *pair = create_session(self, name, data);
        if (pair == NULL || PyList_Append(sessions, pair) < 0) Py_CLEAR(sessions);
        Py_XDECREF(pair);
    }
    return sessions;
}

static PyObject *time_find_sessions(PyObject *object, PyObject *const *args, Py_ssize_t nargs) {
    TimeMap *self = (TimeMap *)object;
    TimeKey first, last;
    if (count_arguments("find_sessions", 6, nargs) < 0) return NULL;
    if (self->second_bytes != NUMBER_BYTES) {
        PyErr_SetString(PyExc_TypeError, "find_sessions() requires second_bytes=8");
        return NULL;
    }
    int overflow, is_reverse = PyObject_IsTrue(args[5]);
    int64_t latest_start = PyLong_AsLongLongAndOverflow(args[4], &overflow);
    if (is_reverse < 0 || (latest_start == -1 && PyErr_Occurred())) return NULL;
    if (overflow) latest_start = overflow < 0 ? -1 : INT64_MAX;
    PyObject *const to_last[] = {args[0], args[1], args[3]};
    PyObject *sessions = NULL, *found = NULL;
    PagedMap *entries = NULL;
    last.at = last.room;
    if (encode_time_key(self, args, 0, 0, &first) == 0 && encode_time_key(self, to_last, INT64_MAX, 1, &last) == 0)
        entries = entries_of(&self->serdes);
    if (entries != NULL && check_usable(entries) == 0) found = PyList_New(0);
    if (found != NULL) {
        Slice start = {first.at, first.size}, stop = {last.at, last.size + 1};
        /* A finalizer may have used the map since the last check. */
        if (check_usable(entries) == 0 && (compare(stop, start) <= 0 || scan(entries, found, start, &stop) == 0) &&
            (!is_reverse || PyList_Reverse(found) == 0))
            sessions = select_sessions(self, found, first.size, latest_start);
        Py_DECREF(found);
    }
    free_key(&first);
    free_key(&last);
    return sessions;
}

static PyObject *time_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"entries", "conversions", "deserialize_key", "second_bytes", NULL};
    PyObject *entries, *conversions, *deserialize_key;
    int second_bytes;
    Module *module = PyType_GetModuleState(type);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOi:TimeMap", names, module->paged_map, &entries, &conversions,
                                     &deserialize_key, &second_bytes))
        return NULL;
    if (second_bytes != 4 && second_bytes != 8)
        return PyErr_Format(PyExc_ValueError, "second_bytes must be 4 or 8, got %d", second_bytes);
    TimeMap *self = (TimeMap *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    Py_INCREF(deserialize_key);
    self->deserialize_key = deserialize_key;
    self->second_bytes = (size_t)second_bytes;
    if (set_conversions(&self->serdes, module, entries, conversions) < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static int time_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(((TimeMap *)object)->deserialize_key);
    return serde_traverse(object, visit, arg);
}

static int time_clear(PyObject *object) {
    Py_CLEAR(((TimeMap *)object)->deserialize_key);
    return serde_clear(object);
}

static void time_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    time_clear(object);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyMethodDef time_methods[] = {
    {"encode_key", (PyCFunction)(void (*)(void))time_encode_key, METH_FASTCALL,
     "encode_key($self, segment, key, time_ms, second, /)\n--\n\nSee time_map.TimeMap.encode_key."},
    {"get", (PyCFunction)(void (*)(void))time_get, METH_FASTCALL,
     "get($self, segment, key, time_ms, second, /)\n--\n\nSee time_map.TimeMap.get."},
    {"put", (PyCFunction)(void (*)(void))time_put, METH_FASTCALL,
     "put($self, segment, key, time_ms, second, value, /)\n--\n\nSee time_map.TimeMap.put."},
    {"find_sessions", (PyCFunction)(void (*)(void))time_find_sessions, METH_FASTCALL,
     "find_sessions($self, segment, key, first_ms, last_ms, latest_start_ms, reverse, /)\n--\n\n"
     "See time_map.TimeMap.find_sessions."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot time_slots[] = {
    {Py_tp_doc, "TimeMap(entries, conversions, deserialize_key, second_bytes)\n--\n\nSee time_map.TimeMap."},
    {Py_tp_new, time_new},
    {Py_tp_dealloc, time_dealloc},
    {Py_tp_traverse, time_traverse},
    {Py_tp_clear, time_clear},
    {Py_tp_methods, time_methods},
    {0, NULL},
};

static PyType_Spec time_spec = {
    STORES "_pages.TimeMap", sizeof(TimeMap), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    time_slots,
};

/* ---- the module ------------------------------------------------------------------------------- */

static int execute(PyObject *object) {
    Module *module = PyModule_GetState(object);
    for (int i = 0; i < N_NAMES; i++) {
        module->names[i] = PyUnicode_InternFromString(name_texts[i]);
        if (module->names[i] == NULL) return -1;
    }
    if (import_name(STORES "page_reads", "read_entry_pages", &module->read_entry_pages) < 0 ||
        import_name(STORES "page_reads", "decode_page", &module->decode_page) < 0 ||
        import_name(STORES "page_reads", "load_directory", &module->load_directory) < 0 ||
        import_name(STORES "page_reads", "read_only_error", &module->read_only_error) < 0 ||
        import_name(STORES "page_reads", "reentrant_error", &module->reentrant_error) < 0 ||
        import_name(STORES "page_format", "MapHeader", &module->header) < 0 ||
        import_name(STORES "directory", "EncodedDirectory", &module->encoded_directory) < 0 ||
        import_name(STORES "pages", "ClosedPages", &module->closed_pages) < 0 ||
        import_name(STORES "pages", "DEFAULT_LIMITS", &module->default_limits) < 0 ||
        import_tuple_type(STORES "time_map", "Windowed", &module->windowed) < 0 ||
        add_type(object, &map_spec, &module->paged_map) < 0 || add_type(object, &serde_spec, &module->serde_map) < 0)
        return -1;
    return add_type(object, &time_spec, &module->time_map);
}

static int module_traverse(PyObject *object, visitproc visit, void *arg) {
    Module *module = PyModule_GetState(object);
    for (int i = 0; i < N_NAMES; i++) Py_VISIT(module->names[i]);
    Py_VISIT(module->paged_map);
    Py_VISIT(module->serde_map);
    Py_VISIT(module->time_map);
    Py_VISIT(module->windowed);
    Py_VISIT(module->read_entry_pages);
    Py_VISIT(module->decode_page);
    Py_VISIT(module->load_directory);
    Py_VISIT(module->read_only_error);
    Py_VISIT(module->reentrant_error);
    Py_VISIT(module->header);
    Py_VISIT(module->encoded_directory);
    Py_VISIT(module->closed_pages);
    Py_VISIT(module->default_limits);
    Py_VISIT(module->value_and_timestamp);
    return 0;
}

/* After this, calls of cleared functions raise SystemError. */
static int module_clear(PyObject *object) {
    Module *module = PyModule_GetState(object);
    Py_CLEAR(module->paged_map);
    Py_CLEAR(module->serde_map);
    Py_CLEAR(module->time_map);
    Py_CLEAR(module->windowed);
    Py_CLEAR(module->read_entry_pages);
    Py_CLEAR(module->decode_page);
    Py_CLEAR(module->load_directory);
    Py_CLEAR(module->read_only_error);
    Py_CLEAR(module->reentrant_error);
    Py_CLEAR(module->header);
    Py_CLEAR(module->encoded_directory);
    Py_CLEAR(module->closed_pages);
    Py_CLEAR(module->default_limits);
    Py_CLEAR(module->value_and_timestamp);
    return 0;
}

static void module_free(void *object) {
    Module *module = PyModule_GetState(object);
    module_clear(object);
    for (int i = 0; i < N_NAMES; i++) Py_CLEAR(module->names[i]);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_pages", "Compiled maps; see pages, serde_map and time_map.", sizeof(Module), NULL, slots,
    module_traverse, module_clear, module_free,
};

PyMODINIT_FUNC PyInit__pages(void) { return PyModuleDef_Init(&definition); }
