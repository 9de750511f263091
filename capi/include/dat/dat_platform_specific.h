/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uDAPL 1.2: integers and addresses of this platform (Linux, 64 bits).
 */
#ifndef _DAT_PLATFORM_SPECIFIC_H_
#define _DAT_PLATFORM_SPECIFIC_H_

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/types.h>

typedef uint32_t DAT_UINT32;
typedef uint64_t DAT_UINT64;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wlong-long" /* with -pedantic, in C89 and C++98 */
typedef unsigned long long DAT_UVERYLONG;
#pragma GCC diagnostic pop
typedef void *DAT_PVOID;
typedef int DAT_COUNT;
typedef DAT_UINT64 DAT_PADDR;

typedef struct sockaddr DAT_SOCK_ADDR;
typedef struct sockaddr_in6 DAT_SOCK_ADDR6;
#define DAT_AF_INET AF_INET
#define DAT_AF_INET6 AF_INET6

/* Alignment of buffers for the fastest transfers. */
#ifndef DAT_OPTIMAL_ALIGNMENT
#define DAT_OPTIMAL_ALIGNMENT 256
#endif

#ifndef UINT64_C
#define UINT64_C(c) c##ULL
#endif

#ifndef DAT_API
#define DAT_API
#endif
#define DAT_EXPORT extern

/* Directions of arguments, which programs use in their own prototypes. */
#ifndef IN
#define IN
#endif
#ifndef OUT
#define OUT
#endif
#ifndef INOUT
#define INOUT
#endif

#endif /* _DAT_PLATFORM_SPECIFIC_H_ */
