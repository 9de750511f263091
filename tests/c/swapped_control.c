/* For a program under qemu-user on a little-endian host, in LD_PRELOAD: qemu copies the control messages of UDP_SEGMENT and UDP_GRO as they
 * are, so the numbers in them have to be in the host's byte order.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <endian.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO 104
#endif

static void swap(struct msghdr *message)
{
    struct cmsghdr *header;
    for (header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        uint16_t segment;
        uint32_t received;
        if (header->cmsg_level != IPPROTO_UDP)
            continue;
        if (header->cmsg_type == UDP_SEGMENT) {
            memcpy(&segment, CMSG_DATA(header), sizeof segment);
            segment = htole16(segment);
            memcpy(CMSG_DATA(header), &segment, sizeof segment);
        } else if (header->cmsg_type == UDP_GRO) {
            memcpy(&received, CMSG_DATA(header), sizeof received);
            received = htole32(received);
            memcpy(CMSG_DATA(header), &received, sizeof received);
        }
    }
}

/* The library makes these calls by syscall(). */
long syscall(long number, ...)
{
    static long (*real)(long, ...);
    va_list list;
    long a[6], result;

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (!real)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_sendmsg)
        swap((struct msghdr *)a[1]);
    result = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_sendmsg || (number == SYS_recvmsg && result >= 0))
        swap((struct msghdr *)a[1]);
    return result;
}
