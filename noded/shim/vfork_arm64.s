#include "textflag.h"

// func rawVfork(trap, a1, a2, a3 uintptr) (r1 uintptr)
//
// The child runs on this very stack first; the return address stays in the link register, which the kernel restores
// for each of the two.
TEXT ·rawVfork(SB),NOSPLIT,$0-40
	MOVD	a1+8(FP), R0
	MOVD	a2+16(FP), R1
	MOVD	a3+24(FP), R2
	MOVD	$0, R3
	MOVD	$0, R4
	MOVD	$0, R5
	MOVD	trap+0(FP), R8
	SVC
	MOVD	R0, r1+32(FP)
	RET
