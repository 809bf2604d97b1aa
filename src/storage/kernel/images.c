/* Image files: sparse copies, holes, and the lock that says whether one is in use. */
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

/* lockImage(file): fails with EWOULDBLOCK while another opening of the file holds it. A loop device keeps the opening it
 * was made with, and so the lock, until the filesystem on it is really gone: nobody mounts an image twice. */
static void lock_image(struct job *job)
{
	if (flock((int)job->number[0], LOCK_EX | LOCK_NB) < 0)
		job_fail(job, "flock");
}

static int copy_range(int from, int to, off_t start, off_t end)
{
	off_t in = start, out = start;

	while (in < end) {
		ssize_t copied = copy_file_range(from, &in, to, &out, (size_t)(end - in), 0);
		if (copied < 0)
			return -1;
		if (copied == 0) {
			errno = EIO;
			return -1;
		}
	}
	return 0;
}

/* copySparse(from, to): `to` is empty before. Shares the blocks where the filesystem can, else copies what is no hole.
 * Answers with the bytes that were copied. */
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

/* punchHole(file, offset, bytes): gives the room back; what was there reads as zeros */
static void punch_hole(struct job *job)
{
	if (fallocate((int)job->number[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, job->number[1], job->number[2]) < 0)
		job_fail(job, "fallocate");
}

const struct verb image_verbs[] = {
	{"lockImage", "n", ANSWER_NOTHING, lock_image},
	{"copySparse", "nn", ANSWER_NUMBER, copy_sparse},
	{"punchHole", "nnn", ANSWER_NOTHING, punch_hole},
	{NULL, NULL, ANSWER_NOTHING, NULL},
};
