/*
 * System calls that pthread_cancel ends, and that then return to their caller.
 *
 * The code uses the functions behind pthread_cleanup_push and pthread_cleanup_pop of pthread.h. A cleanup handler continues the
 * cancellation when it returns. Here the rest of the function takes the place of the handler and leaves the cancellation to the
 * caller: frames of other languages above it return as usual, and the caller ends the thread with pthread_exit(PTHREAD_CANCELED).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A FUTEX_WAIT on WORD while it is VALUE or, if WORD is NULL, a ppoll on SET. TIME may be NULL. */
struct dat_os_call {
	uint32_t *word;
	uint32_t value;
	struct pollfd *set;
	nfds_t count;
	const struct timespec *time;
};

static long sleep_on_word(const struct dat_os_call *call)
{
	int type;
	long result;

	/* libc has no futex function that is a cancellation point. From here on a request takes effect at once, also a pending one. */
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	result = syscall(SYS_futex, call->word, FUTEX_WAIT_PRIVATE, call->value, call->time);
	if (result < 0)
		result = -errno;
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	/*
	 * The signal of a very recent request may still be on its way, and glibc's handler does not check the cancellation state: it
	 * would unwind in a later libc call, although that call runs with cancellation disabled. A cancellation point waits for the
	 * signal before it returns.
	 */
	poll(NULL, 0, 0);
	return result;
}

static long sleep_on_descriptors(const struct dat_os_call *call)
{
	long result = ppoll(call->set, call->count, call->time, NULL);

	return result < 0 ? -errno : result;
}

/*
 * Makes CALL and writes its result, or a negative errno, to *RESULT. Cancellation must be disabled at the call, and is disabled at the
 * return. Returns 1 if the thread was cancelled before or during the call, else 0.
 */
int dat_os_sleep(const struct dat_os_call *call, long *result)
{
	__pthread_unwind_buf_t here;
	int old;

	if (__sigsetjmp_cancel(here.__cancel_jmp_buf, 0)) {
		/* The thread is marked as exiting, so it is not cancelled a second time. */
		__pthread_unregister_cancel(&here);
		pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old);
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
		return 1;
	}
	__pthread_register_cancel(&here);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
	*result = call->word ? sleep_on_word(call) : sleep_on_descriptors(call);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	__pthread_unregister_cancel(&here);
	return 0;
}
