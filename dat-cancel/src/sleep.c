/*
 * System calls that pthread_cancel ends, and that return to their caller then.
 *
 * The functions are those that pthread_cleanup_push and pthread_cleanup_pop of pthread.h are made of. A cleanup handler goes on with the
 * cancellation when it returns; here the handler's place is the rest of the function, which leaves that to the caller: frames of other
 * languages above it return as usual, and the caller ends the thread with pthread_exit(PTHREAD_CANCELED).
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

/* FUTEX_WAIT on WORD while it is VALUE, or, without WORD, ppoll on SET. TIME may be NULL. */
struct dat_cancel_call {
	uint32_t *word;
	uint32_t value;
	struct pollfd *set;
	nfds_t count;
	const struct timespec *time;
};

static long sleep_on_word(const struct dat_cancel_call *call)
{
	int type;
	long result;

	/* libc has no function that is a cancellation point for this. From here a request takes effect at once, also an earlier one. */
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	result = syscall(SYS_futex, call->word, FUTEX_WAIT_PRIVATE, call->value, call->time);
	if (result < 0)
		result = -errno;
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	/*
	 * A request of just now may have its signal on the way, and glibc's handler does not ask for the state: in a later call of
	 * libc, although that is made with cancellation disabled, it would unwind. A cancellation point waits for it before it returns.
	 */
	poll(NULL, 0, 0);
	return result;
}

static long sleep_on_descriptors(const struct dat_cancel_call *call)
{
	long result = ppoll(call->set, call->count, call->time, NULL);

	return result < 0 ? -errno : result;
}

/*
 * Makes CALL; its result, or a negative errno, goes to *RESULT. To be called with cancellation disabled, which it is at the return too.
 * Returns 1 if the thread was cancelled before or during the call, else 0.
 */
int dat_cancel_sleep(const struct dat_cancel_call *call, long *result)
{
	__pthread_unwind_buf_t here;
	int old;

	if (__sigsetjmp_cancel(here.__cancel_jmp_buf, 0)) {
		/* The thread is marked as one that exits: it is not cancelled again. */
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
