/* Checks of these programs: a failed one prints its file and line, and the process ends. CHECK is for calls of
 * DAT, after either version's udat.h. */
#ifndef NEED_H
#define NEED_H

#include <stdio.h>
#include <stdlib.h>

/* A program whose children must not run exit's handlers defines this as _exit. */
#ifndef NEED_EXIT
#define NEED_EXIT exit
#endif

#define NEED(condition)                                                                         \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);           \
            NEED_EXIT(1);                                                                       \
        }                                                                                       \
    } while (0)

#define CHECK(call)                                                                             \
    do {                                                                                        \
        DAT_RETURN code_ = (call);                                                              \
        const char *major_ = "?", *minor_ = "?";                                                \
        if (code_ != DAT_SUCCESS) {                                                             \
            dat_strerror(code_, &major_, &minor_);                                              \
            fprintf(stderr, "%s:%d: %s: %#x %s %s\n", __FILE__, __LINE__, #call, (unsigned)code_, \
                    major_, minor_);                                                            \
            NEED_EXIT(1);                                                                       \
        }                                                                                       \
    } while (0)

#endif
