package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// scan writes a function that finds the dots of a name and the bytes that may not be
// canonical. Two shuffles look up the halves of each byte: bit k of both results is set
// if the byte is in row k of canonicalRows.
func scan() {
	low, high := rowTables()
	TEXT("scan", NOSPLIT, "func(name string) (dots, others uint64)")
	Pragma("noescape")
	Doc("scan returns which bytes of a name are dots, and which are neither dots nor lower-case",
		"letters, digits, hyphens or another byte from 0x5e to 0x7e. Bit i is for name[i]. The",
		"name has 1 to 64 bytes.")
	name := find("name")
	byLow, byHigh, nibble, dot, zero := XMM(), XMM(), XMM(), XMM(), XMM()
	MOVOU(low, byLow)
	MOVOU(high, byHigh)
	MOVOU(same("scanNibble", 0x0f), nibble)
	MOVOU(same("scanDot", '.'), dot)
	PXOR(zero, zero)
	dots, others := GP64(), GP64()
	for part := 3; part >= 0; part-- {
		x, h := XMM(), XMM()
		MOVOU(Mem{Base: name.text, Disp: 16 * part}, x)
		MOVOU(x, h)
		isDot := XMM()
		MOVOU(x, isDot)
		PCMPEQB(dot, isDot)
		PSRLW(Imm(4), h)
		PAND(nibble, h)
		rows, columns := XMM(), XMM()
		MOVOU(byHigh, rows)
		PSHUFB(h, rows)
		PAND(nibble, x)
		MOVOU(byLow, columns)
		PSHUFB(x, columns)
		PAND(columns, rows)
		PCMPEQB(zero, rows)
		push(isDot, dots, part)
		push(rows, others, part)
	}
	// Bits behind the name are shifted out.
	shift := reg.RCX
	MOVQ(name.size, shift)
	NEGQ(shift)
	mask := GP64()
	MOVQ(I32(-1), mask)
	SHRQ(reg.CL, mask)
	ANDQ(mask, dots)
	ANDQ(mask, others)
	Store(dots, ReturnIndex(0))
	Store(others, ReturnIndex(1))
	RET()
	name.copyText()
}

// push puts the highest bits of 16 bytes below those that are in bits. Part 3 is the
// first.
func push(bytes reg.Register, bits reg.GPVirtual, part int) {
	if part == 3 {
		PMOVMSKB(bytes, bits.As32())
		return
	}
	next := GP64()
	PMOVMSKB(bytes, next.As32())
	SHLQ(Imm(16), bits)
	ORQ(next, bits)
}

// canonicalRows are the bytes that a canonical name holds unchanged, by their high
// halves: from and to are the low halves. It leaves out a few, such as '$'.
var canonicalRows = []struct{ high, from, to int }{
	{2, 0xd, 0xe}, {3, 0, 9}, {5, 0xe, 0xf}, {6, 0, 0xf}, {7, 0, 0xe},
}

func rowTables() (low, high Mem) {
	var lows, highs [16]byte
	for k, row := range canonicalRows {
		highs[row.high] |= 1 << k
		for i := row.from; i <= row.to; i++ {
			lows[i] |= 1 << k
		}
	}
	return table("scanLow", lows), table("scanHigh", highs)
}

// same returns 16 equal bytes.
func same(name string, b byte) Mem {
	var all [16]byte
	for i := range all {
		all[i] = b
	}
	return table(name, all)
}

func table(name string, bytes [16]byte) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i, b := range bytes {
		DATA(i, U8(b))
	}
	return m
}
