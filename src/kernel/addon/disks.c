/* Disks: the sparse files that contain the filesystems of threads and volumes. */
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* lockDisk(file): fails with EWOULDBLOCK while another open file description holds the lock. A loop device keeps the
 * description that it was configured with, and with it the lock, until its filesystem is unmounted everywhere, so a disk
 * is never mounted twice. */
static void lock_disk(struct job *job)
{
	if (flock((int)job->number[0], LOCK_EX | LOCK_NB) < 0)
		job_fail(job, "flock");
}

/* Through memory, for two filesystems of different types. */
static int copy_bytes(int from, int to, off_t start, off_t end)
{
	char bytes[64 * 1024];

	while (start < end) {
		size_t wanted = end - start < (off_t)sizeof(bytes) ? (size_t)(end - start) : sizeof(bytes);
		ssize_t had = pread(from, bytes, wanted, start);
		if (had <= 0) {
			errno = had == 0 ? EIO : errno;
			return -1;
		}
		for (ssize_t written = 0; written < had;) {
			ssize_t now = pwrite(to, bytes + written, (size_t)(had - written), start + written);
			if (now < 0)
				return -1;
			written += now;
		}
		start += had;
	}
	return 0;
}

static int copy_range(int from, int to, off_t start, off_t end)
{
	off_t in = start, out = start;

	while (in < end) {
		ssize_t copied = copy_file_range(from, &in, to, &out, (size_t)(end - in), 0);
		if (copied < 0 && (errno == EXDEV || errno == EOPNOTSUPP))
			return copy_bytes(from, to, in, end);
		if (copied < 0)
			return -1;
		if (copied == 0) {
			errno = EIO;
			return -1;
		}
	}
	return 0;
}

/* copySparse(from, to): copies a file into an empty one. Shares the blocks where the filesystem supports it (FICLONE),
 * else copies the data and leaves the holes. Returns the number of bytes copied. */
static void copy_sparse(struct job *job)
{
	int from = (int)job->number[0], to = (int)job->number[1];
	struct stat stat;

	if (ioctl(to, FICLONE, from) == 0)
		return;
	if (fstat(from, &stat) < 0 || ftruncate(to, stat.st_size) < 0) {
		job_fail(job, "ftruncate");
		return;
	}
	for (off_t end = 0; end < stat.st_size;) {
		off_t start = lseek(from, end, SEEK_DATA);
		if (start < 0) {
			if (errno != ENXIO)
				job_fail(job, "lseek");
			return;
		}
		end = lseek(from, start, SEEK_HOLE);
		if (end < 0 || copy_range(from, to, start, end) < 0) {
			job_fail(job, "copy_file_range");
			return;
		}
		job->result[0] += end - start;
	}
}

/* punchHole(file, offset, bytes): deallocates a range, which then reads as zeros */
static void punch_hole(struct job *job)
{
	if (fallocate((int)job->number[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, job->number[1], job->number[2]) < 0)
		job_fail(job, "fallocate");
}

const struct operation disk_operations[] = {
	{"lockDisk", "n", RESULT_NONE, lock_disk},
	{"copySparse", "nn", RESULT_NUMBER, copy_sparse},
	{"punchHole", "nnn", RESULT_NONE, punch_hole},
	{NULL, NULL, RESULT_NONE, NULL},
};
