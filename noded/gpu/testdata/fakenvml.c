/* A libnvidia-ml.so.1 for tests: COUNT GPUs of one kind, joined in pairs by two NVLinks each (or all through a switch with
 * -DSWITCH), as far as the functions go that noded/gpu calls. -DCRASH, -DHANG, -DNODRIVER and -DOLD are drivers in trouble. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef COUNT
#define COUNT 4
#endif

typedef struct { int index; } dev;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } pci;
typedef struct { unsigned long long total, free, used; } memory;
static dev devs[COUNT];

int nvmlInit_v2(void) {
#ifdef NODRIVER
	return 9;
#endif
	for (int i = 0; i < COUNT; i++) devs[i].index = i;
	return 0;
}
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int r) { return r == 999 ? "Unknown Error" : "Some Error"; }
int nvmlDeviceGetCount_v2(unsigned *n) {
#ifdef CRASH
	fprintf(stderr, "driver: about to crash\n");
	abort();
#endif
#ifdef HANG
	for (;;) pause();
#endif
	*n = COUNT;
	return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, dev **d) { if (i >= COUNT) return 2; *d = &devs[i]; return 0; }
int nvmlDeviceGetName(dev *d, char *s, unsigned n) { (void)d; snprintf(s, n, "NVIDIA H100 80GB HBM3"); return 0; }
int nvmlDeviceGetUUID(dev *d, char *s, unsigned n) {
#ifdef LOST
	if (d->index == 2) return 999;
#endif
	snprintf(s, n, "GPU-00000000-0000-0000-0000-%012d", d->index);
	return 0;
}
int nvmlDeviceGetMinorNumber(dev *d, unsigned *m) { *m = COUNT - 1 - d->index; return 0; }
int nvmlDeviceGetMemoryInfo(dev *d, memory *m) { (void)d; m->total = 81559ull << 20; m->free = m->total; m->used = 0; return 0; }
static void bus(int i, pci *p) { memset(p, 0, sizeof *p); snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02X:00.0", 0x1a + i); }
int nvmlDeviceGetPciInfo_v3(dev *d, pci *p) { bus(d->index, p); return 0; }
#ifndef OLD
int nvmlDeviceGetNvLinkState(dev *d, unsigned l, unsigned *on) { (void)d; *on = l < 2; return 0; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(dev *d, unsigned l, pci *p) {
	(void)l;
#ifdef SWITCH
	bus(0x60, p);
#else
	bus(d->index ^ 1, p);
#endif
	return 0;
}
int nvmlDeviceGetP2PStatus(dev *a, dev *b, int index, int *status) { (void)index; *status = a == b ? 6 : 0; return 0; }
#endif
