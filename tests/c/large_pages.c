/* Pages of 64 KiB for a program that LD_PRELOADs this: addresses and offsets of mappings that are no multiples of it are EINVAL, as on a
 * kernel with such pages.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)64 << 10)
#define ODD(at) ((uintptr_t)(at) % PAGE != 0)
#define REAL(name)                                      \
    static __typeof__(name) *real;                      \
    if (!real)                                          \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int refuse(void)
{
    errno = EINVAL;
    return -1;
}

long sysconf(int name)
{
    REAL(sysconf);
    return name == _SC_PAGESIZE ? (long)PAGE : real(name);
}

void *mmap(void *at, size_t length, int rights, int flags, int file, off_t offset)
{
    REAL(mmap);
    uintptr_t more;
    if (ODD(offset) || (flags & MAP_FIXED && ODD(at)))
        return refuse(), MAP_FAILED;
    if (flags & MAP_FIXED)
        return real(at, length, rights, flags, file, offset);
    more = (uintptr_t)real(NULL, length + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if ((void *)more == MAP_FAILED)
        return MAP_FAILED;
    /* What is too much stays mapped. */
    return real((void *)((more + PAGE - 1) & ~(PAGE - 1)), length, rights, flags | MAP_FIXED, file, offset);
}

void *mmap64(void *at, size_t length, int rights, int flags, int file, off_t offset)
{
    return mmap(at, length, rights, flags, file, offset);
}

int munmap(void *at, size_t length)
{
    REAL(munmap);
    return ODD(at) ? refuse() : real(at, length);
}

int mprotect(void *at, size_t length, int rights)
{
    REAL(mprotect);
    return ODD(at) ? refuse() : real(at, (length + PAGE - 1) & ~(PAGE - 1), rights);
}

int madvise(void *at, size_t length, int advice)
{
    REAL(madvise);
    return ODD(at) ? refuse() : real(at, length, advice);
}
