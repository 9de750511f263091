/* A library to preload: allocation number FAIL_AT of those of more than FAIL_ABOVE bytes fails, the others succeed. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);

static int fails(size_t bytes)
{
    static long seen, fail_at, fail_above;

    if (!fail_at) {
        fail_above = atol(getenv("FAIL_ABOVE"));
        fail_at = atol(getenv("FAIL_AT"));
    }
    if ((long)bytes <= fail_above)
        return 0;
    if (__atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED) != fail_at)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t bytes)
{
    return fails(bytes) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails(count * bytes) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes)
{
    return fails(bytes) ? NULL : __libc_realloc(block, bytes);
}

int posix_memalign(void **block, size_t align, size_t bytes)
{
    *block = fails(bytes) ? NULL : __libc_memalign(align, bytes);
    return *block ? 0 : ENOMEM;
}
