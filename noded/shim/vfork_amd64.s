#include "textflag.h"

// func rawVfork(trap, a1, a2, a3 uintptr) (r1 uintptr)
//
// The child runs on this very stack first, so the return address is kept in a register, which the kernel restores
// for each of the two.
TEXT ·rawVfork(SB),NOSPLIT|NOFRAME,$0-40
	MOVQ	a1+8(FP), DI
	MOVQ	a2+16(FP), SI
	MOVQ	a3+24(FP), DX
	MOVQ	$0, R10
	MOVQ	$0, R8
	MOVQ	$0, R9
	MOVQ	trap+0(FP), AX
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	MOVQ	AX, r1+32(FP)
	RET
