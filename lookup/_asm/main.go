// Command _asm writes the assembly of lookup/sum_amd64.go.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("gc,!purego")
	constants := newTables()
	sum("sumOne", 1, constants)
	sum("sumTwo", 2, constants)
	Generate()
}

// tables are the constants in memory, each aligned to 16 bytes as operands of
// SSE instructions must be.
type tables struct {
	k       Mem // of the rounds
	initial Mem // the state that every sum begins with: words FEBA, then HGDC
	swap    Mem // shuffle that turns big-endian words into little-endian ones
	reverse Mem // shuffle that reverses 16 bytes
}

func newTables() tables {
	t := tables{k: GLOBL("sumRounds", RODATA|NOPTR)}
	for i, k := range rounds {
		DATA(4*i, U32(k))
	}
	t.initial = GLOBL("sumInitial", RODATA|NOPTR)
	for i, h := range []int{5, 4, 1, 0, 7, 6, 3, 2} {
		DATA(4*i, U32(initial[h]))
	}
	t.swap = GLOBL("sumSwap", RODATA|NOPTR)
	DATA(0, U64(0x0405060700010203))
	DATA(8, U64(0x0c0d0e0f08090a0b))
	t.reverse = GLOBL("sumReverse", RODATA|NOPTR)
	DATA(0, U64(0x08090a0b0c0d0e0f))
	DATA(8, U64(0x0001020304050607))
	return t
}

// lane is one of the messages that are hashed side by side.
type lane struct {
	dst  reg.GPVirtual
	abef reg.VecVirtual    // the state as the instructions want it, A and
	cdgh reg.VecVirtual    // C being the highest words
	w    [4]reg.VecVirtual // the sixteen latest words of the schedule
}

// sum writes a function that hashes n messages of one block each, all of which
// end at the same byte. Each round waits for the one before it, but the SHA unit
// can begin one before another has ended: two messages keep it busy, and the
// registers are no more than enough for two.
func sum(name string, n int, t tables) {
	signature := "func("
	for i := range n {
		signature += fmt.Sprintf("dst%d *[32]byte, ", i)
	}
	signature += "end *byte"
	for i := range n {
		signature += fmt.Sprintf(", n%d int", i)
	}
	TEXT(name, NOSPLIT, signature+")")
	Pragma("noescape")
	Doc(name+" writes to each dst the SHA-256 of the n bytes before end, 0 to 55, of",
		"which n0 belongs to dst0. From end on there are the byte 0x80 and 63 zeros.")
	end := Load(Param("end"), GP64())
	swap := XMM()
	MOVOU(t.swap, swap)
	lanes := make([]lane, n)
	for i := range lanes {
		lanes[i] = begin(i, end, swap, t)
	}
	for group := range 16 {
		for i := range lanes {
			lanes[i].fourRounds(group, t)
		}
	}
	reverse := swap
	MOVOU(t.reverse, reverse)
	for i := range lanes {
		lanes[i].finish(reverse, t)
	}
	RET()
}

// begin loads the block of message i and the initial state.
func begin(i int, end reg.Register, swap reg.Register, t tables) lane {
	l := lane{
		abef: XMM(), cdgh: XMM(),
		w: [4]reg.VecVirtual{XMM(), XMM(), XMM(), XMM()},
	}
	size := Load(Param(fmt.Sprintf("n%d", i)), GP64())
	block := GP64()
	MOVQ(end, block)
	SUBQ(size, block)
	for j, w := range l.w {
		MOVOU(Mem{Base: block, Disp: 16 * j}, w)
		PSHUFB(swap, w)
	}
	SHLL(Imm(3), size.(reg.GP).As32())
	PINSRD(Imm(3), size.(reg.GP).As32(), l.w[3])
	MOVOU(t.initial, l.abef)
	MOVOU(t.initial.Offset(16), l.cdgh)
	l.dst = Load(Param(fmt.Sprintf("dst%d", i)), GP64()).(reg.GPVirtual)
	return l
}

// fourRounds does rounds 4*group to 4*group+3. After the first two of them the
// old ABEF are the new CDGH and after the other two they are back in place.
func (l *lane) fourRounds(group int, t tables) {
	w := l.w[group%4]
	if group >= 4 {
		l.schedule(group)
	}
	wk := reg.X0 // the instruction takes no other
	MOVO(w, wk)
	PADDD(t.k.Offset(16*group), wk)
	SHA256RNDS2(wk, l.abef, l.cdgh)
	PSHUFD(Imm(0x0e), wk, wk)
	SHA256RNDS2(wk, l.cdgh, l.abef)
}

// schedule replaces the four oldest words by the four next ones.
func (l *lane) schedule(group int) {
	w := func(i int) reg.VecVirtual { return l.w[(group+i)%4] }
	sevenAgo := XMM() // words t-7
	SHA256MSG1(w(1), w(0))
	MOVO(w(3), sevenAgo)
	PALIGNR(Imm(4), w(2), sevenAgo)
	PADDD(sevenAgo, w(0))
	SHA256MSG2(w(3), w(0))
}

// finish adds the initial state and stores the sum.
func (l *lane) finish(reverse reg.Register, t tables) {
	PADDD(t.initial, l.abef)
	PADDD(t.initial.Offset(16), l.cdgh)
	PSHUFB(reverse, l.abef)
	PSHUFB(reverse, l.cdgh)
	low := l.w[0]
	MOVO(l.abef, low)
	PUNPCKLQDQ(l.cdgh, low)
	PUNPCKHQDQ(l.cdgh, l.abef)
	MOVOU(low, Mem{Base: l.dst})
	MOVOU(l.abef, Mem{Base: l.dst, Disp: 16})
}

// initial is the state before the first block (FIPS 180-4, section 5.3.3).
var initial = [8]uint32{
	0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
}

// rounds are the constants of the rounds (FIPS 180-4, section 4.2.2).
var rounds = [64]uint32{
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
}
